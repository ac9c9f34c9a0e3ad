"""The study of out-of-distribution (OOD) detection in Section 4.4 and Appendix B.2, over resampled hold-outs.

The paper's own table has two peculiarities. Its script indexes with ~ on row numbers, so instead of the rows that were
not held out it evaluates row -1 - i, counted from the end, for each held-out row i: these are only as many as the
hold-out and partly held out themselves, so precision, and with it AUPR, comes out too high. And its areas are those of
100 points at thresholds from the held-out rows, joined by straight lines, with nothing before the first and after the
last. `detection(..., as_paper=True)` does both.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.metrics.ood import aupr, auroc, checked_scores, fpr80
from ddpn.runtime.errors import InputError

#: The share of the test rows that is held out, and how many times that is repeated.
HELD_OUT, RESAMPLINGS = 0.2, 10
#: Expected false positive rates at which the paper's script takes thresholds.
ALPHAS = np.linspace(1e-3, 1.0, 100)
#: Bins of pooled quantiles within which `matched` matches both sides.
BINS = 200


class Spread(NamedTuple):
    """Mean and standard deviation over the resamplings (n - 1 in the divisor)."""

    mean: float
    std: float


class Detection(NamedTuple):
    """How well scores detect OOD inputs, over resamplings of the hold-out.

    Attributes
    ----------
    auroc, aupr, fpr80 : Spread
        Mean and standard deviation (`mean`, `std`) over the resamplings.
    n_in, n_out : int
        Inputs that were scored in each resampling.
    """

    auroc: Spread
    aupr: Spread
    fpr80: Spread
    n_in: int
    n_out: int

    def __str__(self) -> str:
        """AUROC, AUPR and FPR80 as the paper prints them: mean (std)."""
        shown = (("AUROC", self.auroc), ("AUPR", self.aupr), ("FPR80", self.fpr80))
        return ", ".join(f"{name} {found.mean:.3f} ({found.std:.3f})" for name, found in shown)


def detection(score_in: Any, score_out: Any, *, as_paper: bool = False) -> Detection:
    """Evaluate a score that should be higher for OOD inputs, as in Section 4.4 of the paper.

    A fifth of the in-distribution scores is held out; all OOD scores and the other in-distribution scores are
    evaluated. That is repeated ten times, each with a new random hold-out.

    Parameters
    ----------
    score_in, score_out : array-like
        Scores of in-distribution and of OOD inputs.
    as_paper : bool
        False: AUROC, AUPR and FPR80 over every threshold that changes a decision, as by `auroc`, `aupr` and `fpr80`.
        True: the in-distribution rows and the thresholds of the paper's script, areas under straight lines, and the
        false positive rate of the point whose true positive rate is next to 0.8.

    Examples
    --------
    >>> found = detection(torch.arange(100.0), torch.arange(60.0, 140.0))
    >>> print(found)
    AUROC 0.900 (0.012), AUPR 0.903 (0.009), FPR80 0.246 (0.033)
    """
    inside, outside = checked_scores(score_in=score_in, score_out=score_out)
    held, random = int(HELD_OUT * len(inside)), torch.Generator().manual_seed(0)
    if not held:
        raise InputError(argument="score_in", must="have at least 5 scores", got=str(len(inside)))
    areas = []
    for _ in range(RESAMPLINGS):
        order = torch.randperm(len(inside), generator=random).numpy()
        rows, kept = order[:held], inside[order[held:]]
        if as_paper:
            kept = inside[-1 - rows]
            areas.append(_joined(_quantiles(inside[rows], 1.0 - ALPHAS), kept, outside))
        else:
            areas.append((auroc(kept, outside), aupr(kept, outside), fpr80(kept, outside)))
    first, second, third = (Spread(float(each.mean()), float(each.std(ddof=1))) for each in np.array(areas).T)
    return Detection(first, second, third, len(kept), len(outside))


def _joined(thresholds: np.ndarray, inside: np.ndarray, outside: np.ndarray) -> tuple[float, float, float]:
    """AUROC, AUPR and FPR80 of points at thresholds, joined by straight lines."""
    hits, alarms = (len(side) - np.searchsorted(np.sort(side), thresholds, "right") for side in (outside, inside))
    tpr, fpr = hits / len(outside), alarms / len(inside)
    precision = np.where(hits + alarms > 0, hits / np.maximum(hits + alarms, 1), 1.0)
    return float(np.trapezoid(tpr, fpr)), float(np.trapezoid(precision, tpr)), float(fpr[np.abs(tpr - 0.8).argmin()])


def _quantiles(scores: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles, linear between scores; next to an infinite score the higher of the two, which flags less."""
    with np.errstate(invalid="ignore"):
        found = np.quantile(scores, levels)
    return np.where(np.isnan(found), np.quantile(scores, levels, method="higher"), found)


def matched(length_in: Any, length_out: Any) -> tuple[Tensor, Tensor]:
    """Choose rows of both sides with nearly the same distribution of a nuisance variable, such as the length of a text.

    Where OOD inputs are shorter than in-distribution ones, a score may detect them by their length alone. In each bin
    between quantiles of both sides together, equally many rows of either side are drawn at random, as many as the rarer
    side has there.

    Parameters
    ----------
    length_in, length_out : array-like
        The nuisance variable of in-distribution and of OOD inputs.

    Returns
    -------
    rows_in, rows_out : Tensor of int, shape (rows,)
        Row numbers, ascending; equally many on both sides.

    Examples
    --------
    >>> rows_in, rows_out = matched([5, 5, 5, 9, 9, 30], [5, 9, 9, 9, 80])
    >>> len(rows_in), len(rows_out), rows_out[-1].item()
    (3, 3, 3)
    """
    random = torch.Generator().manual_seed(0)
    sides = checked_scores(length_in=length_in, length_out=length_out)
    edges = np.unique(_quantiles(np.concatenate(sides), np.arange(1, BINS) / BINS))
    pairs = zip(*(_shuffled_by_bin(np.searchsorted(edges, side), random) for side in sides), strict=True)
    rows = [np.concatenate(column) for column in zip(*((a[: len(b)], b[: len(a)]) for a, b in pairs), strict=True)]
    if not len(rows[0]):
        raise InputError("length_in and length_out must overlap, got no rows of similar length.")
    first, second = (torch.from_numpy(np.sort(side)) for side in rows)
    return first, second


def _shuffled_by_bin(places: np.ndarray, random: torch.Generator) -> list[np.ndarray]:
    """The rows of each bin, in random order."""
    order = torch.randperm(len(places), generator=random).numpy()
    order = order[np.argsort(places[order], kind="stable")]
    return np.split(order, np.cumsum(np.bincount(places, minlength=BINS))[:-1])
