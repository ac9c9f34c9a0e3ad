"""Write tables of finished runs as Markdown, with the paper's numbers next to ours. Nothing is trained.

They show accuracy and calibration (Tables 2, 4 and 5 of the paper), simulations, and the detection of
out-of-distribution (OOD) rows (Section 4.4).
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ddpn.distributions import Mixture
from ddpn.metrics import ood_score
from ddpn.paper.datasets import SIMULATIONS
from ddpn.paper.experiments.catalogue import read_reference
from ddpn.paper.experiments.experiment import Experiment
from ddpn.paper.experiments.isolated_points import MAX_MU_ERROR, measure_isolated_point
from ddpn.paper.experiments.runs import FinishedRun, find_finished_runs, read_predictions
from ddpn.paper.experiments.scoring import evaluate_detection
from ddpn.runtime.errors import InputError
from ddpn.storage.contents import JsonObject
from ddpn.storage.files import write_text


class Cell(NamedTuple):
    """A number in a table of results, with the paper's number next to it.

    `value` is our number, and `spread` is the standard deviation of this number over networks, or None if there is only
    one. `paper` is the paper's number, or None. `rank` is 1 for the best number of a column, 2 for the second best, and
    None for the others.
    """

    value: float | None
    spread: float | None = None
    paper: float | None = None
    rank: int | None = None


class ResultTable(NamedTuple):
    """A table of results: a title, column names, and notes below the table.

    `rows` maps the label of each row to its cells, one per column.
    """

    title: str
    columns: tuple[str, ...]
    rows: dict[str, list[Cell]]
    notes: tuple[str, ...]


def mark_best(rows: dict[str, list[Cell]], low: Sequence[int], high: Sequence[int] = ()) -> dict[str, list[Cell]]:
    """Set the rank of the best and the second best number of some columns, in place; return `rows`.

    `rows` has a list of cells per row label. `low` and `high` are the positions of columns in which the lowest or the
    highest number is best. Numbers that are printed with the same digits share a rank. Numbers that are missing or
    infinite have no rank.
    """
    for column in (*low, *high):
        values = {label: cells[column].value for label, cells in rows.items()}
        texts = {
            label: _format_number(value)
            for label, value in values.items()
            if value is not None and math.isfinite(value)
        }
        distinct = sorted(set(texts.values()), key=float, reverse=column in high)
        for label, text in texts.items():
            if (rank := distinct.index(text)) < 2:
                rows[label][column] = rows[label][column]._replace(rank=rank + 1)
    return rows


def _format_number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"


def _format_cell(cell: Cell, mark: str = "{}") -> str:
    """Format a cell as text: our number, its spread, and the paper's number.

    `mark` is a template for our number, such as "**{}**" for bold.
    """
    ours = _format_number(cell.value) + (f" ({_format_number(cell.spread)})" if cell.spread is not None else "")
    return mark.format(ours) + (f" · paper {_format_number(cell.paper)}" if cell.paper is not None else "")


def format_table(table: ResultTable) -> str:
    """Format a table as Markdown, with the best numbers bold and the second best underlined."""
    marks = {1: "**{}**", 2: "<u>{}</u>", None: "{}"}
    lines = [f"**{table.title}**", ""]
    lines += ["| | " + " | ".join(table.columns) + " |", "|---" * (len(table.columns) + 1) + "|"]
    for label, cells in table.rows.items():
        lines.append(f"| {label} | " + " | ".join(_format_cell(cell, marks[cell.rank]) for cell in cells) + " |")
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)]) + "\n"


# Which numbers --------------------------------------------------------------------------------------------------------


PROTOCOLS = {
    "paper": "Absolute error of the mode (counts) or mean (Gaussians); an ensemble of Gaussians as one Normal.",
    "ours": "Absolute error of the median, scores of the exact mixture, for every method.",
}
METRICS = {"mae": "MAE", "crps": "CRPS", "median_precision": "MP"}
COLUMNS = ("AUROC", "AUPR", "AUPR by chance", "FPR80")
#: The AUPR by chance in Table 3 of the paper, where 36,694 verses are detected: by its script among as many test rows
#: as were held out, and correctly among the other 127,035. AUPRs can only be compared if chance is about the same.
_PAPER_CHANCE = {True: 36_694 / (36_694 + 31_758), False: 36_694 / (36_694 + 127_035)}
_SAME_CHANCE = 0.01
#: The names, in notes, of the validation scores that select epochs.
_SELECTIONS = {"loss": "validation loss, as in the paper", "crps": "validation CRPS", "nll": "validation NLL"}
#: The names of scoring rules in titles.
RULES = {"paper": "by the paper's rules", "ours": "by one rule for all methods"}


def tabulate_accuracy(experiment: Experiment, runs: Sequence[FinishedRun], protocol: str) -> ResultTable:
    """Make a table of MAE, CRPS and median precision of single networks and of the ensemble, with one row per run.

    The median precision is the median over the test rows of the precision, which is 1 / variance or, for a single
    Double Poisson in the protocol "paper", gamma / mu. For single networks, the mean and the standard deviation over
    networks are shown. `protocol` says how to score: "paper" or "ours", as `ddpn.paper.experiments.scoring` explains.

    In the protocol "paper", the paper's numbers are shown next to ours, if the experiment has a `reference`. In the
    protocol "ours", each run of Gaussians has a second row, with its predictions rounded to counts.
    """
    paper: dict[tuple[str, str, str], float] = {}
    if experiment.reference is not None and protocol == "paper":
        dataset = experiment.reference["dataset"]
        paper = read_reference(**experiment.reference) | read_reference("median_precision", dataset)
        paper |= read_reference(f"glm_{dataset}") if dataset == "length_of_stay" else {}
    columns = tuple(f"{kind} {METRICS[metric]}" for kind in ("single", "ensemble") for metric in METRICS)
    rows: dict[str, list[Cell]] = {}
    for result in (run.result for run in runs):
        rows[_label(result)] = _make_cells(result, protocol, paper)
        if protocol == "ours" and "rounded" in result["scores"]:
            rows[f"{_label(result)}, rounded to counts"] = _make_cells(result, "rounded", {})
    marked = mark_best(rows, low=[i for i, name in enumerate(columns) if "MP" not in name])
    return ResultTable(
        f"{experiment.title} ({RULES[protocol]})", columns, marked, _write_notes(experiment, runs, protocol)
    )


def _label(result: JsonObject) -> str:
    shown = {name: value if isinstance(value, str) else f"{value:g}" for name, value in result["point"].items()}
    return ", ".join([result["label"], *(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())])


def _make_cells(result: JsonObject, protocol: str, paper: dict[tuple[str, str, str], float]) -> list[Cell]:
    cells = []
    for kind in ("single", "ensemble"):
        for metric in METRICS:
            values = result["scores"][protocol][kind][metric]
            spread = statistics.stdev(values) if kind == "single" and len(values) > 1 else None
            cells.append(Cell(statistics.fmean(values), spread, paper.get((kind, result["method"], metric))))
    return cells


def tabulate_simulation(experiment: Experiment, runs: Sequence[FinishedRun]) -> ResultTable:
    """Make a table of the ensembles of a simulation, with one row per run.

    The columns are the CRPS, its excess over the CRPS of the true distribution, the median relative error of the
    aleatoric variance, and the median epistemic variance. Each ensemble of Gaussians has a second row, with its
    predictions rounded to counts.
    """
    columns = ("ensemble CRPS", "gap to the truth", "relative error of aleatoric variance", "median epistemic variance")
    rows, best = {}, 0.0
    for result in (run.result for run in runs):
        truth, (crps,) = result["scores"]["truth"], result["scores"]["ours"]["ensemble"]["crps"]
        best = truth["crps"]
        values = [crps, *(truth[key] for key in ("crps_gap", "aleatoric_relative_error", "epistemic"))]
        rows[_label(result)] = [Cell(value) for value in values]
        if "rounded" in result["scores"]:
            (crps,) = result["scores"]["rounded"]["ensemble"]["crps"]
            rows[f"{_label(result)}, rounded to counts"] = [Cell(crps), Cell(crps - best), Cell(None), Cell(None)]
    notes = (f"CRPS of the true distribution: {best:.4f}.", *_write_notes(experiment, runs, "ours"))
    return ResultTable(experiment.title, columns, mark_best(rows, low=(0, 2)), notes)


def tabulate_isolated_point(experiment: Experiment, runs: Sequence[FinishedRun]) -> ResultTable:
    """Make a table of how well networks fit an isolated training row, with one column per epoch.

    This row is the rightmost one of those that the simulation adds far from all other rows. For each run, the table
    shows the share of networks whose mu is within 2 counts of the row's count, and the median mu of all networks.
    """
    fits = [(_label(run.result), measure_isolated_point(run)) for run in runs]
    rows: dict[str, list[Cell]] = {}
    for label, fit in fits:
        rows[f"{label}: share of networks within {MAX_MU_ERROR:g}"] = [Cell(share) for share in fit.shares]
        rows[f"{label}: median μ"] = [Cell(float(np.median(mu))) for mu in fit.mu]
    columns = tuple(f"{epoch} epochs" for epoch in fits[0][1].epochs)
    point = fits[0][1]
    note = f"Networks within {MAX_MU_ERROR:g} of the truth, {point.truth:g}, at the isolated point x = {point.x:g}."
    size = f"{len(point.mu[-1])} networks per row, which differ in their initial weights and the order of the rows."
    return ResultTable(experiment.title, columns, rows, (note, size, *_write_notes(experiment, runs, "ours")[1:]))


def _write_notes(experiment: Experiment, runs: Sequence[FinishedRun], protocol: str) -> tuple[str, ...]:
    done = [run.result for run in runs]
    lines = [PROTOCOLS[protocol]]
    # Notes are usually equal. They differ if results come from two machines or two versions of a file.
    lines += dict.fromkeys(f"{r['note'][:1].upper()}{r['note'][1:]}." for r in done if r["note"])
    if any(r["rows"].get("validation") for r in done):
        lines.append(f"Each network has the epoch with the lowest {_SELECTIONS[experiment.training.score]}.")
    lines += dict.fromkeys(f"{r['rows']['train']} training and {r['rows']['test']} test rows." for r in done)
    lines.append(f"Computed on {' and '.join(dict.fromkeys(r['machine']['device'] for r in done))}.")
    if len({tuple(r.get("identity", ())) for r in done}) > 1:
        lines.append("The rows of this table were computed from different data: run the experiment again.")
    for result in done:
        if result["history"].get("gradient_norm", 0.0) > 1e-6:  # the tolerance of CountGLM
            lines.append(f"{_label(result)}: the optimiser stopped before it reached the maximum.")
    if missing := len(experiment.runs()) - len(done):
        lines.append(f"{missing} of {len(experiment.runs())} runs are not finished and not shown.")
    return tuple(lines)


class ScoredRun(NamedTuple):
    """A finished run, with the total variances that its ensemble predicts.

    `test_variances` and `ood_variances` have one value for each test row and for each out-of-distribution (OOD) row.
    The total variance is the score by which OOD rows are detected.
    """

    run: FinishedRun
    test_variances: Tensor
    ood_variances: Tensor


def score_ood_rows(runs: Iterable[FinishedRun]) -> list[ScoredRun]:
    """Compute the total variances that the ensembles of finished runs predict for the test rows and the OOD rows.

    OOD rows are out-of-distribution rows. If a run has no predictions for such rows, an `InputError` is raised.
    """
    scored_runs = []
    for run in runs:
        tensors = read_predictions(run.folder)
        if "ood" not in tensors:
            raise InputError(f"No predictions of OOD rows in {run.folder}. Delete it and run it again.")
        test, ood = (ood_score(Mixture(run.distribution(tensors[name])), "variance") for name in ("raw", "ood"))
        scored_runs.append(ScoredRun(run, test, ood))
    return scored_runs


def tabulate_detection(title: str, runs: Sequence[ScoredRun], as_paper: bool) -> ResultTable:
    """Make a table, titled `title`, of how well the total variance detects OOD rows, with one row per run.

    OOD rows are out-of-distribution rows.

    The columns are AUROC, AUPR, the AUPR of a random score ("by chance"), and FPR80, the false positive rate at a true
    positive rate of 0.8. The paper's numbers are shown next to ours.

    If `as_paper` is True, the rows and thresholds are those of the paper's script, which evaluates the wrong rows (see
    `evaluate_detection`). If it is False, all test rows that are not held out are evaluated, and the paper's numbers
    are recomputed in this way from the authors' variances.

    The paper's AUPR is shown only if our share of OOD rows is about that of the paper, because AUPR depends on this
    share.
    """
    paper = {(method, metric): value for (_, method, metric), value in read_reference("ood_detection").items()}
    if not as_paper:
        replayed = read_reference("ood_detection_replayed")
        paper |= {(method, metric): value for (_, method, metric), value in replayed.items()}
    rows, notes = {}, {}
    for scored_run in runs:
        areas = evaluate_detection(scored_run.test_variances, scored_run.ood_variances, as_paper=as_paper)
        auroc, aupr, fpr80 = (paper.get((scored_run.run.method.name, name)) for name in ("auroc", "aupr", "fpr80"))
        chance = areas.n_ood / (areas.n_in_distribution + areas.n_ood)
        is_same = abs(chance - _PAPER_CHANCE[as_paper]) < _SAME_CHANCE
        rows[scored_run.run.label] = [
            Cell(*areas.auroc, auroc),
            Cell(*areas.aupr, aupr if is_same else None),
            Cell(chance),
            Cell(*areas.fpr80, fpr80),
        ]
        notes[f"{areas.n_in_distribution:,} test rows and {areas.n_ood:,} OOD rows are evaluated."] = True
        if not is_same:
            paper_chance = f"by chance it is {_PAPER_CHANCE[as_paper]:.3f} for the paper's numbers of rows"
            notes[f"The paper's AUPR cannot be compared: {paper_chance}."] = True
    hold_out_note = "which give the thresholds" if as_paper else "which are not evaluated"
    first = f"Mean (standard deviation) over ten random hold-outs of 20% of the test rows, {hold_out_note}."
    return ResultTable(title, COLUMNS, mark_best(rows, low=(3,), high=(0, 1)), (first, *notes))


def _replace_score(experiment: Experiment, score: str) -> Experiment:
    """Return a copy of the experiment in which the best epochs are chosen by another validation score, such as "crps".

    Only the title and the notes of a table are made from this copy. GLMs that are fitted by maximum likelihood are left
    out, because they have no epochs.
    """
    methods = tuple(method for method in experiment.methods if not method.exact)
    title = f"{experiment.title}, epochs chosen by {score.upper()}"
    return replace(experiment, title=title, methods=methods).with_training(score=score)


def write_tables(experiment: Experiment, out: Path) -> list[Path]:
    """Write all tables of an experiment as Markdown to its folder inside `out`, and return the paths of the files.

    `out` is the folder of all results. The tables show the finished runs; if there are none, an `InputError` is raised.
    Existing files are replaced.
    """
    runs = find_finished_runs(experiment, out)
    tables = {f"table_{protocol}": tabulate_accuracy(experiment, runs, protocol) for protocol in PROTOCOLS}
    for score in (name for name in experiment.training.snapshots if isinstance(name, str)):
        if at_score := [run.with_snapshot(score) for run in runs if score in run.result.get("snapshots", {})]:
            view = _replace_score(experiment, score)
            tables |= {f"table_{rules}_{score}": tabulate_accuracy(view, at_score, rules) for rules in PROTOCOLS}
    if experiment.simulation is not None:
        if SIMULATIONS[experiment.simulation["name"]].added_points:
            tables["table_isolated"] = tabulate_isolated_point(experiment, runs)
        tables["table_simulation"] = tabulate_simulation(experiment, runs)
    if experiment.ood is not None:
        title, with_ood = (
            f"Detecting {experiment.ood} among {experiment.title.lower()}: total variance",
            score_ood_rows(runs),
        )
        tables["table_ood"] = tabulate_detection(title, with_ood, as_paper=False)
        tables["table_ood_paper"] = tabulate_detection(f"{title}, the paper's rows and areas", with_ood, as_paper=True)
    written = []
    for name, table in tables.items():
        written.append(out / experiment.name / f"{name}.md")
        write_text(written[-1], format_table(table))
    return written
