"""The paper's study of how well a score tells outside inputs (Section 4.4, Appendix B.2).

The paper's own table has two peculiarities, each on request. Its script indexes with ~ on row numbers, so of a held-out
row i it judges row -1 - i, counted from the end (`complement="paper"`): rows as few as the hold-out and partly held out
themselves, so precision, and with it AUPR, comes out too high. And its areas are those of 100 points, joined by
straight lines, with nothing before the first and after the last (`thresholds="alphas"`):
`detection(..., complement="paper", thresholds="alphas", alphas=torch.linspace(1e-3, 1, 100))`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.errors import ConfigError, InputError
from ddpn.metrics.ood import aupr, auroc, checked_scores, fpr80, quantiles
from ddpn.validation import is_integer, is_number

#: Expected false positive rates at which thresholds are taken unless others are asked for.
ALPHAS = (0.001, *(percent / 100 for percent in range(1, 101)))


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
    """How well scores told outside inputs, over resamplings of the hold-out.

    One row an alpha: `threshold` (tau_alpha), `tpr`, the share of outside inputs above it, and `fpr`, that of inside
    inputs, each a mean over resamplings. `roc` (fpr, tpr) and `pr` (recall, precision) have every threshold and are
    means over resamplings at equal thresholds; the area under `roc` is the mean AUROC, the steps of `pr` sum to the
    mean AUPR. `n_in` and `n_out` inputs were judged each time.
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
    """Judge a score that should be higher for outside inputs, as in Section 4.4 of the paper.

    A random share `holdout` of the inside scores gives the thresholds: tau_alpha is their (1 - alpha)-quantile, so that
    about alpha of inside inputs score above it. All outside scores and the inside scores that were not held out are
    judged. That is done `resamplings` times, each with a new hold-out.

    As alpha runs from 0 to 1, tau_alpha traces the ROC and the precision-recall curve. With `thresholds="all"` AUROC,
    AUPR (average precision) and FPR80 are those of the whole curves, of every threshold that changes a decision: the
    chance that an outside input scores above an inside one, and so on, as `auroc`, `aupr` and `fpr80` have them. The
    hold-out then moves them only by which rows are left to judge. With `thresholds="alphas"` they are the areas under
    straight lines between the points at `alphas`, and the false positive rate of the point whose true positive rate is
    next to 0.8. `complement="paper"` judges the inside rows that the paper's script does.

    >>> found = detection(torch.arange(100.0), torch.arange(60.0, 140.0))
    >>> print(found)
    AUROC 0.900 (0.012), AUPR 0.903 (0.009), FPR80 0.246 (0.033)
    """
    inside, outside = checked_scores(score_in=score_in, score_out=score_out)
    alpha = _checked_alphas(alphas)
    held = _held_out(holdout, len(inside))
    _check_choices(resamplings, seed, complement, thresholds)
    random = torch.Generator().manual_seed(int(seed))
    trials = []
    for _ in range(resamplings):
        order = torch.randperm(len(inside), generator=random).to(inside.device)
        rows, others = order[:held], order[held:]
        judged = inside[others if complement == "right" else -1 - rows]
        trials.append(_trial(quantiles(inside[rows], 1.0 - alpha), judged, outside, thresholds))
    return _summary(alpha, trials, len(judged), len(outside))


class _Trial(NamedTuple):
    """One resampling: AUROC, AUPR, FPR80; thresholds, tpr and fpr at the alphas; the whole curves."""

    areas: tuple[float, float, float]
    points: tuple[Tensor, Tensor, Tensor]
    roc: Curve
    pr: Curve


def _trial(tau: Tensor, inside: Tensor, outside: Tensor, thresholds: str) -> _Trial:
    caught, alarms = (_above(scores, tau) for scores in (outside, inside))
    tpr, fpr = caught / len(outside), alarms / len(inside)
    if thresholds == "all":
        areas = auroc(inside, outside), aupr(inside, outside), fpr80(inside, outside)
    else:
        precision = torch.where(caught + alarms > 0, caught / (caught + alarms), 1.0)
        near = (tpr - 0.8).abs().argmin()
        areas = torch.trapezoid(tpr, fpr).item(), torch.trapezoid(precision, tpr).item(), fpr[near].item()
    return _Trial(areas, (tau, tpr, fpr), *_curves(inside, outside))


def _above(scores: Tensor, tau: Tensor) -> Tensor:
    """How many scores are above each threshold."""
    return (len(scores) - torch.searchsorted(scores.sort().values, tau, right=True)).double()


def _curves(inside: Tensor, outside: Tensor) -> tuple[Curve, Curve]:
    """ROC and precision-recall curve, at the thresholds that outside scores are: the same in every resampling."""
    at, hits = outside.unique(return_counts=True)
    at, caught = at.flip(0), hits.flip(0).double().cumsum(0)
    ordered = inside.sort().values
    above, from_there = (
        (len(inside) - torch.searchsorted(ordered, at, right=right)).double() for right in (True, False)
    )
    none, one = torch.zeros_like(caught[:1]), torch.ones_like(caught[:1])
    tpr = caught / len(outside)
    # Inside scores between two outside ones move the curve to the right, those equal to one slantwise.
    fpr = torch.stack([above, from_there], 1).reshape(-1) / len(inside)
    rise = torch.stack([torch.cat([none, tpr[:-1]]), tpr], 1).reshape(-1)
    precision = caught / (caught + from_there)
    return (
        Curve(torch.cat([none, fpr, one]), torch.cat([none, rise, one])),
        Curve(torch.cat([none, tpr]), torch.cat([precision[:1], precision])),
    )


def _summary(alpha: Tensor, trials: list[_Trial], n_in: int, n_out: int) -> Detection:
    areas, points, roc, pr = zip(*trials, strict=True)
    threshold, tpr, fpr = _means(points)
    spreads = [_spread(column) for column in zip(*areas, strict=True)]
    return Detection(
        auroc=spreads[0],
        aupr=spreads[1],
        fpr80=spreads[2],
        alpha=alpha,
        threshold=threshold,
        tpr=tpr,
        fpr=fpr,
        roc=Curve(*_means(roc)),
        pr=Curve(*_means(pr)),
        n_in=n_in,
        n_out=n_out,
    )


def _means(parts: Any) -> list[Tensor]:
    """Mean over the resamplings of each tensor that one of them has."""
    return [torch.stack(column).mean(0) for column in zip(*parts, strict=True)]


def _spread(values: Sequence[float]) -> Spread:
    x = torch.tensor(values, dtype=torch.float64)
    return Spread(x.mean().item(), x.std().item() if len(x) > 1 else 0.0)


def _checked_alphas(alphas: Any) -> Tensor:
    try:
        given = alphas if isinstance(alphas, Tensor) else torch.tensor(np.asarray(alphas, dtype=np.float64))
    except (TypeError, ValueError):
        raise ConfigError(f"alphas must be rates between 0 and 1, got {alphas!r}. Use 0.05 for 5%.") from None
    alpha = given.double().reshape(-1).sort().values
    if not len(alpha) or not ((alpha >= 0) & (alpha <= 1)).all():
        shown = alpha.tolist() if len(alpha) < 9 else f"{alpha.min():g} to {alpha.max():g}"
        raise ConfigError(f"alphas must be rates between 0 and 1, got {shown}. Use 0.05 for 5%.")
    return alpha


def _held_out(holdout: float, n: int) -> int:
    if not is_number(holdout) or not 0.0 < holdout < 1.0:
        raise ConfigError(f"holdout must lie between 0 and 1, got {holdout!r}. Use 0.2 for 20%.")
    # 0.29 * 100 is 29 in words but not in floating point.
    held = int(holdout * n * (1 + 1e-12))
    if not 0 < held < n:
        raise InputError(
            f"score_in must hold enough scores to hold out {holdout:g} of them and keep some, got {n}. Give more rows."
        )
    return held


def _check_choices(resamplings: int, seed: int, complement: str, thresholds: str) -> None:
    if not is_integer(seed) or seed < 0:
        raise ConfigError(f"seed must be a whole number of at least 0, got {seed!r}. Use 0, say.")
    if not is_integer(resamplings) or resamplings < 1:
        raise ConfigError(f"resamplings must be a positive integer, got {resamplings!r}. Use 10, as the paper does.")
    if complement not in ("right", "paper"):
        raise ConfigError(f'complement must be "right" or "paper", got {complement!r}. Choose one of the two.')
    if thresholds not in ("all", "alphas"):
        raise ConfigError(f'thresholds must be "all" or "alphas", got {thresholds!r}. Choose one of the two.')
