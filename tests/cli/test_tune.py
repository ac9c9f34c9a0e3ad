"""Test the command tune: what it prints, writes and refuses, and how it continues after it was killed."""

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
def tiny_files(files):
    (files / "tiny.toml").write_text(QUICK)
    return files


def test_a_killed_search_that_continues_makes_the_trials_of_an_uninterrupted_one(run_ddpn, tiny_files, program):
    first = program(*TUNE, folder=tiny_files)
    while first.poll() is None and "\nTrial 0" not in "\n" + first.err.read_text():
        time.sleep(0.005)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL, first.err.read_text()
    assert not (tiny_files / "model").exists()
    done = run_ddpn(*TUNE)
    assert done.exit_code == 0, done.output
    assert "Continuing with the scores of the interrupted search" in done.stderr
    assert "Trial 1: " in done.stderr
    assert "default settings" in done.stdout or "the defaults" in done.stdout
    assert "Scores on 52 test rows" in done.stdout
    assert "Search " in run_ddpn("show", "model").stdout
    continued = json.loads((tiny_files / "model" / "task.json").read_text())["tuning"]
    assert not list(tiny_files.glob(".model*")), "trials and locks are removed"

    whole = run_ddpn(*TUNE, "--overwrite", "--json")
    assert whole.exit_code == 0, whole.output
    assert "Continuing" not in whole.stderr
    whole_tuning = json.loads(whole.stdout)["tuning"]
    seen = [[(trial["settings"], trial["crps"]) for trial in tuning["trials"]] for tuning in (continued, whole_tuning)]
    assert seen[0] == seen[1]
    assert whole_tuning["trials"][0]["settings"] == {"lr": 0.004, "batch_size": "auto"}
