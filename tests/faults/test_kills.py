"""Test kill -9 during fit, predict and export: the same command, given again, finishes with the same result."""

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

from ddpn.cli import app

pytestmark = pytest.mark.last
#: Rows of the table to predict: four parts.
ROWS = 100_000
#: Runs a command; counts the operations that change files in a folder, and dies before one of them if it is wanted.
PROGRAM = """
import atexit, os, signal, sys
import ddpn.cli.program, ddpn.export, ddpn.workflow.fitting, ddpn.workflow.streaming

folder, last = sys.argv[1], int(sys.argv[2])
changes = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"}
writing, done = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC, []

def hook(event, args):
    changed = event in changes or (event == "open" and bool((args[2] or 0) & writing))
    if changed and str(args[0]).startswith(folder):
        done.append(event)
        if len(done) == last:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
atexit.register(lambda: print(len(done), file=sys.stderr, flush=True))
print("ready", file=sys.stderr, flush=True)
sys.argv = ["ddpn", *sys.argv[3:]]
ddpn.cli.program.main()
"""


class Job(NamedTuple):
    """A command that writes `target` from copies of `inputs`; `content` reads the target, and fails if it is damaged.

    `old` is what is there before, in every second trial: it must survive until the new one replaces it.
    """

    words: list[str]
    inputs: list[Path]
    target: str
    content: Callable[[Path], Any]
    old: Path

    def begin(self, folder: Path, with_old: bool) -> Path:
        """Prepare a folder with the inputs, and with the old target if asked."""
        folder.mkdir()
        copies = {path.name: path for path in self.inputs} | ({self.target: self.old} if with_old else {})
        for name, path in copies.items():
            (shutil.copytree if path.is_dir() else shutil.copy)(path, folder / name)
        return folder


@pytest.fixture
def job(request, table, model, visits, fit_words, model_content, tmp_path) -> Job:
    """The command of this name."""
    old, long = tmp_path / "old", tmp_path / "long.csv"
    old.write_text("old")
    if request.param == "fit":
        words = ["fit", "visits.csv", *fit_words, "-o", "new.model", "--overwrite"]
        return Job(words, [table], "new.model", model_content, model)
    if request.param == "predict":
        visits(ROWS, seed=1).write_csv(long)
        words = ["predict", "visits.model", "long.csv", "-o", "new.csv", "--overwrite"]
        return Job(words, [model, long], "new.csv", Path.read_bytes, old)
    words = ["export", "visits.model", "-o", "new.onnx", "--overwrite"]
    return Job(words, [model], "new.onnx", Path.read_bytes, old)


def make_trials(name: str) -> Any:
    """Make a test parameter of twenty kills of a command."""
    claim = (
        f"kill -9 during `ddpn {name}`: the same command finishes with the same result; nothing partial, nothing left"
    )
    return pytest.param(name, 20, marks=[pytest.mark.slow, pytest.mark.proof("Faults", claim)], id=name)


@pytest.mark.parametrize(
    ("job", "kills"), [make_trials("fit"), make_trials("predict"), make_trials("export")], indirect=["job"]
)
def test_a_killed_command_can_be_given_again(job, kills, python, tmp_path, record_proof):
    """Every second kill comes at a random time, the others come before a random file operation."""

    def start(folder: Path, last: int = 0):
        process = python("-c", PROGRAM, str(folder), str(last), *job.words, folder=folder, OMP_NUM_THREADS="1")
        while "ready" not in process.err.read_text() and process.poll() is None:
            time.sleep(0.01)
        return process

    folder = job.begin(tmp_path / "whole", with_old=False)
    whole, began = start(folder), time.monotonic()
    assert whole.wait() == 0, whole.err.read_text()
    seconds, changes = time.monotonic() - began, int(whole.err.read_text().split()[-1])
    expected, names = job.content(folder / job.target), sorted(path.name for path in folder.iterdir())
    rng = np.random.default_rng(0)
    for number in range(kills):
        folder = job.begin(tmp_path / f"kill {number}", with_old=number % 4 < 2)
        moment, by_time = rng.uniform(), bool(number % 2)
        after, code = moment * seconds, None
        while code != -signal.SIGKILL:  # a command that was faster than the moment is killed earlier
            process = start(folder, 0 if by_time else min(1 + int(moment * changes), changes))
            if by_time:
                time.sleep(after)
                process.kill()
                after /= 2.0
            code = process.wait()
        if (folder / job.target).exists():
            allowed = [expected, *([job.content(job.old)] if number % 4 < 2 else [])]
            assert job.content(folder / job.target) in allowed, f"kill {number}: a partial result was left in place"
        again = start(folder)
        assert again.wait() == 0, f"kill {number}: {again.err.read_text()}"
        assert job.content(folder / job.target) == expected, f"kill {number}"
        assert sorted(path.name for path in folder.iterdir()) == names, f"kill {number}: files were left"
        shutil.rmtree(folder)
    half = kills // 2
    record_proof(f"{kills} kills", f"all repaired by the same command ({half} at a file operation, {half} at a time)")


def test_an_export_that_is_killed_before_its_last_step_is_done_again(model, python, tmp_path):
    folder, whole = tmp_path / "killed", tmp_path / "whole.onnx"
    folder.mkdir()
    words = ["export", str(model), "--overwrite", "-o"]
    (folder / "new.onnx").write_text("old")
    # The new file is made, written and flushed; then it would be moved into place.
    killed = python("-c", PROGRAM, str(folder), "4", *words, str(folder / "new.onnx"))
    assert killed.wait() == -signal.SIGKILL, killed.err.read_text()
    assert (folder / "new.onnx").read_text() == "old"
    assert len(list(folder.iterdir())) == 2
    for path in (folder / "new.onnx", whole):
        assert CliRunner().invoke(app, [*words, str(path)]).exit_code == 0
    assert (folder / "new.onnx").read_bytes() == whole.read_bytes()
    assert [path.name for path in folder.iterdir()] == ["new.onnx"]
