"""From experiments to tables on the console. No run is trained here."""

import io
import os
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from ddpn.paper.experiments import reproduce as module
from ddpn.paper.experiments.catalogue import experiment, select
from ddpn.paper.experiments.reproduce import processes, reproduce
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.storage.files import lock

RESULT = {"seconds": 12.4, "scores": {"ours": {"ensemble": {"mae": [0.4567], "crps": [0.3214]}}}}


@pytest.fixture
def console():
    return Console(file=io.StringIO(), force_terminal=False, width=100, color_system=None)


def run(names, out, console, **options):
    """Whether it succeeded, and what was printed."""
    succeeded = reproduce(select(names), out, console, **({"only": [], "device": "cpu", "n_jobs": None} | options))
    return succeeded, console.file.getvalue()


def test_one_job_per_core_is_the_default(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    assert processes(None, "cpu") == 3
    assert processes(2, "cpu") == 2


def test_processes_of_torchrun_do_not_start_others(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert processes(None, "cpu") == 1
    with pytest.raises(ConfigError, match=r"^jobs must be 1 under torchrun, .*got 2"):
        processes(2, "cpu")


def test_an_experiment_that_cannot_be_read_is_reported_and_the_next_one_done(tmp_path, monkeypatch, console):
    def unreadable(experiment, out):
        raise InputError("It is damaged.")

    monkeypatch.setattr(module, "write_tables", unreadable)
    monkeypatch.setattr(module, "_run", lambda *given: True)
    monkeypatch.setattr(module, "_states", lambda runs, out: {run.name: "done" for run in runs})
    found = run(["wave", "bikes"], tmp_path, console)
    assert found == (False, "wave: It is damaged.\nbikes: It is damaged.\n")


def test_two_programs_do_not_run_the_same_experiment(tmp_path, console):
    with lock(tmp_path / "wave" / ".lock"):
        succeeded, output = run(["wave"], tmp_path, console)
    assert not succeeded
    assert output.startswith("wave: Another program is running this experiment")
    assert "--out" in output


def test_an_unusable_folder_is_reported(tmp_path, console):
    (tmp_path / "file").touch()
    succeeded, output = run(["wave"], tmp_path / "file" / "below", console)
    assert not succeeded
    assert output.startswith("wave: ")
    assert "Not a directory" in output


@pytest.fixture
def finished_bikes(tmp_path, monkeypatch):
    """A run of bikes that is done, with data older than it; its rows and runs are not real."""
    monkeypatch.setenv("DDPN_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(
        module,
        "_states",
        lambda runs, out, *identity: {run.name: "changed" if identity else "done" for run in runs},
    )
    monkeypatch.setattr(module, "rows_of", lambda *given, **more: SimpleNamespace(identity=[1]))
    monkeypatch.setattr(module, "execute_all", lambda *given: None)
    monkeypatch.setattr(module, "_show", lambda *given: True)
    done = tmp_path / "bikes" / "poisson" / "DONE"
    done.parent.mkdir(parents=True)
    done.touch()
    os.utime(done, (2000.0, 2000.0))
    file = tmp_path / "data" / "bike_sharing" / "below" / "hour.csv"
    file.parent.mkdir(parents=True)
    file.touch()
    for path in (file, file.parent):
        os.utime(path, (1000.0, 1000.0))
    return file


def test_data_that_is_newer_than_finished_runs_is_read_again(finished_bikes, tmp_path, console):
    options = {"only": ["poisson"], "n_jobs": 1}
    assert run(["bikes"], tmp_path, console, **options) == (True, "bikes: nothing to run, all 1 runs are done.\n")
    os.utime(finished_bikes, (3000.0, 3000.0))
    _, output = run(["bikes"], tmp_path, console, **options)
    assert "poisson was done, but its settings or rows have changed; it is run again" in output


def test_ood_data_may_be_newer_too(tmp_path, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    runs = experiment("reviews").runs()[:1]
    for path in (tmp_path / "bible" / "verses", tmp_path / "out" / "reviews" / "poisson" / "DONE"):
        path.parent.mkdir(parents=True)
        path.touch()
    for when, is_newer in ((1000.0, False), (3000.0, True)):
        for path in (tmp_path / "bible", tmp_path / "bible" / "verses"):
            os.utime(path, (when, when))
        os.utime(tmp_path / "out" / "reviews" / "poisson" / "DONE", (2000.0, 2000.0))
        assert module._may_be_stale(experiment("reviews"), runs, tmp_path / "out") == is_newer


@pytest.mark.parametrize("terminal", [False, True])
def test_the_state_of_every_run_is_shown(terminal, tmp_path):
    runs = experiment("wave").runs()[:4]
    states = dict.fromkeys([run.name for run in runs], "missing") | {runs[3].name: "done"}
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None)
    (tmp_path / "wave" / runs[0].name).mkdir(parents=True)
    (tmp_path / "wave" / runs[0].name / "progress").write_text("epoch 3 of 8, validation crps 0.4")
    with module._Status(tmp_path / "wave", states, console) as status:
        for run, state, detail in (
            (runs[0], "running", ""),
            (runs[1], "running", ""),
            (runs[1], "failed", "It broke."),
            (runs[0], "done", RESULT),
        ):
            status.report(run, state, detail)
            status.refresh()
    assert status.failed == {runs[1].name: "It broke."}
    output = console.file.getvalue()
    done = f"{runs[0].name} done in 12 s, MAE 0.457, CRPS 0.321"
    if terminal:
        assert re.search("epoch 3 of 8, validation crps 0.4 +0:00:00", output)
        shown = [re.sub(" +", " ", line) for line in output.splitlines()[-5:-1]]
        starts = [done, f"{runs[1].name} failed", f"{runs[2].name} waiting", f"{runs[3].name} was done"]
        assert all(start in line for line, start in zip(shown, starts, strict=True)), shown
    else:
        lines = [f"{runs[0].name} running", f"{runs[1].name} running", f"{runs[1].name} failed", done]
        assert output.splitlines() == [f"wave {line}" for line in lines]
