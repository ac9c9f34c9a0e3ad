"""A small web server that can misbehave, and the folder of real data where there is one."""

import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


class Server(ThreadingHTTPServer):
    """Sends `body` from any address, except for what `script` (one entry per request, then none) orders.

    An entry is a number of bytes after which the connection ends, or a status, given as "status 503". `ranges` is
    whether it can send the rest of a file; `asked` are the ranges that were asked for, None for a whole file.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.body = b""
        self.script: list[int | str] = []
        self.ranges = True
        self.asked: list[str | None] = []

    @property
    def requests(self) -> int:
        return len(self.asked)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.csv"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        server.asked.append(asked := self.headers["Range"])
        order = server.script.pop(0) if server.script else None
        if isinstance(order, str):
            self.send_error(int(order.removeprefix("status ")))
            return
        first = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and server.ranges else 0
        if first and first >= len(server.body):
            self.send_error(416)
            return
        body = server.body[first:]
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:order])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server on this machine; retries do not wait."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """The folder of real data, if it has the file; else the test is skipped."""
    beside = Path(__file__).resolve().parents[4] / "shared" / "data"
    folder = Path(os.environ.get("DDPN_DATA", beside))

    def folder_with(path: str) -> Path:
        if not (folder / path).is_file():
            pytest.skip(f"needs {folder / path}")
        return folder

    return folder_with
