"""A small web server that can misbehave, and the folder of real data where there is one."""

import gc
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

#: The folder of real data.
REAL = Path(os.environ.get("DDPN_DATA", Path(__file__).resolve().parents[4] / "shared" / "data"))


class Server(ThreadingHTTPServer):
    """Sends `body` from any address, except for what `script` (one entry per request, then none) orders.

    An entry is a number of bytes after which the connection ends, or a status, given as "status 503".
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.body = b""
        self.script: list[int | str] = []
        self.requests, self.broke = 0, False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.csv"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        server.requests += 1
        order = server.script.pop(0) if server.script else None
        server.broke |= order is not None
        if isinstance(order, str):
            self.send_error(int(order.removeprefix("status ")))
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(server.body)))
        self.end_headers()
        self.wfile.write(server.body[:order])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def running() -> Iterator[Server]:
    """A server on this machine."""
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def server(running: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The server as it was at first; retries do not wait."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    running.body, running.script, running.requests, running.broke = b"", [], 0, False
    yield running
    if running.broke:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # pooch leaves connections to be closed that broke off
            gc.collect()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data sets are in the folder of the test."""
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Data sets are in the folder of real data, if it has the file; else the test is skipped."""

    def folder_with(path: str) -> Path:
        if not (REAL / path).is_file():
            pytest.skip(f"needs {REAL / path}")
        monkeypatch.setenv("DDPN_DATA", str(REAL))
        return REAL

    return folder_with
