"""Kill -9 during fit, predict and export: the same command, given again, finishes with the same result."""

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.prove.commands import Commands, commands
from benchmarks.prove.proof import FIT, Place, Result, listing, table

from ddpn.storage.model_files import read_files, read_manifest

#: Rows of the table to predict: four parts.
ROWS = 100_000


def model_content(path: Path) -> Any:
    """All numbers of a model, which two fits have in common: not dates and times. Raises an error if it is damaged."""
    manifest = read_manifest(path)
    files = read_files(path, manifest)
    return {name: _numbers(name, files[name]) for name in sorted(files) if name != "task.json"}, {
        name: each["weight"] for name, each in manifest["members"].items()
    }


def _numbers(name: str, content: bytes) -> Any:
    if name.endswith(".json"):
        return _untimed(json.loads(content))
    return content


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _untimed(each) for name, each in value.items() if name != "seconds"}
    return [_untimed(each) for each in value] if isinstance(value, list) else value


@dataclass
class Job:
    """A command that writes `target` in a folder, prepared by `begin`; `content` reads it, and fails if it is damaged.

    `old` is what is there before, in every second trial: it must survive until the new one replaces it.
    """

    words: list[str]
    target: str
    begin: Callable[[Path], None]
    content: Callable[[Path], Any]
    old: Path


def jobs(place: Place) -> dict[str, Job]:
    """The three commands."""
    long = place.folder / "long.csv"
    if not long.exists():
        table(ROWS, seed=1).write_csv(long)
    old = place.folder / "old.txt"
    old.write_text("old")

    def with_table(folder: Path) -> None:
        shutil.copy(place.table, folder / "visits.csv")

    def with_model(folder: Path) -> None:
        shutil.copytree(place.model, folder / "visits.model")

    def with_both(folder: Path) -> None:
        with_model(folder)
        (folder / "long.csv").symlink_to(long)

    fit = ["fit", "visits.csv", *FIT, "-o", "new.model", "--overwrite"]
    predict = ["predict", "visits.model", "long.csv", "-o", "new.csv", "--overwrite"]
    export = ["export", "visits.model", "-o", "new.onnx", "--overwrite"]
    return {
        "fit": Job(fit, "new.model", with_table, model_content, place.model),
        "predict": Job(predict, "new.csv", with_both, Path.read_bytes, old),
        "export": Job(export, "new.onnx", with_model, Path.read_bytes, old),
    }


def started(place: Place, job: Job, name: str, with_old: bool) -> Path:
    """A folder in which the command can run."""
    folder = place.fresh(name)
    job.begin(folder)
    if with_old:
        (shutil.copytree if job.old.is_dir() else shutil.copy)(job.old, folder / job.target)
    return folder


def problems(folder: Path, job: Job, wanted: Any, with_old: bool, again: Commands, names: list[str]) -> list[str]:
    """What is wrong after a kill: the target is neither old nor new, or the same command does not repair it."""
    found, target = [], folder / job.target
    try:
        if target.exists() and job.content(target) not in (wanted, *([job.content(job.old)] if with_old else [])):
            found.append("a partial result was left in place")
    except Exception as error:
        found.append(f"a damaged result was left in place: {error}")
    ended = again.run(folder, job.words)
    if ended.code:
        found.append(f"the same command failed: {ended.output[-300:]}")
        return found
    if job.content(target) != wanted:
        found.append("the result differs from the undisturbed one")
    if listing(folder) != names:
        found.append(f"files were left: {sorted(set(listing(folder)) - set(names))}")
    return found


def kill(name: str, workers: int = 2) -> Callable[[Place], Result]:
    """The proof for one command: half of the kills come at a random time, half before a random file operation."""

    def run(place: Place) -> Result:
        job, trials = jobs(place)[name], place.times(20, 2)
        with ExitStack() as stack:
            idle = [stack.enter_context(commands(place.fresh("logs"))) for _ in range(workers)]
            first = idle[0]
            folder = started(place, job, name, with_old=False)
            whole = first.run(folder, job.words)
            if whole.code:
                return Result(False, "0 kills", f"the undisturbed command failed: {whole.output[-500:]}")
            wanted, names = job.content(folder / job.target), listing(folder)
            moments = [(place.rng.uniform(0.0, 1.0), bool(trial % 2)) for trial in range(trials)]
            lock = threading.Lock()

            def trial(number: int) -> tuple[list[str], str]:
                share, by_time = moments[number]
                with lock:
                    own, place_ = idle.pop(), started(place, job, name, with_old=number % 4 < 2)
                try:
                    return _killed(own, place_, job, share, by_time, whole, wanted, number % 4 < 2, names)
                finally:
                    with lock:
                        idle.append(own)

            with ThreadPoolExecutor(workers) as pool:
                done = list(pool.map(trial, range(trials)))
        wrong = [f"kill {number}: {each}" for number, (own, _) in enumerate(done) for each in own]
        when = ", ".join(f"{number} {how}" for how, number in sorted(Counter(how for _, how in done).items()))
        found = "; ".join(wrong[:3]) or f"all repaired by the same command ({when})"
        return Result(not wrong, f"{trials} kills", found, {"undisturbed seconds": whole.seconds, "problems": wrong})

    return run


def _killed(
    own: Commands, folder: Path, job: Job, share: float, by_time: bool, whole: Any, wanted: Any, old: bool, names: Any
) -> tuple[list[str], str]:
    """Kill once and look; a command that was faster than the moment is killed earlier."""
    if by_time:
        after = share * whole.seconds
        while own.run(folder, job.words, after=after).code != -9:
            after /= 2.0
        how = "at a time"
    else:
        at = 1 + int(share * whole.changes)
        own.run(folder, job.words, at=min(at, whole.changes))
        how = "at a file operation"
    found = problems(folder, job, wanted, old, own, names)
    if not found:
        shutil.rmtree(folder)
    return found, how
