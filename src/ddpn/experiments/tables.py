"""Tables of finished runs: Markdown, CSV and LaTeX, with the paper's figure beside ours. Nothing is trained here."""

import csv
import statistics
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from ddpn.errors import InputError
from ddpn.experiments.runner import result_of
from ddpn.experiments.settings import Experiment

PROTOCOLS = ("paper", "ours")
METRICS = {"mae": "MAE", "crps": "CRPS", "median_precision": "MP"}
#: Metrics of which less is better; precision is told, not ranked.
_RANKED = ("mae", "crps", "crps_gap", "aleatoric_relative_error")


class Cell(NamedTuple):
    """A figure, its spread over members where it has one, and the paper's; `rank` is 1 for the best of its column."""

    value: float | None
    spread: float | None = None
    paper: float | None = None
    rank: int | None = None


class TableOf(NamedTuple):
    """Rows of cells under columns, with a sentence above and notes below."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, list[Cell]]
    notes: tuple[str, ...]


def reference(table: str, dataset: str | None = None) -> dict[tuple[str, str, str], float]:
    """The paper's figures by (kind, method, metric)."""
    text = (files(__package__) / "reference" / f"{table}.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {
        (r["kind"], r["method"], r["metric"]): float(r["mean"]) for r in rows if r.get("dataset", dataset) == dataset
    }


def _paper_figures(experiment: Experiment) -> dict[tuple[str, str, str], float]:
    if experiment.reference is None:
        return {}
    dataset = experiment.reference["dataset"]
    found = reference(experiment.reference["table"], dataset) | reference("median_precision", dataset)
    return found | (reference(f"glm_{dataset}") if dataset == "length_of_stay" else {})


def results(experiment: Experiment, out: Path) -> list[dict[str, Any]]:
    """What the experiment's finished runs wrote, in its order."""
    found = [result_of(out / experiment.name / run.name) for run in experiment.runs()]
    done = [result for result in found if result is not None]
    if not done:
        raise InputError(f"{out / experiment.name} must hold finished runs, got none. Run the experiment first.")
    return done


def accuracy(experiment: Experiment, out: Path, protocol: str) -> TableOf:
    """MAE, CRPS and median precision, of single members (mean and spread) and of the ensemble."""
    paper = _paper_figures(experiment) if protocol == "paper" else {}
    columns = tuple(f"{kind} {METRICS[metric]}" for kind in ("single", "ensemble") for metric in METRICS)
    rows: dict[str, list[Cell]] = {}
    for result in results(experiment, out):
        rows[_label(result)] = _cells(result, protocol, paper)
        if protocol == "ours" and "rounded" in result["scores"]:
            rows[f"{_label(result)}, rounded to counts"] = _cells(result, "rounded", {})
    return TableOf(
        f"{experiment.title} ({protocol} protocol)", columns, _ranked(rows, columns), _notes(experiment, out, protocol)
    )


def _label(result: dict[str, Any]) -> str:
    point = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in result["point"].items())
    return f"{result['label']}, {point}" if point else result["label"]


def _cells(result: dict[str, Any], protocol: str, paper: dict[tuple[str, str, str], float]) -> list[Cell]:
    cells = []
    for kind in ("single", "ensemble"):
        for metric in METRICS:
            values = result["scores"][protocol][kind][metric]
            spread = statistics.stdev(values) if kind == "single" and len(values) > 1 else None
            cells.append(Cell(statistics.fmean(values), spread, paper.get((kind, result["method"], metric))))
    return cells


def simulation(experiment: Experiment, out: Path) -> TableOf:
    """CRPS of the ensembles against the true law's own, and how well they know its variance."""
    columns = ("ensemble CRPS", "gap to the truth", "relative error of aleatoric variance", "median epistemic variance")
    rows = {}
    best = 0.0
    for result in results(experiment, out):
        truth = result["scores"]["truth"]
        best = truth["crps"]
        keys = ("crps_gap", "aleatoric_relative_error", "epistemic")
        rows[_label(result)] = [Cell(statistics.fmean(result["scores"]["ours"]["ensemble"]["crps"]))] + [
            Cell(truth[key]) for key in keys
        ]
    notes = (f"The true law's own CRPS: {best:.4f}.", *_notes(experiment, out, "ours"))
    return TableOf(experiment.title, columns, _ranked(rows, columns, ranked=(0, 2)), notes)


def _ranked(
    rows: dict[str, list[Cell]], columns: Sequence[str], ranked: Sequence[int] | None = None
) -> dict[str, list[Cell]]:
    """With the best and the second best of each column marked, by what is shown."""
    for column, name in enumerate(columns):
        if column not in ranked if ranked is not None else "MP" in name:
            continue
        shown = sorted(
            {_shown(cells[column].value) for cells in rows.values() if cells[column].value is not None}, key=float
        )
        for cells in rows.values():
            if cells[column].value is not None and (place := shown.index(_shown(cells[column].value))) < 2:
                cells[column] = cells[column]._replace(rank=place + 1)
    return rows


def _notes(experiment: Experiment, out: Path, protocol: str) -> tuple[str, ...]:
    done = results(experiment, out)
    told = {
        "paper": "Absolute error of the mode (count laws) or mean (Gaussians); an ensemble of Gaussians as one Normal.",
        "ours": "Absolute error of the median, scores of the exact mixture, for every method.",
    }
    first = done[0]
    lines = [told[protocol], first["note"]]
    lines.append(
        f"{first['rows']['train']} training and {first['rows']['test']} test rows; {first['machine']['device']}."
    )
    return tuple(line for line in lines if line)


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"


def _text(cell: Cell) -> str:
    text = _shown(cell.value) + (f" ({_shown(cell.spread)})" if cell.spread is not None else "")
    return text + (f" · paper {_shown(cell.paper)}" if cell.paper is not None else "")


def markdown(table: TableOf) -> str:
    """Best in bold, second underlined."""
    marks = {1: "**{}**", 2: "<u>{}</u>", None: "{}"}
    lines = [
        f"**{table.title}**",
        "",
        "| | " + " | ".join(table.columns) + " |",
        "|---" * (len(table.columns) + 1) + "|",
    ]
    for label, cells in table.rows.items():
        lines.append(f"| {label} | " + " | ".join(marks[cell.rank].format(_text(cell)) for cell in cells) + " |")
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)]) + "\n"


def latex(table: TableOf) -> str:
    """A booktabs tabular."""
    marks = {1: r"\textbf{{{}}}", 2: r"\underline{{{}}}", None: "{}"}
    lines = [
        r"\begin{tabular}{l" + "r" * len(table.columns) + "}",
        r"\toprule",
        " & ".join(["", *table.columns]) + r" \\",
        r"\midrule",
    ]
    for label, cells in table.rows.items():
        shown = [marks[cell.rank].format(_text(cell).replace("·", r"\cdot".join(["$", "$"]))) for cell in cells]
        lines.append(" & ".join([label.replace("β", r"$\beta$"), *shown]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *(f"% {note}" for note in table.notes)]) + "\n"


def comma_separated(table: TableOf) -> str:
    """One line a figure: row, column, value, spread, paper, rank."""
    lines = ["row,column,value,spread,paper,rank"]
    for label, cells in table.rows.items():
        for column, cell in zip(table.columns, cells, strict=True):
            values = ("" if v is None else f"{v:.6g}" for v in (cell.value, cell.spread, cell.paper, cell.rank))
            lines.append(",".join([f'"{label}"', column, *values]))
    return "\n".join(lines) + "\n"


def write_tables(experiment: Experiment, out: Path) -> list[Path]:
    """All tables of an experiment, each in three formats, beside its runs."""
    tables = {f"table_{protocol}": accuracy(experiment, out, protocol) for protocol in PROTOCOLS}
    if experiment.simulation is not None:
        tables["table_simulation"] = simulation(experiment, out)
    written = []
    for name, table in tables.items():
        for ending, form in (("md", markdown), ("tex", latex), ("csv", comma_separated)):
            path = out / experiment.name / f"{name}.{ending}"
            path.write_text(form(table), encoding="utf-8")
            written.append(path)
    return written
