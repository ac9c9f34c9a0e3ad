"""The numbers that the paper prints."""

import csv
from importlib.resources import files

_FOLDER = "reference"


def tables() -> list[str]:
    """The names of the tables."""
    return sorted(entry.name.removesuffix(".csv") for entry in (files(__package__) / _FOLDER).iterdir())


def datasets(table: str) -> list[str]:
    """The data sets of a table; empty if it is about a single one."""
    return list(dict.fromkeys(row["dataset"] for row in _rows(table) if "dataset" in row))


def _rows(table: str) -> list[dict[str, str]]:
    text = (files(__package__) / _FOLDER / f"{table}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def reference(table: str, dataset: str | None = None) -> dict[tuple[str, str, str], float]:
    """The paper's numbers by (kind, method, metric); the kind is "" in a table without kinds."""
    rows = [row for row in _rows(table) if row.get("dataset", dataset) == dataset]
    return {(row.get("kind", ""), row["method"], row["metric"]): float(row["mean"]) for row in rows}
