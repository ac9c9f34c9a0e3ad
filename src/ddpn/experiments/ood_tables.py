"""Tables of how well the predictions of finished runs tell rows of another kind (Section 4.4)."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ddpn.distributions import Mixture
from ddpn.errors import InputError
from ddpn.experiments.experiment import Experiment, Run
from ddpn.experiments.formats import Cell, TableOf, ranked
from ddpn.experiments.published import reference
from ddpn.experiments.runner import folder_of, predictions_of, state_of
from ddpn.metrics import Detection, detection, matched, ood_score

#: The paper's score, and others that a mixture has.
TOTAL = "variance"
KINDS = {"variance": "total variance", "epistemic": "epistemic variance"}
COLUMNS = ("AUROC", "AUPR", "FPR80")
#: Outside rows judged; precision depends on how many there are, so the number is in a note.
_LENGTH = "number of tokens alone, few"


class Scored(NamedTuple):
    """A finished run's scores by kind, of rows inside and outside, and how long each row's text is."""

    run: Run
    inside: dict[str, Tensor]
    outside: dict[str, Tensor]
    size: Tensor | None
    outside_size: Tensor | None


def scored(experiment: Experiment, out: Path) -> list[Scored]:
    """Every finished run that was shown rows outside."""
    found = []
    for run in experiment.runs():
        folder = folder_of(run, out)
        if state_of(folder, run) != "done":
            continue
        tensors = predictions_of(folder)
        if "outside" not in tensors:
            raise InputError(f"{folder} must hold predictions of rows outside, got none. Delete it and run it again.")
        laws = [Mixture(run.head(tensors[name].double())) for name in ("raw", "outside")]
        kinds = KINDS if tensors["raw"].shape[1] > 1 else (TOTAL,)
        inside, outside = ({kind: ood_score(law, kind) for kind in kinds} for law in laws)
        found.append(Scored(run, inside, outside, tensors.get("size"), tensors.get("outside_size")))
    return found


def detections(experiment: Experiment, out: Path) -> dict[str, TableOf]:
    """By total variance (the right rows, then the paper's), by other scores, and for texts of equal lengths."""
    runs = scored(experiment, out)
    paper = {(method, metric): value for (_, method, metric), value in reference("ood_detection").items()}
    title = f"Telling {experiment.outside} from {experiment.title.lower()}"
    tables = {
        "table_ood": _table(f"{title}: total variance", runs, paper),
        "table_ood_paper": _table(f"{title}: total variance, the paper's rows and areas", runs, paper, as_paper=True),
    }
    # A single network disagrees with nobody.
    if all(len(run.inside) > 1 for run in runs):
        tables["table_ood_kinds"] = _by_kind(title, runs)
    if all(run.size is not None for run in runs):
        try:
            tables["table_ood_matched"] = _with_equal_lengths(title, runs)
        except InputError as error:
            first = tables["table_ood"]
            tables["table_ood"] = first._replace(notes=(*first.notes, f"Nothing is told of equal lengths: {error}"))
    return tables


def _judged(inside: Tensor, outside: Tensor, as_paper: bool = False) -> Detection:
    if not as_paper:
        return detection(inside, outside)
    alphas = torch.linspace(1e-3, 1.0, 100)
    return detection(inside, outside, complement="paper", thresholds="alphas", alphas=alphas)


def _cells(found: Detection, paper: dict[tuple[str, str], float], method: str) -> list[Cell]:
    spreads = (found.auroc, found.aupr, found.fpr80)
    return [
        Cell(spread.mean, spread.std, paper.get((method, name.lower())))
        for name, spread in zip(COLUMNS, spreads, strict=True)
    ]


def _table(title: str, runs: list[Scored], paper: dict[tuple[str, str], float], as_paper: bool = False) -> TableOf:
    rows, found = {}, None
    for each in runs:
        found = _judged(each.inside[TOTAL], each.outside[TOTAL], as_paper)
        rows[each.run.method.label] = _cells(found, paper, each.run.method.name)
    kept = "which give the thresholds" if as_paper else "which are not judged"
    notes = [f"Mean (standard deviation) over ten random hold-outs of 20% of the test rows, {kept}."]
    if found is not None:
        notes.append(f"{found.n_in:,} rows inside and {found.n_out:,} outside are judged.")
    return TableOf(title, COLUMNS, ranked(rows, low=(2,), high=(0, 1)), tuple(notes))


def _by_kind(title: str, runs: list[Scored]) -> TableOf:
    columns = tuple(f"{name}, {column}" for name in KINDS.values() for column in ("AUROC", "FPR80"))
    rows = {}
    for each in runs:
        cells: list[Cell] = []
        for kind in KINDS:
            auroc, _, fpr80 = _cells(_judged(each.inside[kind], each.outside[kind]), {}, "")
            cells += [auroc, fpr80]
        rows[each.run.method.label] = cells
    return TableOf(f"{title}: by score", columns, ranked(rows, low=(1, 3), high=(0, 2)), ())


def _with_equal_lengths(title: str, runs: list[Scored]) -> TableOf:
    size, outside_size = runs[0].size, runs[0].outside_size
    assert size is not None
    assert outside_size is not None
    inside_rows, outside_rows = matched(size, outside_size)
    rows = {}
    for each in runs:
        inside, outside = each.inside[TOTAL], each.outside[TOTAL]
        every = _cells(_judged(inside, outside), {}, "")
        alike = _cells(_judged(inside[inside_rows], outside[outside_rows]), {}, "")
        rows[each.run.method.label] = [every[0], every[2], alike[0], alike[2]]
    alone = [_judged(-size.double(), -outside_size.double())]
    alone.append(_judged(-size[inside_rows].double(), -outside_size[outside_rows].double()))
    # A yardstick, not a method: it is not ranked.
    marked = ranked(rows, low=(1, 3), high=(0, 2))
    marked[_LENGTH] = [Cell(s.mean, s.std) for found in alone for s in (found.auroc, found.fpr80)]
    columns = ("AUROC", "FPR80", "equal lengths: AUROC", "equal lengths: FPR80")
    notes = (
        f"With equal lengths: {len(inside_rows):,} rows of each kind, as many of every length.",
        "The last row takes short texts for outside ones and looks at nothing else.",
    )
    return TableOf(f"{title}: what the length of a text explains", columns, marked, notes)
