"""Tables of finished runs: Markdown, CSV and LaTeX, with the paper's figure beside ours. Nothing is trained here."""

import csv
import io
import math
import statistics
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from ddpn.errors import InputError
from ddpn.experiments.experiment import Experiment
from ddpn.experiments.runner import folder_of, result_of, state_of
from ddpn.training.checkpoint import write_bytes

PROTOCOLS = ("paper", "ours")
METRICS = {"mae": "MAE", "crps": "CRPS", "median_precision": "MP"}
#: A GLM's search has ended at the maximum where its gradient is no longer.
_AT_MAXIMUM = 1e-6
_LATEX = {"\\": r"\textbackslash{}"} | {sign: f"\\{sign}" for sign in "&%$#_{}"}
_LATEX |= {"β": r"$\beta$", "γ": r"$\gamma$", "·": r"$\cdot$"}


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
    """What the runs of these settings that are finished wrote, in the experiment's order."""
    done = [folder for run in experiment.runs() if state_of(folder := folder_of(run, out), run) == "done"]
    if not done:
        raise InputError(f"{out / experiment.name} must hold finished runs, got none. Run the experiment first.")
    return [result for folder in done if (result := result_of(folder)) is not None]


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
        if (column not in ranked) if ranked is not None else "MP" in name:
            continue
        shown = {label: _shown(cells[column].value) for label, cells in rows.items() if _is_finite(cells[column].value)}
        places = sorted(set(shown.values()), key=float)
        for label, text in shown.items():
            if (place := places.index(text)) < 2:
                rows[label][column] = rows[label][column]._replace(rank=place + 1)
    return rows


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _notes(experiment: Experiment, out: Path, protocol: str) -> tuple[str, ...]:
    done = results(experiment, out)
    told = {
        "paper": "Absolute error of the mode (count laws) or mean (Gaussians); an ensemble of Gaussians as one Normal.",
        "ours": "Absolute error of the median, scores of the exact mixture, for every method.",
    }
    lines = [told[protocol]]
    # Normally one of each; results brought together from two machines or two versions of a file have more.
    lines += dict.fromkeys(f"{r['note'][:1].upper()}{r['note'][1:]}." for r in done if r["note"])
    lines += dict.fromkeys(f"{r['rows']['train']} training and {r['rows']['test']} test rows." for r in done)
    lines.append(f"Computed on {' and '.join(dict.fromkeys(r['machine']['device'] for r in done))}.")
    if len({tuple(r.get("identity", ())) for r in done}) > 1:
        lines.append("Rows of this table were computed from different data: run the experiment again.")
    for result in done:
        if result["history"].get("gradient_norm", 0.0) > _AT_MAXIMUM:
            lines.append(f"{_label(result)}: the search for the maximum ended before it was reached.")
    if missing := len(experiment.runs()) - len(done):
        lines.append(f"{missing} of {len(experiment.runs())} runs are not finished and not shown.")
    return tuple(lines)


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"


def _text(cell: Cell, mark: str = "{}") -> str:
    """Ours, marked, and the paper's beside it, which takes no part in the ranking."""
    ours = _shown(cell.value) + (f" ({_shown(cell.spread)})" if cell.spread is not None else "")
    return mark.format(ours) + (f" · paper {_shown(cell.paper)}" if cell.paper is not None else "")


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
        lines.append(f"| {label} | " + " | ".join(_text(cell, marks[cell.rank]) for cell in cells) + " |")
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)]) + "\n"


def latex(table: TableOf) -> str:
    """A booktabs tabular."""
    marks = {1: r"\textbf{{{}}}", 2: r"\underline{{{}}}", None: "{}"}
    lines = [
        f"% {table.title}",
        r"\begin{tabular}{l" + "r" * len(table.columns) + "}",
        r"\toprule",
        " & ".join(["", *map(_escaped, table.columns)]) + r" \\",
        r"\midrule",
    ]
    for label, cells in table.rows.items():
        # Numbers hold nothing to escape but the dot before the paper's.
        shown = [_text(cell, marks[cell.rank]).replace("·", _LATEX["·"]) for cell in cells]
        lines.append(" & ".join([_escaped(label), *shown]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *(f"% {note}" for note in table.notes)]) + "\n"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def comma_separated(table: TableOf) -> str:
    """One line a figure: row, column, value, spread, paper, rank."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "column", "value", "spread", "paper", "rank"])
    for label, cells in table.rows.items():
        for column, cell in zip(table.columns, cells, strict=True):
            values = ["" if v is None else f"{v:.6g}" for v in (cell.value, cell.spread, cell.paper, cell.rank)]
            writer.writerow([label, column, *values])
    return text.getvalue()


def write_tables(experiment: Experiment, out: Path) -> list[Path]:
    """All tables of an experiment, each in three formats, beside its runs."""
    tables = {f"table_{protocol}": accuracy(experiment, out, protocol) for protocol in PROTOCOLS}
    if experiment.simulation is not None:
        tables["table_simulation"] = simulation(experiment, out)
    written = []
    for name, table in tables.items():
        for ending, form in (("md", markdown), ("tex", latex), ("csv", comma_separated)):
            path = out / experiment.name / f"{name}.{ending}"
            write_bytes(path, form(table).encode())
            written.append(path)
    return written
