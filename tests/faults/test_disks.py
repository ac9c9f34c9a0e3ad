"""Test disks that are full, processes that write to one folder, models that are replaced, and a clock that jumps."""

import os
import shutil
import subprocess
import time
from contextlib import suppress

import pytest

from ddpn.runtime.errors import InputError
from ddpn.storage.model_files import read_consistently, read_manifest

pytestmark = pytest.mark.last
#: Saves a model over the one in the working directory, on a disk that takes so many bytes per file.
FULL = """
import resource, signal, sys
from pathlib import Path
from ddpn.cli.console import report_errors
from ddpn.storage.model_files import read_files, read_manifest, write_model
manifest = read_manifest(Path("m"))
files = read_files(Path("m"), manifest)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
with report_errors(""):
    write_model(Path("m"), files, {**manifest, "new": True}, overwrite=True)
"""
#: A time of day that jumps by hours and years, forwards and backwards, whenever it is asked for.
JUMPING = """
import random, time
_real, _real_ns, _jump = time.time, time.time_ns, random.Random(7)
def _offset(): return _jump.choice([0, 86400, -86400, 3600, -3600, 10**8, -10**8])
time.time = lambda: _real() + _offset()
time.time_ns = lambda: _real_ns() + _offset() * 10**9
"""


def test_a_full_disk_leaves_the_old_model(model, python, tmp_path):
    shutil.copytree(model, tmp_path / "m")
    before = read_manifest(tmp_path / "m")
    process = python("-c", FULL, folder=tmp_path)
    assert process.wait() != 0
    assert "File too large" in process.err.read_text()
    assert read_manifest(tmp_path / "m") == before
    assert os.listdir(tmp_path) == ["m"]


def test_a_model_that_is_replaced_meanwhile_is_read_again(model, rewrite, tmp_path):
    shutil.copytree(model, tmp_path / "m")
    seen = []

    def read():
        seen.append(read_manifest(tmp_path / "m")["checksum"])
        if len(seen) < 3:
            rewrite(tmp_path / "m", {"task.json": b'{"number": %d}' % len(seen)})
        if len(seen) == 2:
            raise InputError("task.json was truncated or changed")
        return seen[-1]

    assert read_consistently(tmp_path / "m", read) == read_manifest(tmp_path / "m")["checksum"]
    assert len(set(seen)) == 3
    with pytest.raises(InputError, match="its own error"):
        read_consistently(tmp_path / "m", lambda: (_ for _ in ()).throw(InputError("its own error")))


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 24 MB in memory."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here: run as root")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def fill_disk(disk):
    """Leave no free byte on the disk."""
    with open(disk / "ballast", "wb", buffering=0) as file:
        for size in (2**20, 4096, 1):
            with suppress(OSError):
                while file.write(b"\0" * size):
                    continue


@pytest.mark.slow
@pytest.mark.proof("Faults", "the disk fills up: old results survive, one sentence says why")
def test_a_full_disk_leaves_old_results_and_is_reported(
    small_disk, program, table, model, visits, fit_words, model_content, tmp_path, record_proof
):
    shutil.copytree(model, small_disk / "old.model")
    before, rows = model_content(small_disk / "old.model"), tmp_path / "new.csv"
    for name in ("old.csv", "old.onnx"):
        (small_disk / name).write_text("old")
    visits(40_000, seed=3).write_csv(rows)
    predict = ["predict", str(model), str(rows), "-o", str(small_disk / "old.csv"), "--overwrite"]
    jobs = {
        "fit": ["fit", str(table), *fit_words, "-o", str(small_disk / "old.model"), "--overwrite"],
        "predict": predict,
        "export": ["export", str(model), "-o", str(small_disk / "old.onnx"), "--overwrite"],
    }
    for name, words in jobs.items():
        process = program(*words, XDG_CACHE_HOME=str(tmp_path / "cache"))
        while name == "fit" and "Training" not in process.err.read_text() and process.poll() is None:
            time.sleep(0.01)  # there was space when it began
        fill_disk(small_disk)
        code, told = process.wait(), process.err.read_text() + process.out.read_text()
        (small_disk / "ballast").unlink()
        assert code == 1, told
        assert "full" in told or "No space left" in told
        assert "Traceback" not in told
        # Finished parts of predictions are kept: the same command continues with them.
        left = {path.name for path in small_disk.iterdir() if path.suffix != ".lock"} - {"old.csv.parts"}
        assert left == {"old.csv", "old.model", "old.onnx"}
        assert model_content(small_disk / "old.model") == before
        assert (small_disk / "old.csv").read_text() == "old"
    assert program(*predict).wait() == 0, "there is space again"
    assert not (small_disk / "old.csv.parts").exists()
    (kept,) = (tmp_path / "cache").glob("ddpn/unsaved/*")
    assert model_content(kept)[0].keys() == before[0].keys()
    record_proof("3 commands", "old results unchanged, one sentence each; the fitted model was kept elsewhere")


@pytest.mark.slow
@pytest.mark.proof("Faults", "two fits into one folder: one wins whole, one gets an error")
def test_of_two_fits_into_one_folder_one_is_refused(program, table, fit_words, model_content, tmp_path, record_proof):
    for number in range(3):
        target = tmp_path / f"{number}.model"
        pair = [program("fit", str(table), *fit_words, "-o", str(target), OMP_NUM_THREADS="1") for _ in range(2)]
        assert sorted(process.wait() for process in pair) == [0, 1]
        (refused,) = [process.err.read_text() for process in pair if process.returncode]
        assert "Another process is writing to" in refused or "already exists" in refused
        assert model_content(target)
    assert sorted(os.listdir(tmp_path)) == ["0.model", "1.model", "2.model"]
    record_proof("3 pairs", "one whole model and one sentence each time")


@pytest.mark.slow
@pytest.mark.proof("Faults", "the clock jumps: budgets and unfinished work are unaffected")
def test_a_clock_that_jumps_changes_neither_budgets_nor_resumed_work(
    program, table, model, visits, tmp_path, record_proof
):
    (tmp_path / "sitecustomize.py").write_text(JUMPING)
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    words = ["fit", str(table), "--target", "visits", "--budget", "12s", "-o"]
    # Side by side, so that both have the same neighbours.
    start, took = time.monotonic(), dict[str, float]()
    fits = {"jumping": program(*words, "m", PYTHONPATH=paths), "steady": program(*words, "n")}
    while len(took) < 2:
        for name, fit in fits.items():
            if name not in took and fit.poll() is not None:
                took[name] = time.monotonic() - start
        time.sleep(0.05)
    assert [fit.returncode for fit in fits.values()] == [0, 0], fits["jumping"].err.read_text()
    assert took["jumping"] <= 1.5 * took["steady"] + 5.0
    visits(40_000, seed=3).write_csv(tmp_path / "new.csv")
    words = ["predict", str(model), str(tmp_path / "new.csv"), "--overwrite", "-o"]
    killed = program(*words, "out.csv", folder=tmp_path, PYTHONPATH=paths)
    while not list(tmp_path.glob("out.csv.parts/*.json")) and killed.poll() is None:
        time.sleep(0.005)
    killed.kill()
    killed.wait()
    # Parts that are finished are recognised although the clock jumps.
    assert program(*words, "out.csv", folder=tmp_path, PYTHONPATH=paths).wait() == 0
    assert program(*words, "steady.csv", folder=tmp_path).wait() == 0
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "steady.csv").read_bytes()
    left = set(os.listdir(tmp_path)) - {"__pycache__"}
    assert left == {"new.csv", "out.csv", "sitecustomize.py", "steady.csv"}
    times = f"a budget of 12 s took {took['jumping']:.1f} s, without jumps {took['steady']:.1f} s"
    record_proof("5 commands", f"{times}; the same predictions, byte by byte")
