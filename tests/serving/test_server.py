"""Test the program `ddpn serve` as a process: its port, its logs, and its end by SIGTERM."""

import json
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from ddpn.serving.middleware import read_token
from ddpn.serving.server import open_socket

pytestmark = pytest.mark.last
SECRET = "a-token-of-some-length"


@pytest.fixture(scope="module")
def server_after_sigterm(model_path, tmp_path_factory, program):
    """The answers, output, logs and exit code of a server that got SIGTERM while requests were predicted."""
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(f"{SECRET}\n")
    command = ["serve", str(model_path), "--port", "0", "--token-file", str(file)]
    process = program(*command, "--reload-every", "0", OMP_NUM_THREADS="1")
    try:
        while process.poll() is None and "\n" not in process.out.read_text():
            time.sleep(0.01)
        line = process.out.read_text()
        address = re.search(r"http://\S+", line)[0]
        row = {"severity": 0.123454321, "ward": "hidden-ward", "zip": "1", "smokes": None, "age": 3, "days": 1}
        row["admitted"] = "2024-03-05"
        headers = {"Authorization": f"Bearer {SECRET}"}
        with httpx.Client(base_url=address, headers=headers, timeout=30.0) as client, ThreadPoolExecutor(4) as threads:
            bad = client.post("/predict", json={"rows": [{**row, "age": "secret-cell"}]})
            long = {"rows": [row] * 300}  # one at a time
            jobs = [threads.submit(client.post, "/predict", json=long) for _ in range(4)]
            while "ddpn_queue_requests 0.0" in client.get("/metrics").text:
                assert not all(job.done() for job in jobs), "too late: all are answered"
            process.send_signal(signal.SIGTERM)
            answers = [job.result() for job in jobs]
        code = process.wait(30.0)
    finally:
        process.send_signal(signal.SIGKILL)
    out, logs = process.out.read_text(), process.err.read_text()
    return {"line": line, "bad": bad, "answers": answers, "out": out, "logs": logs, "code": code}


def test_the_chosen_port_is_printed(server_after_sigterm):
    assert re.fullmatch(r"Serving patients at http://127\.0\.0\.1:\d+\n", server_after_sigterm["line"])


def test_sigterm_finishes_requests_that_were_taken(server_after_sigterm):
    assert [answer.status_code for answer in server_after_sigterm["answers"]] == [200] * 4
    assert server_after_sigterm["code"] == 0


def test_logs_are_json_without_rows_and_secrets(server_after_sigterm):
    lines = [json.loads(line) for line in server_after_sigterm["logs"].splitlines()]
    requests = [line for line in lines if line["event"] == "request" and line["path"] == "/predict"]
    assert [line["status"] for line in requests] == [422, 200, 200, 200, 200]
    assert requests[1]["rows"] == 300
    assert server_after_sigterm["bad"].status_code == 422
    for secret in (SECRET, "0.123454321", "hidden-ward", "secret-cell"):
        assert secret not in server_after_sigterm["logs"] + server_after_sigterm["out"] + server_after_sigterm["line"]


def test_a_short_token_is_refused_and_not_shown(tmp_path):
    with pytest.raises(Exception, match="must contain one token of 8 to 512") as caught:
        read_token("short", None)
    assert "short" not in str(caught.value)
    assert read_token(None, None) is None


def test_a_port_in_use_is_reported():
    with open_socket("127.0.0.1", 0) as used, pytest.raises(Exception, match=r"Cannot listen at 127\.0\.0\.1"):
        open_socket("127.0.0.1", used.getsockname()[1])
