import threading
import time
from hashlib import sha256

import numpy as np
import pytest

from ddpn.datasets.download import download, locked
from ddpn.errors import InputError

BODY = np.random.default_rng(0).bytes(300_000)


@pytest.fixture
def bring(server, tmp_path):
    """Download from the server what should be BODY."""
    server.body = BODY

    def go(**wrong):
        declared = {"size": len(BODY), "sha256": sha256(BODY).hexdigest()} | wrong
        download(server.url, tmp_path / "file.csv", pause=0.0, **declared)
        return (tmp_path / "file.csv").read_bytes()

    return go


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_in_one_go(bring, server, tmp_path):
    assert bring() == BODY
    assert server.asked == [None]
    assert names(tmp_path) == ["file.csv"]


def test_broken_off_twice_and_taken_up_each_time(bring, server, tmp_path):
    server.script = [100_000, 50_000]
    assert bring() == BODY
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]
    assert names(tmp_path) == ["file.csv"]


def test_a_later_call_takes_up_what_an_earlier_one_left(bring, server, tmp_path):
    server.script = [70_000, 0, 0, 0]
    with pytest.raises(OSError, match="ended after 70000 of 300000 bytes"):
        bring()
    assert names(tmp_path) == ["file.csv.part"]
    server.asked.clear()
    assert bring() == BODY
    assert server.asked == ["bytes=70000-"]


def test_a_server_without_ranges_starts_again(bring, server):
    server.knows_ranges = False
    server.script = [100_000]
    assert bring() == BODY
    assert server.asked == [None, "bytes=100000-"]


def test_a_server_that_sends_other_bytes_than_asked_for(bring, server):
    server.script, server.shift = [100_000], 7
    assert bring() == BODY
    assert server.asked == [None, "bytes=100000-", None]


def test_what_was_left_by_another_version_is_thrown_away(bring, server, tmp_path):
    (tmp_path / "file.csv.part").write_bytes(b"x" * 100_000)
    assert bring() == BODY
    assert server.asked == ["bytes=100000-", None]


def test_a_rest_that_is_whole_needs_no_server(bring, server, tmp_path):
    (tmp_path / "file.csv.part").write_bytes(BODY)
    assert bring() == BODY
    assert server.asked == []


def test_a_rest_longer_than_the_file_is_thrown_away(bring, server, tmp_path):
    (tmp_path / "file.csv.part").write_bytes(BODY + b"x")
    assert bring() == BODY
    assert server.asked == [None]


def test_a_file_that_became_shorter(bring, server, tmp_path):
    """The rest begins where the server's file has ended: 416, and again from the start."""
    server.body = BODY[:1000]
    (tmp_path / "file.csv.part").write_bytes(BODY[:2000])
    with pytest.raises(OSError, match="ended after 1000 of 300000"):
        bring()
    assert server.asked[:2] == ["bytes=2000-", None]


def test_corrupted_on_the_way(bring, server, tmp_path):
    server.body = BODY[:-1] + bytes([BODY[-1] ^ 1])
    got, wanted = sha256(server.body).hexdigest(), sha256(BODY).hexdigest()
    with pytest.raises(InputError, match=f"must send 300000 bytes with sha256 {wanted}, got 300000 .* sha256 {got}"):
        bring()
    assert names(tmp_path) == []
    assert len(server.asked) == 1


def test_too_long_is_not_read_to_its_end(bring, server, tmp_path):
    server.body = BODY * 20
    with pytest.raises(InputError, match=r"must send 300000 bytes .* got 300001 bytes"):
        bring()
    assert names(tmp_path) == []


def test_a_busy_server_is_asked_again(bring, server):
    server.script = ["status 503", "status 429"]
    assert bring() == BODY
    assert len(server.asked) == 3


@pytest.mark.parametrize(("status", "tries"), [(404, 1), (403, 1), (500, 4)])
def test_a_server_that_refuses(bring, server, status, tries):
    server.script = [f"status {status}"] * 9
    with pytest.raises(OSError, match=str(status)):
        bring()
    assert len(server.asked) == tries


def test_one_process_at_a_time(tmp_path):
    order = []

    def second():
        with locked(tmp_path / "lock"):
            order.append("second")

    with locked(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
