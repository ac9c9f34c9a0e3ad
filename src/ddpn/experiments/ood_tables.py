"""Tables of how well finished runs detect out-of-distribution rows (Section 4.4)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import UniformMixture
from ddpn.errors import InputError
from ddpn.experiments.experiment import Experiment
from ddpn.experiments.finished import FinishedRun
from ddpn.experiments.formats import Cell, Table, ranked
from ddpn.experiments.published import reference
from ddpn.metrics import Detection, detection, matched, ood_score

#: The paper's score, and the part of it that members disagree about.
TOTAL = "variance"
KINDS = {TOTAL: "total variance", "epistemic": "epistemic variance"}
COLUMNS = ("AUROC", "AUPR", "FPR80")
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class ScoredRun:
    """A finished run with its OOD scores by kind and the lengths of texts, each for test rows and for OOD rows."""

    run: FinishedRun
    scores: dict[str, Pair]
    lengths: Pair | None

    def with_equal_lengths(self) -> "ScoredRun":
        """Subsets of both kinds of rows with the same lengths."""
        assert self.lengths is not None
        rows = matched(*self.lengths)
        scores = {kind: _subsets(pair, rows) for kind, pair in self.scores.items()}
        return replace(self, scores=scores, lengths=_subsets(self.lengths, rows))


def _subsets(pair: Pair, rows: Pair) -> Pair:
    return pair[0][rows[0]], pair[1][rows[1]]


def scored(runs: Iterable[FinishedRun]) -> list[ScoredRun]:
    """The OOD scores of finished runs."""
    found = []
    for run in runs:
        tensors = run.predictions()
        if "ood" not in tensors:
            raise InputError(f"No predictions of OOD rows in {run.folder}. Delete it and run it again.")
        mixtures = [UniformMixture(run.distribution(tensors[name])) for name in ("raw", "ood")]
        kinds = KINDS if tensors["raw"].shape[1] > 1 else (TOTAL,)
        scores: Any = {kind: tuple(ood_score(mixture, kind) for mixture in mixtures) for kind in kinds}
        lengths = (tensors["length"], tensors["ood_length"]) if "ood_length" in tensors else None
        found.append(ScoredRun(run, scores, lengths))
    return found


def detection_tables(experiment: Experiment, finished: Iterable[FinishedRun]) -> dict[str, Table]:
    """By total variance (all rows, then the paper's variant), by other scores, and for texts of equal length."""
    runs, title = scored(finished), f"Detecting {experiment.ood} among {experiment.title.lower()}"
    tables = {
        "table_ood": _by_variance(f"{title}: total variance", runs),
        "table_ood_paper": _by_variance(f"{title}: total variance, the paper's rows and areas", runs, as_paper=True),
    }
    # A single network has no epistemic variance.
    if all(len(run.scores) > 1 for run in runs):
        tables["table_ood_kinds"] = _by_kind(f"{title}: by score", runs)
    if all(run.lengths is not None for run in runs):
        try:
            tables["table_ood_matched"] = _by_length(f"{title}: what the length of a text explains", runs)
        except InputError as error:
            first = tables["table_ood"]
            tables["table_ood"] = first._replace(notes=(*first.notes, f"No table for texts of equal length: {error}"))
    return tables


def _detection(scores: Pair, as_paper: bool = False) -> Detection:
    if not as_paper:
        return detection(*scores)
    return detection(*scores, complement="paper", thresholds="alphas", alphas=torch.linspace(1e-3, 1.0, 100))


def _cells(found: Detection, columns: Sequence[str] = COLUMNS, method: str = "") -> list[Cell]:
    paper = {(name, metric): value for (_, name, metric), value in reference("ood_detection").items()}
    metrics = [column.lower() for column in columns]
    spreads = [getattr(found, metric) for metric in metrics]
    return [Cell(s.mean, s.std, paper.get((method, metric))) for s, metric in zip(spreads, metrics, strict=True)]


def _by_variance(title: str, runs: Sequence[ScoredRun], as_paper: bool = False) -> Table:
    found = {each.run: _detection(each.scores[TOTAL], as_paper) for each in runs}
    rows = {run.label: _cells(one, method=run.run.method.name) for run, one in found.items()}
    kept = "which give the thresholds" if as_paper else "which are not evaluated"
    notes = [f"Mean (standard deviation) over ten random hold-outs of 20% of the test rows, {kept}."]
    # Precision depends on these numbers.
    sizes = dict.fromkeys((one.n_in, one.n_out) for one in found.values())
    notes += [f"{test:,} test rows and {ood:,} OOD rows are evaluated." for test, ood in sizes]
    return Table(title, COLUMNS, ranked(rows, low=(2,), high=(0, 1)), tuple(notes))


_SHORT = ("AUROC", "FPR80")


def _two_by_two(title: str, names: Iterable[str], rows: dict[str, list[Cell]], notes: tuple[str, ...]) -> Table:
    columns = tuple(f"{name}{column}" for name in names for column in _SHORT)
    return Table(title, columns, ranked(rows, low=(1, 3), high=(0, 2)), notes)


def _by_kind(title: str, runs: Sequence[ScoredRun]) -> Table:
    rows = {
        each.run.label: [cell for kind in KINDS for cell in _cells(_detection(each.scores[kind]), _SHORT)]
        for each in runs
    }
    return _two_by_two(title, [f"{name}, " for name in KINDS.values()], rows, ())


def _by_length(title: str, runs: Sequence[ScoredRun]) -> Table:
    pairs = [(each, each.with_equal_lengths()) for each in runs]
    rows = {
        every.run.label: [cell for one in (every, equal) for cell in _cells(_detection(one.scores[TOTAL]), _SHORT)]
        for every, equal in pairs
    }
    lengths = [one.lengths for one in pairs[0] if one.lengths is not None]
    notes = (
        f"With equal lengths: {len(lengths[1][0]):,} rows of each kind, equally many of every length.",
        "The last row uses nothing but the length: shorter texts count as OOD.",
    )
    table = _two_by_two(title, ["", "equal lengths: "], rows, notes)
    # A baseline without a rank.
    alone = [_detection((-test.double(), -ood.double())) for test, ood in lengths]
    table.rows["number of tokens alone, few"] = [cell for found in alone for cell in _cells(found, _SHORT)]
    return table
