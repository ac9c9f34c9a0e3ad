import io
import os
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from ddpn.errors import ConfigError, InputError
from ddpn.experiments import reproduce as reproducing
from ddpn.experiments.reproduce import Options, chosen, reproduce
from ddpn.experiments.settings import names
from ddpn.files import lock

HERE = Options(Path("nowhere"), device="cpu")


def test_all_is_every_experiment_and_a_name_twice_is_one():
    # One that shows another's runs again is run with it.
    own = [name for name in names() if name.startswith("paper-")]
    assert len(own) == 3
    every = [name for name in names() if name not in ("ood", *own)]
    assert sorted(each.name for each in chosen(["wave", "all"], HERE)) == every
    assert sorted(each.name for each in chosen(["all", own[0]], HERE)) == sorted([*every, own[0]])
    assert [each.name for each in chosen(["wave", "wave"], HERE)] == ["wave"]


def test_a_method_need_be_in_one_experiment_only():
    options = Options(Path("nowhere"), only=("poisson_glm",))
    assert len(chosen(["wave", "length-of-stay"], options)) == 2
    with pytest.raises(ConfigError, match="methods in wave must be among"):
        chosen(["wave"], options)


def test_options_change_the_training():
    (found,) = chosen(["wave"], Options(Path("nowhere"), members=3, seed=9, quick=True))
    assert (found.name, found.training.members, found.training.seed) == ("wave-quick", 3, 9)


def test_jobs_are_one_a_core_unless_told(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    assert HERE.processes == 3
    assert Options(Path("nowhere"), device="cpu", jobs=2).processes == 2


def test_processes_of_torchrun_do_not_start_others(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert HERE.processes == 1
    with pytest.raises(
        ConfigError, match=r"^jobs must be 1 under torchrun, got 2\. Its processes share every training"
    ):
        _ = Options(Path("nowhere"), device="cpu", jobs=2).processes


def test_dry_runs_of_other_lengths_are_other_runs():
    lengths = {steps: chosen(["wave"], Options(Path("nowhere"), max_steps=steps)) for steps in (2, 5)}
    (two,), (five,) = lengths.values()
    assert two.runs()[0].as_dict() != five.runs()[0].as_dict()


def test_an_experiment_that_cannot_be_shown_is_told_and_the_next_one_done(tmp_path, monkeypatch):
    def unreadable(experiment, out):
        raise InputError("It is damaged.")

    monkeypatch.setattr(reproducing, "write_tables", unreadable)
    monkeypatch.setattr(reproducing, "_run", lambda *given: True)
    monkeypatch.setattr(reproducing, "_states", lambda runs, out: {run.name: "done" for run in runs})
    console = screen(False)
    assert not reproduce(["wave", "bikes"], Options(tmp_path, device="cpu"), console)
    assert console.file.getvalue() == "wave: It is damaged.\nbikes: It is damaged.\n"


def screen(terminal):
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None)


def test_two_programs_do_not_work_on_the_same_runs(tmp_path):
    console = screen(False)
    (tmp_path / "moments").mkdir()
    with lock(tmp_path / "moments" / ".lock"):
        assert not reproduce(["moments"], Options(tmp_path, device="cpu"), console)
    assert f"{tmp_path / 'moments'} must be worked on by one program at a time, got another" in console.file.getvalue()
    assert "Wait for it, or name another folder with --out." in console.file.getvalue()


def test_a_folder_that_cannot_be_is_told(tmp_path):
    (tmp_path / "file").touch()
    console = screen(False)
    assert not reproduce(["wave"], Options(tmp_path / "file" / "below", device="cpu"), console)
    assert re.match(r"wave: the file .* must be usable, got: Not a directory\. Check the path", console.file.getvalue())


def test_data_that_changed_since_are_noticed_where_all_is_done(tmp_path, monkeypatch):
    console, done = screen(False), []
    monkeypatch.setattr(
        reproducing,
        "_states",
        lambda runs, out, *identity: (
            done.append(identity) or {run.name: "changed" if identity else "done" for run in runs}
        ),
    )
    monkeypatch.setattr(reproducing, "rows_of", lambda *given: SimpleNamespace(identity=[1]))
    monkeypatch.setattr(reproducing, "execute_all", lambda runs, *given: iter(()))
    monkeypatch.setattr(reproducing, "_shown", lambda *given: True)
    monkeypatch.setattr(reproducing, "Board", lambda *given: SimpleNamespace(shown=lambda c: nullcontext(), errors={}))
    monkeypatch.setattr(reproducing, "closing", nullcontext)
    options = Options(tmp_path, device="cpu", only=("poisson",), jobs=1)
    (tmp_path / "bikes" / "poisson").mkdir(parents=True)
    (tmp_path / "bikes" / "poisson" / "DONE").touch()
    for is_newer in (False, True):
        monkeypatch.setattr(reproducing, "changed_after", lambda *given, newer=is_newer: newer)
        assert reproduce(["bikes"], options, console)
    assert "nothing to run" in console.file.getvalue()
    assert "poisson was done, but its settings or rows have changed; it is run again" in console.file.getvalue()


def test_a_folder_that_cannot_be_locked_is_told_as_it_is(tmp_path, monkeypatch):
    def refused(path, **options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(reproducing, "lock", refused)
    console = screen(False)
    assert not reproduce(["moments"], Options(tmp_path, device="cpu"), console)
    assert "must be usable, got: Permission denied. Check the path" in console.file.getvalue()
