"""Test the way from experiments to tables on the console, and runs in processes."""

import io
import os
from types import SimpleNamespace

import pytest
from filelock import FileLock
from rich.console import Console

from ddpn.paper.experiments import reproduce as module
from ddpn.paper.experiments.catalogue import parse_experiment, select_experiments
from ddpn.paper.experiments.reproduce import count_simultaneous_runs, execute_all, reproduce
from ddpn.runtime.errors import ConfigError, InputError, TrainingError

RESULT = {"seconds": 12.4, "scores": {"ours": {"ensemble": {"mae": [0.4567], "crps": [0.3214]}}}}


@pytest.fixture
def console():
    return Console(file=io.StringIO(), force_terminal=False, width=100, color_system=None)


def run_and_capture(names, out, console, **options):
    """Reproduce, and return whether it succeeded and what was printed."""
    succeeded = reproduce(
        select_experiments(names), out, console, **({"only": [], "device": "cpu", "jobs": None} | options)
    )
    return succeeded, console.file.getvalue()


def test_one_job_per_core_is_the_default_and_one_under_torchrun(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    assert (count_simultaneous_runs(None, "cpu"), count_simultaneous_runs(2, "cpu")) == (3, 2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert count_simultaneous_runs(None, "cpu") == 1
    with pytest.raises(ConfigError, match=r"^jobs must be 1 under torchrun, .*got 2"):
        count_simultaneous_runs(2, "cpu")


def test_an_experiment_that_cannot_be_read_is_reported_and_the_next_one_done(tmp_path, monkeypatch, console):
    def refuse(experiment, out):
        raise InputError("It is damaged.")

    monkeypatch.setattr(module, "write_tables", refuse)
    monkeypatch.setattr(module, "_run_unfinished_runs", lambda *arguments: True)
    monkeypatch.setattr(module, "_states", lambda runs, out: {run_and_capture.name: "done" for run_and_capture in runs})
    outcome = run_and_capture(["wave", "bikes"], tmp_path, console)
    assert outcome == (False, "wave: It is damaged.\nbikes: It is damaged.\n")


def test_under_torchrun_one_process_prints_and_writes_tables(tmp_path, monkeypatch, console):
    shown = []
    monkeypatch.setattr(module, "_run_unfinished_runs", lambda *arguments: arguments[-1].out("running") or True)
    monkeypatch.setattr(module, "_show", lambda *arguments: shown.append(arguments[0].name) or True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, lines, tables in (("1", "", []), ("0", "running\n", ["wave"])):
        monkeypatch.setenv("RANK", rank)
        assert run_and_capture(["wave"], tmp_path, console) == (True, lines)
        assert shown == tables


def test_two_programs_do_not_run_the_same_experiment(tmp_path, console):
    (tmp_path / "wave").mkdir()
    with FileLock(tmp_path / "wave" / ".lock"):  # as another program would hold it
        succeeded, output = run_and_capture(["wave"], tmp_path, console)
    assert not succeeded
    assert output.startswith("wave: Another program is running this experiment")
    assert "another folder" in output


@pytest.fixture
def bikes_file(tmp_path, monkeypatch):
    """A run of bikes that is done, with data older than it; its rows and runs are not real."""
    monkeypatch.setenv("DDPN_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(
        module,
        "_states",
        lambda runs, out, *identity: {
            run_and_capture.name: "changed" if identity else "done" for run_and_capture in runs
        },
    )
    monkeypatch.setattr(module, "load_rows", lambda *arguments, **more: SimpleNamespace(identity=[1]))
    monkeypatch.setattr(module, "execute_all", lambda *arguments: True)
    monkeypatch.setattr(module, "_show", lambda *arguments: True)
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


def test_data_that_is_newer_than_finished_runs_is_read_again(bikes_file, tmp_path, console):
    options = {"only": ["poisson"], "jobs": 1}
    assert run_and_capture(["bikes"], tmp_path, console, **options) == (
        True,
        "bikes: nothing to run, all 1 runs are done.\n",
    )
    os.utime(bikes_file, (3000.0, 3000.0))
    _, output = run_and_capture(["bikes"], tmp_path, console, **options)
    assert "poisson was done, but its settings or rows have changed; it is run again" in output


# Runs of one experiment -----------------------------------------------------------------------------------------------

TINY = {
    "title": "A test",
    "paper": "none",
    "data": {"name": "shelves", "beams": 40, "points": 16},
    "backbone": {"name": "countnet3d", "widths": [4, 8]},
    "methods": ["poisson", "gaussian"],
    "minutes": 1,
    "training": {"epochs": 2, "batch_size": 200, "lr": 1e-2, "weight_decay": 0.0, "hidden": [4], "n_networks": 1},
}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (TrainingError("It cannot go on."), "It cannot go on."),
        (ZeroDivisionError("odd"), "ZeroDivisionError: odd"),
        (OSError(28, "No space left"), "full"),
    ],
)
def test_runs_are_done_one_after_the_other_and_go_on_if_one_fails(tmp_path, monkeypatch, error, message):
    tiny, lines = parse_experiment("tiny", TINY), []

    def execute(run, *arguments):
        if run.method.name == "poisson":
            raise error
        return RESULT

    monkeypatch.setattr(module, "execute", execute)
    assert not execute_all(tiny.runs(), None, tmp_path, "cpu", 1, lines.append)
    assert (lines[0], lines[2]) == ("poisson is running", "gaussian is running")
    assert lines[1].startswith("poisson failed: ")
    assert message in lines[1]
    assert lines[3:] == ["gaussian is done in 12 s, MAE 0.457, CRPS 0.321"]
