"""The command tune: what it prints, writes and refuses, and how it continues after it was killed."""

import json
import signal
import time

import pytest

QUICK = """
target = "visits"
n_networks = 1
hidden = [8]
numeric = "standard"
epochs = 2
likelihood = "poisson"
device = "cpu"
mix_with = []
compare_with = ["constant"]
"""
TUNE = ["tune", "visits.csv", "--config", "tiny.toml", "-o", "model", "--trials", "2", "--search", "lr,batch_size"]


@pytest.fixture
def tiny(files):
    (files / "tiny.toml").write_text(QUICK)
    return files


def test_killed_and_continued_it_makes_the_trials_of_an_uninterrupted_search(ddpn, tiny, program):
    first = program(*TUNE, folder=tiny)
    while first.poll() is None and "\nTrial 0" not in "\n" + first.err.read_text():
        time.sleep(0.005)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL, first.err.read_text()
    assert not (tiny / "model").exists()
    done = ddpn(*TUNE)
    assert done.exit_code == 0, done.output
    assert "Continuing: what was scored before is read" in done.stderr
    assert "Trial 1: " in done.stderr
    assert "default settings" in done.stdout or "the defaults" in done.stdout
    assert "Scores on 52 test rows" in done.stdout
    assert "Search " in ddpn("show", "model").stdout
    continued = json.loads((tiny / "model" / "task.json").read_text())["tuning"]
    assert not list(tiny.glob(".model*")), "trials and locks are removed"

    whole = ddpn(*TUNE, "--overwrite", "--json")
    assert whole.exit_code == 0, whole.output
    assert "Continuing" not in whole.stderr
    found = json.loads(whole.stdout)["tuning"]
    seen = [[(trial["settings"], trial["crps"]) for trial in each["trials"]] for each in (continued, found)]
    assert seen[0] == seen[1]
    assert found["trials"][0]["settings"] == {"lr": 0.004, "batch_size": "auto"}
