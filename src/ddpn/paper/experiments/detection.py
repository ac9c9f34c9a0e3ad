"""The study of out-of-distribution (OOD) detection in Section 4.4 and Appendix B.2, over resampled hold-outs.

The paper's own table has two peculiarities, each available on request. Its script indexes with ~ on row numbers, so
instead of the rows that were not held out it evaluates row -1 - i, counted from the end, for each held-out row i
(`complement="paper"`): these are only as many as the hold-out and partly held out themselves, so precision, and with it
AUPR, comes out too high. And its areas are those of 100 points, joined by straight lines, with nothing before the first
and after the last (`thresholds="alphas"`):
`detection(..., complement="paper", thresholds="alphas", alphas=torch.linspace(1e-3, 1, 100))`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.metrics.ood import aupr, auroc, checked_scores, fpr80
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import check_choice, check_integer, check_number, is_number

#: Default expected false positive rates at which thresholds are taken.
ALPHAS = (0.001, *(percent / 100 for percent in range(1, 101)))
#: Bins of pooled quantiles within which `matched` matches both sides.
BINS = 200
#: Relative tolerance of shares: 0.29 * 100 is not 29 in floating point.
_ROUNDING = 1e-12


class Spread(NamedTuple):
    """Mean and standard deviation over the resamplings (n - 1 in the divisor; 0 for one)."""

    mean: float
    std: float


class Curve(NamedTuple):
    """Points to be joined by straight lines, x ascending."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True, eq=False)
class Detection:
    """How well scores detect OOD inputs, over resamplings of the hold-out.

    Attributes
    ----------
    auroc, aupr, fpr80 : Spread
        Mean and standard deviation (`mean`, `std`) over the resamplings.
    alpha : Tensor, shape (alphas,)
        Expected false positive rates.
    threshold : Tensor, shape (alphas,)
        tau_alpha, the threshold at each alpha, a mean over resamplings.
    tpr, fpr : Tensor, shape (alphas,)
        The share of OOD inputs above the threshold, and that of in-distribution inputs; means over resamplings.
    roc, pr : Curve
        (fpr, tpr) and (recall, precision) at every threshold, means over resamplings at equal thresholds. The area
        under `roc` is the mean AUROC, the steps of `pr` sum to the mean AUPR.
    n_in, n_out : int
        Inputs that were scored in each resampling.
    """

    auroc: Spread
    aupr: Spread
    fpr80: Spread
    alpha: Tensor
    threshold: Tensor
    tpr: Tensor
    fpr: Tensor
    roc: Curve
    pr: Curve
    n_in: int
    n_out: int

    def __str__(self) -> str:
        """AUROC, AUPR and FPR80 as the paper prints them: mean (std)."""
        shown = (("AUROC", self.auroc), ("AUPR", self.aupr), ("FPR80", self.fpr80))
        return ", ".join(f"{name} {found.mean:.3f} ({found.std:.3f})" for name, found in shown)


def detection(
    score_in: Any,
    score_out: Any,
    *,
    holdout: float = 0.2,
    resamplings: int = 10,
    seed: int = 0,
    alphas: Sequence[float] | Tensor = ALPHAS,
    complement: str = "right",
    thresholds: str = "all",
) -> Detection:
    """Evaluate a score that should be higher for OOD inputs, as in Section 4.4 of the paper.

    A share of the in-distribution scores is held out and gives the thresholds: tau_alpha is their quantile at level 1 -
    alpha, so that about alpha of in-distribution inputs score above it. All OOD scores and the other in-distribution
    scores are evaluated. As alpha runs from 0 to 1, tau_alpha traces the ROC and the precision-recall curve.

    Parameters
    ----------
    score_in, score_out : array-like
        Scores of in-distribution and of OOD inputs.
    holdout : float
        Share of the in-distribution scores that is held out.
    resamplings, seed : int
        How many times that is repeated, each with a new random hold-out, and the seed of these.
    alphas : sequence of float
        Expected false positive rates.
    complement : {"right", "paper"}
        "paper" evaluates the in-distribution rows that the paper's script does.
    thresholds : {"all", "alphas"}
        "all": AUROC, AUPR and FPR80 over every threshold that changes a decision, as by `auroc`, `aupr` and `fpr80`;
        the hold-out then matters only by the rows it leaves. "alphas": areas under straight lines between the points at
        `alphas`, and the false positive rate of the point whose true positive rate is next to 0.8.

    Examples
    --------
    >>> found = detection(torch.arange(100.0), torch.arange(60.0, 140.0))
    >>> print(found)
    AUROC 0.900 (0.012), AUPR 0.903 (0.009), FPR80 0.246 (0.033)
    """
    inside, outside = checked_scores(score_in=score_in, score_out=score_out)
    alpha = _checked_alphas(alphas)
    held = _held_out(holdout, len(inside))
    random = torch.Generator().manual_seed(check_integer("seed", seed))
    check_choice("complement", complement, ("right", "paper"))
    check_choice("thresholds", thresholds, ("all", "alphas"))
    trials = []
    for _ in range(check_integer("resamplings", resamplings, minimum=1)):
        order = torch.randperm(len(inside), generator=random).numpy()
        rows, others = order[:held], order[held:]
        kept = inside[others if complement == "right" else -1 - rows]
        trials.append(_trial(_quantiles(inside[rows], 1.0 - alpha), kept, outside, thresholds))
    areas, *curves = (np.array(column) for column in zip(*trials, strict=True))
    auc, average, at_80 = (Spread(float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else 0.0) for x in areas.T)
    threshold, tpr, fpr, *shares = (torch.from_numpy(values.mean(axis=0)) for values in curves)
    roc, pr = _curves(outside, *shares)
    sizes = len(kept), len(outside)
    return Detection(auc, average, at_80, torch.from_numpy(alpha), threshold, tpr, fpr, roc, pr, *sizes)


def _trial(tau: np.ndarray, inside: np.ndarray, outside: np.ndarray, thresholds: str) -> tuple[Any, ...]:
    """One resampling: (AUROC, AUPR, FPR80); values at the alphas; values at each distinct OOD score, descending."""
    hits, alarms = _above(outside, tau), _above(inside, tau)
    tpr, fpr = hits / len(outside), alarms / len(inside)
    if thresholds == "all":
        areas = auroc(inside, outside), aupr(inside, outside), fpr80(inside, outside)
    else:
        precision = np.where(hits + alarms > 0, hits / np.maximum(hits + alarms, 1), 1.0)
        near = fpr[np.abs(tpr - 0.8).argmin()]
        areas = _area(fpr, tpr), _area(tpr, precision), float(near)
    at = np.unique(outside)[::-1]
    above, from_there, caught = _above(inside, at), _above(inside, at, "left"), _above(outside, at, "left")
    shares = above / len(inside), from_there / len(inside), caught / (caught + from_there)
    return areas, tau, tpr, fpr, *shares


def _area(x: np.ndarray, y: np.ndarray) -> float:
    return torch.trapezoid(torch.from_numpy(y), torch.from_numpy(x)).item()


def _above(scores: np.ndarray, thresholds: np.ndarray, side: Any = "right") -> np.ndarray:
    """How many scores are above each threshold; with side="left" also those equal to it."""
    return len(scores) - np.searchsorted(np.sort(scores), thresholds, side)


def _curves(outside: np.ndarray, fpr_above: Tensor, fpr_from: Tensor, precision: Tensor) -> tuple[Curve, Curve]:
    """ROC and precision-recall curve at the distinct OOD scores, which are the same in every resampling."""
    none, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    tpr = torch.from_numpy(_above(outside, np.unique(outside)[::-1], "left") / len(outside))
    # In-distribution scores between two OOD scores move the curve to the right, those equal to one diagonally.
    fpr = torch.stack([fpr_above, fpr_from], 1).reshape(-1)
    rise = torch.stack([torch.cat([none, tpr[:-1]]), tpr], 1).reshape(-1)
    roc = Curve(torch.cat([none, fpr, one]), torch.cat([none, rise, one]))
    return roc, Curve(torch.cat([none, tpr]), torch.cat([precision[:1], precision]))


def _quantiles(scores: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles, linear between scores; next to an infinite score the higher of the two, which flags less."""
    with np.errstate(invalid="ignore"):
        found = np.quantile(scores, levels)
    return np.where(np.isnan(found), np.quantile(scores, levels, method="higher"), found)


def _checked_alphas(alphas: Any) -> np.ndarray:
    try:
        alpha = np.sort(np.asarray(alphas, dtype=np.float64).reshape(-1))
    except (TypeError, ValueError):
        raise ConfigError(f"alphas must be numbers in [0, 1], got {alphas!r:.40}.") from None
    if not len(alpha) or not ((alpha >= 0) & (alpha <= 1)).all():
        raise ConfigError(f"alphas must be numbers in [0, 1], got {alpha.tolist()!s:.40}.")
    return alpha


def _held_out(holdout: float, n: int) -> int:
    check_number("holdout", holdout, "a number between 0 and 1", is_number(holdout) and 0.0 < holdout < 1.0)
    held = int(holdout * n * (1 + _ROUNDING))
    if not 0 < held < n:
        raise InputError(f"score_in must have enough scores to hold out {holdout:g} of them and keep some, got {n}.")
    return held


def matched(length_in: Any, length_out: Any, seed: int = 0, bins: int = BINS) -> tuple[Tensor, Tensor]:
    """Choose rows of both sides with nearly the same distribution of a nuisance variable, such as the length of a text.

    Where OOD inputs are shorter than in-distribution ones, a score may detect them by their length alone. In each bin
    between quantiles of both sides together, equally many rows of either side are drawn at random, as many as the rarer
    side has there.

    Parameters
    ----------
    length_in, length_out : array-like
        The nuisance variable of in-distribution and of OOD inputs.
    seed : int
        Seed of the draws.
    bins : int
        Number of bins.

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
    bins = check_integer("bins", bins, minimum=1)
    random = torch.Generator().manual_seed(check_integer("seed", seed))
    sides = checked_scores(length_in=length_in, length_out=length_out)
    edges = np.unique(_quantiles(np.concatenate(sides), np.arange(1, bins) / bins))
    pairs = zip(*(_shuffled_by_bin(np.searchsorted(edges, side), bins, random) for side in sides), strict=True)
    rows = [np.concatenate(column) for column in zip(*((a[: len(b)], b[: len(a)]) for a, b in pairs), strict=True)]
    if not len(rows[0]):
        raise InputError("length_in and length_out must overlap, got no bin with rows of both. Use fewer bins.")
    first, second = (torch.from_numpy(np.sort(side)) for side in rows)
    return first, second


def _shuffled_by_bin(places: np.ndarray, bins: int, random: torch.Generator) -> list[np.ndarray]:
    """The rows of each bin, in random order."""
    order = torch.randperm(len(places), generator=random).numpy()
    order = order[np.argsort(places[order], kind="stable")]
    return np.split(order, np.cumsum(np.bincount(places, minlength=bins))[:-1])
