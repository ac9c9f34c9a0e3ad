"""A full disk while results are saved, and two processes that write to one folder."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.prove.kills import model_content
from benchmarks.prove.proof import FIT, Place, Result, ddpn, environment, listing, table

#: The size of the small disk.
SIZE = 24 * 2**20


@contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """A disk of its own, of some megabytes, in memory; None where it may not be mounted."""
    disk = folder / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if done.returncode:
        yield None
        return
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def fill(disk: Path) -> None:
    """Leave no free byte on the disk."""
    with open(disk / "ballast", "wb", buffering=0) as file:
        for size in (2**20, 4096, 1):
            try:
                while file.write(b"\0" * size):
                    continue
            except OSError:
                continue


def prove_full_disk(place: Place) -> Result:
    """The disk fills up while a command runs: the old result survives, and the message says what happened."""
    folder, wrong, how = place.fresh("disk"), [], []
    with small_disk(folder) as disk:
        if disk is None:
            return Result(None, "not tried", "a small disk cannot be mounted here: run as root")
        shutil.copytree(place.model, disk / "old.model")
        before = model_content(disk / "old.model")
        (disk / "old.csv").write_text("old")
        (disk / "old.onnx").write_text("old")
        table(40_000, seed=3).write_csv(folder / "new.csv")
        jobs = {
            "fit": ["fit", place.table, *FIT, "-o", disk / "old.model", "--overwrite"],
            "predict": ["predict", place.model, folder / "new.csv", "-o", disk / "old.csv", "--overwrite"],
            "export": ["export", place.model, "-o", disk / "old.onnx", "--overwrite"],
        }
        for name, words in jobs.items():
            done = _filled_meanwhile(disk, ddpn(*words), folder / "cache")
            output = done.stdout + done.stderr
            names = sorted(each for each in listing(disk) if not each.endswith(".lock"))
            # Finished parts of predictions are kept: the same command continues with them.
            if [each for each in names if each != "old.csv.parts"] != ["old.csv", "old.model", "old.onnx"]:
                wrong.append(f"{name}: files were left: {names}")
            if model_content(disk / "old.model") != before or (disk / "old.csv").read_text() != "old":
                wrong.append(f"{name}: the old result was changed")
            if done.returncode != 1 or not ("full" in output or "No space left" in output) or "Traceback" in output:
                wrong.append(f"{name}: exit code {done.returncode}, {output[-400:]}")
            how.append(output.strip().splitlines()[-1][:160] if output.strip() else "")
        done = subprocess.run(ddpn(*jobs["predict"]), env=environment(), check=False, capture_output=True)
        if done.returncode or (disk / "old.csv.parts").exists():
            wrong.append("predict: the same command did not finish when there was space again")
    kept = list((folder / "cache").glob("ddpn/unsaved/*"))
    if len(kept) != 1 or model_content(kept[0])[1].keys() != before[1].keys():
        wrong.append(f"the fitted model was not kept elsewhere: {kept}")
    found = "; ".join(wrong) or "old results unchanged, one sentence each; the fitted model was kept elsewhere"
    return Result(not wrong, "3 commands", found, {"messages": how, "wrong": wrong})


def _filled_meanwhile(disk: Path, command: list[str], cache: Path) -> subprocess.CompletedProcess[str]:
    """Run a command; the disk is full from the time on that it has begun its work."""
    env = environment(XDG_CACHE_HOME=str(cache))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    assert process.stdout is not None
    if "fit" in command:  # there was space when it began
        while not process.stdout.readline().startswith("Training") and process.poll() is None:
            continue
    fill(disk)
    out, _ = process.communicate()
    (disk / "ballast").unlink()
    return subprocess.CompletedProcess(command, process.returncode, out, "")


def prove_two_writers(place: Place) -> Result:
    """Two fits into one folder at once: one wins whole, the other gets a clear error."""
    folder, wrong, trials = place.fresh("writers"), [], place.times(3)
    for trial in range(trials):
        target = folder / f"{trial}.model"
        pair = [ddpn("fit", place.table, *FIT, "-o", target) for _ in range(2)]
        processes = [
            subprocess.Popen(each, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment())
            for each in pair
        ]
        outputs = [process.communicate()[0] for process in processes]
        codes = sorted(process.returncode for process in processes)
        loser = next((o for p, o in zip(processes, outputs, strict=True) if p.returncode), "")
        clear = "Another process is writing to" in loser or "already exists" in loser
        if codes != [0, 1] or not clear:
            wrong.append(f"trial {trial}: exit codes {codes}: {loser[-300:]}")
            continue
        model_content(target)
    if len(listing(folder)) != trials:
        wrong.append(f"files were left: {listing(folder)}")
    return Result(not wrong, f"{trials} pairs", "; ".join(wrong) or "one whole model and one sentence each time")


#: Jumps by a day and back, at random, whenever the time of day is asked for.
JUMPING = """
import random, time
_real, _real_ns, _jump = time.time, time.time_ns, random.Random(7)
def _offset(): return _jump.choice([0, 86400, -86400, 3600, -3600, 10**8, -10**8])
time.time = lambda: _real() + _offset()
time.time_ns = lambda: _real_ns() + _offset() * 10**9
"""


def _timed(command: list[str], env: dict[str, str]) -> float:
    """The seconds that a command takes; infinite if it fails."""
    start = time.monotonic()
    done = subprocess.run(command, env=env, capture_output=True, check=False)
    return float("inf") if done.returncode else time.monotonic() - start


def prove_clock(place: Place) -> Result:
    """The time of day jumps by hours and years, forwards and backwards: time budgets and predictions are unaffected."""
    folder, wrong = place.fresh("clock"), []
    (folder / "sitecustomize.py").write_text(JUMPING)
    jumping = environment()
    jumping["PYTHONPATH"] = os.pathsep.join([str(folder), jumping["PYTHONPATH"]])
    seconds, plain = 12.0, environment()
    budget = ["fit", place.table, "--target", "visits", "--budget", f"{seconds:g}s", "-o"]
    with ThreadPoolExecutor(2) as pool:  # side by side, so that both have the same neighbours
        steady = pool.submit(_timed, ddpn(*budget, folder / "steady.model"), plain)
        disturbed = pool.submit(_timed, ddpn(*budget, folder / "jumping.model"), jumping)
        usual, took = steady.result(), disturbed.result()
    if not took <= 1.5 * usual + 5.0 or usual == float("inf"):
        wrong.append(f"fit with a budget of {seconds:g} s took {took:.1f} s, without jumps {usual:.1f} s")
    outputs = []
    table(40_000, seed=3).write_csv(folder / "new.csv")
    for number, env in enumerate((environment(), jumping)):
        target = folder / f"{number}.csv"
        words = ddpn("predict", place.model, folder / "new.csv", "-o", target)
        if number:  # killed first: the parts that are finished must be recognised although the clock jumps
            process = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            parts, until = folder / f"{target.name}.parts" / "part-000000", time.monotonic() + 60.0
            while not parts.exists() and process.poll() is None and time.monotonic() < until:
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
            process.wait()
        subprocess.run([*words, "--overwrite"], env=env, check=True, capture_output=True)
        outputs.append(target.read_bytes())
    if outputs[0] != outputs[1]:
        wrong.append("predictions differ")
    known = {"0.csv", "1.csv", "jumping.model", "steady.model", "new.csv", "sitecustomize.py", "__pycache__"}
    if left := sorted(set(listing(folder)) - known):
        wrong.append(f"files were left: {left}")
    times = f"a budget of {seconds:g} s took {took:.1f} s, without jumps {usual:.1f} s"
    found = "; ".join(wrong) or f"{times}; the same predictions, byte by byte"
    return Result(not wrong, "4 commands", found)
