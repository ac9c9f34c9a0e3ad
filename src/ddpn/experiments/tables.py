"""Tables of finished runs: Markdown, CSV and LaTeX, with the paper's figure beside ours. Nothing is trained here."""

import statistics
from pathlib import Path
from typing import Any

from ddpn.errors import InputError
from ddpn.experiments.experiment import Experiment
from ddpn.experiments.formats import FORMATS, Cell, TableOf, ranked
from ddpn.experiments.ood_tables import detections
from ddpn.experiments.published import reference
from ddpn.experiments.runner import folder_of, result_of, state_of
from ddpn.files import write_bytes

PROTOCOLS = ("paper", "ours")
METRICS = {"mae": "MAE", "crps": "CRPS", "median_precision": "MP"}
#: A GLM's search has ended at the maximum where its gradient is no longer.
_AT_MAXIMUM = 1e-6


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
    marked = ranked(rows, low=[i for i, name in enumerate(columns) if "MP" not in name])
    return TableOf(f"{experiment.title} ({protocol} protocol)", columns, marked, _notes(experiment, out, protocol))


def _label(result: dict[str, Any]) -> str:
    shown = {name: value if isinstance(value, str) else f"{value:g}" for name, value in result["point"].items()}
    point = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())
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
    return TableOf(experiment.title, columns, ranked(rows, low=(0, 2)), notes)


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


def write_tables(experiment: Experiment, out: Path) -> list[Path]:
    """All tables of an experiment, each in three formats, beside its runs."""
    tables = {f"table_{protocol}": accuracy(experiment, out, protocol) for protocol in PROTOCOLS}
    if experiment.simulation is not None:
        tables["table_simulation"] = simulation(experiment, out)
    if experiment.outside is not None:
        tables |= detections(experiment, out)
    written = []
    for name, table in tables.items():
        for ending, form in FORMATS.items():
            path = out / experiment.name / f"{name}.{ending}"
            write_bytes(path, form(table).encode())
            written.append(path)
    return written
