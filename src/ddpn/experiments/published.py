"""The numbers that the paper prints."""

import csv
from importlib.resources import files

from ddpn.validation import check_choice

_FOLDER = files(__package__) / "reference"


def reference(table: str, dataset: str | None = None) -> dict[tuple[str, str, str], float]:
    """The paper's numbers by (kind, method, metric); the kind is "" in a table without kinds.

    `dataset` is one of the data sets of the table, if it has several.
    """
    check_choice("table of the paper", table, sorted(entry.name.removesuffix(".csv") for entry in _FOLDER.iterdir()))
    rows = list(csv.DictReader((_FOLDER / f"{table}.csv").read_text(encoding="utf-8").splitlines()))
    if "dataset" in rows[0]:
        check_choice(f"dataset of the table {table}", dataset, dict.fromkeys(row["dataset"] for row in rows))
        rows = [row for row in rows if row["dataset"] == dataset]
    return {(row.get("kind", ""), row["method"], row["metric"]): float(row["mean"]) for row in rows}
