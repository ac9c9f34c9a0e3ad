"""Run fits: one JSON file per table, split and model, so that finished fits are not repeated.

Failures keep their reason.
"""

import json
import os
import platform
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .catalogue import split_rows
from .environments import NoEnvironmentError, find_python
from .models import MODELS

ROOT = Path(__file__).resolve().parents[2]
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "POLARS_MAX_THREADS",
)
_LOCKS: dict[str, threading.Lock] = {}


class Run(NamedTuple):
    """One fit: a model on one split of a table."""

    table: str
    split: int
    model: str

    def path(self, out: Path) -> Path:
        return out / self.table / str(self.split) / f"{self.model}.json"


@dataclass(frozen=True)
class Setup:
    """Where tables, environments and results are, and how fits are run."""

    tables: Path
    environments: Path
    out: Path
    python: str = "venv"
    threads: int = 1
    timeout: float = 1800.0
    retry: bool = False


def select_waiting_runs(runs: Iterable[Run], setup: Setup) -> list[Run]:
    """Return the runs without a result; with `retry`, also those that failed or were skipped."""
    waiting = []
    for run in runs:
        path = run.path(setup.out)
        if not path.exists() or (setup.retry and json.loads(path.read_text())["status"] != "done"):
            waiting.append(run)
    return waiting


def run_all(runs: list[Run], setup: Setup, jobs: int) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Complete every run; yield it with its result, in the order in which they end."""
    _LOCKS.update({model.environment: threading.Lock() for model in MODELS.values()})
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(complete_run, run, setup): run for run in runs}
        for done in as_completed(futures):
            yield futures[done], done.result()


def complete_run(run: Run, setup: Setup) -> dict[str, Any]:
    """Fit, predict and score in a process of its own, and write the result."""
    path, start = run.path(setup.out), time.perf_counter()
    work = path.with_suffix(".work")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        result = {"status": "done", **_measure_run(run, setup, work)}
    except _SkippedError as reason:
        result = {"status": "skipped", "reason": str(reason)}
    except (_FailedError, ValueError) as reason:
        result = {"status": "failed", "reason": str(reason)}
    result |= {
        **run._asdict(),
        "wall_seconds": time.perf_counter() - start,
        "machine": describe_machine(),
        "commit": read_commit(),
    }
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
    shutil.rmtree(work)
    return result


class _SkippedError(Exception):
    pass


class _FailedError(Exception):
    pass


def _measure_run(run: Run, setup: Setup, work: Path) -> dict[str, Any]:
    model = MODELS[run.model]
    try:
        with _LOCKS.setdefault(model.environment, threading.Lock()):
            python = find_python(model.environment, setup.environments, setup.python)
    except NoEnvironmentError as error:
        raise _SkippedError(f"environment {model.environment}: {error}") from None
    facts = json.loads((setup.tables / f"{run.table}.json").read_text(encoding="utf-8"))
    fit, test = split_rows(facts["rows"], facts["role"], run.split)
    _write_job(run, setup, work, fit, test)
    _run_adapter(python, model.adapter, work, setup)
    if (work / "skipped.txt").exists():
        raise _SkippedError((work / "skipped.txt").read_text(encoding="utf-8"))
    times = json.loads((work / "times.json").read_text(encoding="utf-8"))
    if (work / "scores.json").exists():
        return json.loads((work / "scores.json").read_text(encoding="utf-8")) | times
    from .adapters.common import read_table
    from .predictions import read_prediction
    from .scoring import score_rows

    dist, has_likelihood = read_prediction(work / "prediction.npz")
    return score_rows(dist, read_table(setup.tables / run.table)[1][test], has_likelihood) | times


def _write_job(run: Run, setup: Setup, work: Path, fit: np.ndarray, test: np.ndarray) -> None:
    np.save(work / "fit.npy", fit)
    np.save(work / "test.npy", test)
    job = {
        "table": str((setup.tables / run.table).resolve()),
        "fit": str((work / "fit.npy").resolve()),
        "test": str((work / "test.npy").resolve()),
        "seed": run.split,
        "threads": setup.threads,
        "options": MODELS[run.model].options,
        "out": str(work.resolve()),
    }
    (work / "job.json").write_text(json.dumps(job), encoding="utf-8")


def _run_adapter(python: str, adapter: str, work: Path, setup: Setup) -> None:
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(setup.threads)) | {"CUDA_VISIBLE_DEVICES": ""}
    command = [python, "-m", f"benchmarks.tables.adapters.{adapter}", str((work / "job.json").resolve())]
    options = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True, "timeout": setup.timeout}
    try:
        done = subprocess.run(command, **options)
    except subprocess.TimeoutExpired:
        raise _FailedError(f"not finished after {setup.timeout:g} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        if lines and lines[-1].startswith("ModuleNotFoundError"):
            raise _SkippedError(lines[-1])
        raise _FailedError("\n".join(lines[-5:]) or f"exit status {done.returncode}")


@cache
def read_commit() -> str:
    """Return the commit of this repository, with "-dirty" after changes; "unknown" outside of git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def describe_machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
