"""Read the rows of a job, time a fit and a prediction, and write the prediction, for every adapter.

A job is a JSON file with `table` (path without suffix), `fit` and `test` (a .npy file of row numbers each), `seed`,
`threads`, `options` and `out` (a folder). The adapter writes OUT/prediction.npz and OUT/times.json.
"""

import csv
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

import numpy as np

#: A prediction is timed on test rows that are repeated up to so many, unless that would take longer than this.
TIMED_ROWS, TIMED_SECONDS = 10_000, 60.0


@dataclass(frozen=True)
class Columns:
    """Some rows of a table: numbers with NaN, and categories as codes into their levels, -1 where missing."""

    names: list[str]
    levels: list[list[str] | None]
    values: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.values[0])

    def rows(self, index: np.ndarray) -> "Columns":
        return Columns(self.names, self.levels, [values[index] for values in self.values])

    @property
    def is_category(self) -> list[bool]:
        return [levels is not None for levels in self.levels]

    def codes(self) -> np.ndarray:
        """Return numbers unchanged, and categories as codes that are NaN where missing."""
        parts = zip(self.values, self.is_category, strict=True)
        return np.column_stack([np.where(v < 0, np.nan, v) if category else v for v, category in parts])

    def decode_levels(self) -> np.ndarray:
        """Return numbers, and categories as text with None where missing; floats alone if there is no category."""
        if not any(self.is_category):
            return self.codes()
        cells = np.empty((len(self), len(self.values)), dtype=object)
        for j, (levels, values) in enumerate(zip(self.levels, self.values, strict=True)):
            cells[:, j] = values if levels is None else [levels[int(v)] if v >= 0 else None for v in values]
        return cells


class Design:
    """A complete matrix for models that need one, learned from the rows to fit.

    A categorical column gets an indicator per level that has at least `at_least` rows, except for the most frequent
    level. Missing values and rarer levels count as the most frequent level. Missing numbers become the median, with an
    indicator. Constant columns are left out. With `standard`, the other columns are standardised.
    """

    def __init__(self, columns: Columns, at_least: int = 10, standard: bool = True) -> None:
        self.medians = [np.nan_to_num(np.nanmedian(v)) if np.isfinite(v).any() else 0.0 for v in columns.values]
        self.kept: list[list[int]] = []
        for category, values in zip(columns.is_category, columns.values, strict=True):
            frequencies = np.bincount(values[values >= 0].astype(int)) if category else np.empty(0)
            base = int(frequencies.argmax()) if len(frequencies) else -1
            self.kept.append(
                [code for code in range(len(frequencies)) if frequencies[code] >= at_least and code != base]
            )
        matrix = self._matrix(columns)
        self.varies = matrix.std(0) > 1e-12
        self.mean = matrix.mean(0) if standard else np.zeros(matrix.shape[1])
        self.scale = np.where(self.varies, matrix.std(0), 1.0) if standard else np.ones(matrix.shape[1])

    def _matrix(self, columns: Columns) -> np.ndarray:
        parts = []
        for j, values in enumerate(columns.values):
            if columns.levels[j] is None:
                missing = np.isnan(values)
                parts += [np.where(missing, self.medians[j], values), missing.astype(float)]
            else:
                parts += [(values == code).astype(float) for code in self.kept[j]]
        return np.column_stack(parts)

    def __call__(self, columns: Columns) -> np.ndarray:
        return ((self._matrix(columns) - self.mean) / self.scale)[:, self.varies]


def read_table(path: Path) -> tuple[Columns, np.ndarray]:
    """Read the columns and the counts of a prepared table."""
    facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["columns"]
    with path.with_suffix(".csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    counts, *cells = zip(*rows, strict=True)
    values = []
    for column, cell in zip(facts, cells, strict=True):
        if column["kind"] == "category":
            code = {level: k for k, level in enumerate(column["levels"])} | {"": -1}
            values.append(np.array([code[text] for text in cell], dtype=float))
        else:
            values.append(np.array([float(text) if text else np.nan for text in cell]))
    names, levels = [column["name"] for column in facts], [column.get("levels") for column in facts]
    return Columns(names, levels, values), np.array(counts, dtype=float)


def read_cpu_seconds() -> float:
    """Return the user and system time of this process and of the children that it has waited for."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in usages)


@dataclass(frozen=True)
class Job:
    """One fit: the rows to fit and to predict, and where the results go."""

    train: Columns
    counts: np.ndarray
    test: Columns
    test_counts: np.ndarray
    seed: int
    threads: int
    options: dict[str, Any]
    out: Path

    @classmethod
    def read(cls, path: Path) -> "Job":
        job = json.loads(path.read_text(encoding="utf-8"))
        columns, counts = read_table(Path(job["table"]))
        fit, test = np.load(job["fit"]), np.load(job["test"])
        parts = (columns.rows(fit), counts[fit], columns.rows(test), counts[test])
        return cls(*parts, job["seed"], job["threads"], job["options"], Path(job["out"]))


#: A fit takes a job and returns a function from columns to a prediction, which is a dictionary of arrays:
#: `family` with parameters as (rows,) or (rows, components), or `levels` with `quantiles` (rows, levels).
Fit = Callable[[Job], Callable[[Columns], dict[str, Any]]]


def main(fit: Fit, packages: tuple[str, ...] = ()) -> None:
    """Run the job that the command line names."""
    job = Job.read(Path(sys.argv[1]))
    prediction, times = time_fit(fit, job)
    np.savez(job.out / "prediction.npz", **prediction)
    write_times(job, times, packages)


def time_fit(fit: Callable[[Job], Callable[[Columns], Any]], job: Job) -> tuple[Any, dict[str, float]]:
    """Fit and predict the test rows; return the prediction and the times of both."""
    start, cpu = time.perf_counter(), read_cpu_seconds()
    predict = fit(job)
    times = {"fit_seconds": time.perf_counter() - start, "fit_cpu_seconds": read_cpu_seconds() - cpu}
    prediction, used = _time_prediction(predict, job.test)
    if len(job.test) < TIMED_ROWS and used["predict_seconds_100k"] * TIMED_ROWS / 1e5 < TIMED_SECONDS:
        _, used = _time_prediction(predict, job.test.rows(np.arange(TIMED_ROWS) % len(job.test)))
    return prediction, times | used


def _time_prediction(predict: Callable[[Columns], Any], columns: Columns) -> tuple[Any, dict[str, float]]:
    """Return a prediction, and its seconds per 100,000 rows."""
    start, cpu = time.perf_counter(), read_cpu_seconds()
    prediction = predict(columns)
    used = {"predict_seconds_100k": time.perf_counter() - start, "predict_cpu_seconds_100k": read_cpu_seconds() - cpu}
    return prediction, {key: value * 1e5 / len(columns) for key, value in used.items()}


def write_times(job: Job, times: dict[str, float], packages: tuple[str, ...]) -> None:
    versions = {name: find_version(name) for name in packages}
    facts = {**times, "process_cpu_seconds": read_cpu_seconds(), "versions": versions}
    (job.out / "times.json").write_text(json.dumps(facts), encoding="utf-8")


def find_version(package: str) -> str:
    """Return the installed version of a package, even if its distribution has another name, such as xgboost-cpu."""
    try:
        return version(package)
    except PackageNotFoundError:
        return version(packages_distributions()[package][0])


def hold_out_rows(rows: int, seed: int, share: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Split row numbers into rows to fit and rows for early stopping, for models that hold out none themselves."""
    order = np.random.default_rng(seed).permutation(rows)
    return order[int(share * rows) :], order[: int(share * rows)]


def make_levels(number: int) -> np.ndarray:
    """Return `number` evenly spread quantile levels: 0.5/m, 1.5/m, ..."""
    return (np.arange(number) + 0.5) / number
