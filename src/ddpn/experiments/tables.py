"""Tables of finished runs as Markdown, CSV and LaTeX, with the paper's numbers beside ours. Trains nothing."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddpn.experiments.experiment import Experiment
from ddpn.experiments.finished import FinishedRun, finished_runs
from ddpn.experiments.formats import FORMATS, Cell, Table, ranked
from ddpn.experiments.ood_tables import detection_tables
from ddpn.experiments.published import reference
from ddpn.files import write_text

PROTOCOLS = {
    "paper": "Absolute error of the mode (counts) or mean (Gaussians); an ensemble of Gaussians as one Normal.",
    "ours": "Absolute error of the median, scores of the exact mixture, for every method.",
}
METRICS = {"mae": "MAE", "crps": "CRPS", "median_precision": "MP"}
#: The optimiser of a GLM has converged if the gradient is at most this long.
_AT_MAXIMUM = 1e-6


def accuracy(experiment: Experiment, runs: Sequence[FinishedRun], protocol: str) -> Table:
    """MAE, CRPS and median precision of single members (mean and standard deviation) and of the ensemble."""
    paper = _paper_numbers(experiment) if protocol == "paper" else {}
    columns = tuple(f"{kind} {METRICS[metric]}" for kind in ("single", "ensemble") for metric in METRICS)
    rows: dict[str, list[Cell]] = {}
    for result in (run.result for run in runs):
        rows[_label(result)] = _cells(result, protocol, paper)
        if protocol == "ours" and "rounded" in result["scores"]:
            rows[f"{_label(result)}, rounded to counts"] = _cells(result, "rounded", {})
    marked = ranked(rows, low=[i for i, name in enumerate(columns) if "MP" not in name])
    return Table(f"{experiment.title} ({protocol} protocol)", columns, marked, _notes(experiment, runs, protocol))


def _paper_numbers(experiment: Experiment) -> dict[tuple[str, str, str], float]:
    if experiment.reference is None:
        return {}
    dataset = experiment.reference["dataset"]
    found = reference(experiment.reference["table"], dataset) | reference("median_precision", dataset)
    return found | (reference(f"glm_{dataset}") if dataset == "length_of_stay" else {})


def _label(result: Mapping[str, Any]) -> str:
    shown = {name: value if isinstance(value, str) else f"{value:g}" for name, value in result["point"].items()}
    return ", ".join([result["label"], *(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())])


def _cells(result: Mapping[str, Any], protocol: str, paper: dict[tuple[str, str, str], float]) -> list[Cell]:
    cells = []
    for kind in ("single", "ensemble"):
        for metric in METRICS:
            values = result["scores"][protocol][kind][metric]
            spread = statistics.stdev(values) if kind == "single" and len(values) > 1 else None
            cells.append(Cell(statistics.fmean(values), spread, paper.get((kind, result["method"], metric))))
    return cells


def simulation(experiment: Experiment, runs: Sequence[FinishedRun]) -> Table:
    """CRPS of the ensembles and of the true distribution, and the error of their variance."""
    columns = ("ensemble CRPS", "gap to the truth", "relative error of aleatoric variance", "median epistemic variance")
    rows, best = {}, 0.0
    for result in (run.result for run in runs):
        truth, (crps,) = result["scores"]["truth"], result["scores"]["ours"]["ensemble"]["crps"]
        best = truth["crps"]
        values = [crps, *(truth[key] for key in ("crps_gap", "aleatoric_relative_error", "epistemic"))]
        rows[_label(result)] = [Cell(value) for value in values]
    notes = (f"CRPS of the true distribution: {best:.4f}.", *_notes(experiment, runs, "ours"))
    return Table(experiment.title, columns, ranked(rows, low=(0, 2)), notes)


def _notes(experiment: Experiment, runs: Sequence[FinishedRun], protocol: str) -> tuple[str, ...]:
    done = [run.result for run in runs]
    lines = [PROTOCOLS[protocol]]
    # One of each, except for results collected from two machines or from two versions of a file.
    lines += dict.fromkeys(f"{r['note'][:1].upper()}{r['note'][1:]}." for r in done if r["note"])
    lines += dict.fromkeys(f"{r['rows']['train']} training and {r['rows']['test']} test rows." for r in done)
    lines.append(f"Computed on {' and '.join(dict.fromkeys(r['machine']['device'] for r in done))}.")
    if len({tuple(r.get("identity", ())) for r in done}) > 1:
        lines.append("The rows of this table were computed from different data: run the experiment again.")
    for result in done:
        if result["history"].get("gradient_norm", 0.0) > _AT_MAXIMUM:
            lines.append(f"{_label(result)}: the optimiser stopped before it reached the maximum.")
    if missing := len(experiment.runs()) - len(done):
        lines.append(f"{missing} of {len(experiment.runs())} runs are not finished and not shown.")
    return tuple(lines)


def write_tables(experiment: Experiment, out: Path) -> list[Path]:
    """Write all tables of an experiment in three formats each, beside its runs."""
    runs = finished_runs(experiment, out)
    tables = {f"table_{protocol}": accuracy(experiment, runs, protocol) for protocol in PROTOCOLS}
    if experiment.simulation is not None:
        tables["table_simulation"] = simulation(experiment, runs)
    if experiment.ood is not None:
        tables |= detection_tables(experiment, runs)
    written = []
    for name, table in tables.items():
        for ending, form in FORMATS.items():
            written.append(out / experiment.name / f"{name}.{ending}")
            write_text(written[-1], form(table))
    return written
