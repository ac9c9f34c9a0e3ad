"""Share a network that can misbehave, and the folder of real data where there is one."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

#: The folder of real data.
REAL = Path(os.environ.get("DDPN_DATA", Path(__file__).resolve().parents[4] / "shared" / "data"))


class Server:
    """A server that sends `body` from any address, unless `script` (one entry per request, then none) has orders.

    An entry is a number of bytes after which the connection ends, or a status, given as "status 503".
    """

    url = "http://127.0.0.1/file.csv"

    def __init__(self) -> None:
        self.body, self.requests = b"", 0
        self.script: list[int | str] = []

    def get(self, url: str, **options: object) -> requests.Response:
        self.requests += 1
        order = self.script.pop(0) if self.script else None
        answer = requests.Response()
        answer.status_code = int(order.removeprefix("status ")) if isinstance(order, str) else 200
        answer.reason = {200: "OK", 404: "Not Found"}.get(answer.status_code, "Unavailable")
        answer.iter_content = lambda chunk_size: self._parts(order if isinstance(order, int) else None)
        return answer

    def _parts(self, end: int | None) -> Iterator[bytes]:
        yield self.body[:end]
        if end is not None:
            raise requests.ConnectionError("the connection broke off")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server that answers every request; retries do not wait."""
    misbehaving = Server()
    monkeypatch.setattr(requests, "get", misbehaving.get)
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    return misbehaving


@pytest.fixture(autouse=True)
def set_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the folder of data sets to the folder of the test."""
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))


@pytest.fixture
def use_real_data(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Set the folder of data sets to that of real data, if it has the file; else skip the test."""

    def folder_with(path: str) -> Path:
        if not (REAL / path).is_file():
            pytest.skip(f"needs {REAL / path}")
        monkeypatch.setenv("DDPN_DATA", str(REAL))
        return REAL

    return folder_with
