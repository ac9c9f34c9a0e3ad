"""The paper's own figures, as they are printed there."""

import csv
from importlib.resources import files


def reference(table: str, dataset: str | None = None) -> dict[tuple[str, str, str], float]:
    """The paper's figures by (kind, method, metric); the kind of a table without one is ""."""
    text = (files(__package__) / "reference" / f"{table}.csv").read_text(encoding="utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if row.get("dataset", dataset) == dataset]
    return {(row.get("kind", ""), row["method"], row["metric"]): float(row["mean"]) for row in rows}
