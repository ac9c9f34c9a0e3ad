"""Score the predictions of a run by three protocols, and measure how well its variances detect OOD rows.

"paper" follows the paper. The absolute error of a count distribution is that of its mode, and the absolute error of a
Gaussian is that of its unrounded mean. An ensemble of Gaussians is scored as one Normal with the mixture's mean and
variance. The precision of a single Double Poisson is gamma / mu.

"ours" treats all methods alike. The absolute error is that of the median, an ensemble is scored as the exact mixture,
and the precision is 1 / variance.

"rounded" scores Gaussians like "ours" after rounding them to counts: the mass in [k - 1/2, k + 1/2) becomes that of k.
All methods then have the same support.

OOD rows are out-of-distribution rows.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Distribution, Normal

from ddpn.distributions import CountDistribution, DoublePoisson, Mixture, discretize
from ddpn.metrics import absolute_error, crps, is_covered, nll
from ddpn.metrics.ood import aupr, auroc, fpr80, validate_scores
from ddpn.runtime.errors import InputError
from ddpn.storage.contents import JsonObject


def score(dist: Distribution, y: Tensor, truth: CountDistribution | None = None) -> JsonObject:
    """Score each network and the ensemble on the counts `y`, by the protocols "paper", "ours" and "rounded".

    Parameters
    ----------
    dist : Distribution, batch shape (rows, M)
        The distributions that M networks predict.
    y : Tensor, shape (rows,)
        The observed counts.
    truth : CountDistribution, batch shape (rows,), optional
        The true distributions of the counts, if they are simulated.

    Returns
    -------
    dict
        For each protocol, a dict with the keys "single" and "ensemble". Each of these has, for each metric such as
        "mae" and "crps", a list with the score of each network, or with the one score of the ensemble. "rounded" is
        there only for Gaussians. With `truth`, the key "truth" has the comparison of `_compare_with_truth`.
    """
    ensemble, column = Mixture(dist), y.unsqueeze(1)
    whole = Normal(ensemble.mean, ensemble.stddev) if isinstance(dist, Normal) else ensemble
    scores: JsonObject = {
        "paper": {"single": _paper(dist, column), "ensemble": _paper(whole, y)},
        "ours": {"single": _ours(dist, column), "ensemble": _ours(ensemble, y)},
    }
    if isinstance(dist, Normal):
        scores["rounded"] = {"single": _ours(discretize(dist), column), "ensemble": _ours(discretize(ensemble), y)}
    if truth is not None:
        scores["truth"] = _compare_with_truth(truth, ensemble, y)
    return scores


def _mean(value: Tensor) -> list[float]:
    return value.double().mean(0).reshape(-1).tolist()


def _median(value: Tensor) -> list[float]:
    return value.median(0).values.reshape(-1).tolist()


def _ours(dist: Distribution, y: Tensor) -> dict[str, list[float]]:
    return {
        "mae": _mean(absolute_error(dist, y, statistic="median")),
        "crps": _mean(crps(dist, y)),
        "nll": _mean(nll(dist, y)),
        "coverage": _mean(is_covered(dist, y, coverage=0.9)),
        "median_precision": _median(1.0 / dist.variance),
    }


def _paper(dist: Distribution, y: Tensor) -> dict[str, list[float]]:
    precision = dist.gamma / dist.mu if isinstance(dist, DoublePoisson) else 1.0 / dist.variance
    return {
        "mae": _mean(((dist.mean if isinstance(dist, Normal) else dist.mode) - y).abs()),
        "crps": _mean(crps(dist, y)),
        "median_precision": _median(precision),
    }


def _compare_with_truth(truth: CountDistribution, ensemble: Mixture, y: Tensor) -> dict[str, float]:
    """Compare an ensemble with the true distribution of simulated counts `y`.

    Return a dict:

    - "crps", "mae": the scores of the true distribution
    - "crps_gap": the CRPS of the ensemble minus that of the true distribution
    - "aleatoric_relative_error": the median relative error of the ensemble's aleatoric variance
    - "epistemic": the median epistemic variance of the ensemble
    """
    relative = (ensemble.aleatoric - truth.variance).abs() / truth.variance.clamp(min=1e-12)
    best = crps(truth, y).double().mean().item()
    return {
        "crps": best,
        "mae": absolute_error(truth, y, statistic="median").double().mean().item(),
        "crps_gap": crps(ensemble, y).double().mean().item() - best,
        "aleatoric_relative_error": relative.median().item(),
        "epistemic": ensemble.epistemic.median().item(),
    }


# Detection of OOD rows ------------------------------------------------------------------------------------------------


# Section 4.4 and Appendix B.2, over resampled hold-outs. The paper's own table has two peculiarities. Its script
# indexes with ~ on row numbers, so instead of the rows that were not held out it evaluates row -1 - i, counted from the
# end, for each held-out row i: these are only as many as the hold-out and partly held out themselves, so precision, and
# with it AUPR, comes out too high. And its areas are those of 100 points at thresholds from the held-out rows, joined
# by straight lines, with nothing before the first and after the last. `evaluate_detection(..., as_paper=True)` does
# both.

#: The share of the test rows that is held out, and the number of repetitions.
HELD_OUT, RESAMPLINGS = 0.2, 10
#: The expected false positive rates of the thresholds in the paper's script.
ALPHAS = np.linspace(1e-3, 1.0, 100)


class Detection(NamedTuple):
    """How well a score detects OOD rows: each metric is a pair (mean, standard deviation) over random hold-outs.

    `auroc` and `aupr` are the areas under the ROC curve and under the precision-recall curve. `fpr80` is the false
    positive rate at a true positive rate of 0.8. `n_in_distribution` and `n_ood` are the numbers of rows that each
    repetition evaluates.
    """

    auroc: tuple[float, float]
    aupr: tuple[float, float]
    fpr80: tuple[float, float]
    n_in_distribution: int
    n_ood: int


def evaluate_detection(score_in: ArrayLike, score_out: ArrayLike, *, as_paper: bool = False) -> Detection:
    """Measure how well a score separates out-of-distribution (OOD) rows, whose score should be higher, from other rows.

    `score_in` has the scores of in-distribution rows, and `score_out` those of OOD rows. As in Section 4.4 of the
    paper, a random fifth of `score_in` is held out; the rest and all of `score_out` are evaluated. This is repeated ten
    times. At least 5 scores in `score_in` are needed; otherwise an `InputError` is raised.

    If `as_paper` is True, the metrics are computed as in the paper's script. The script does not evaluate the rows of
    `score_in` that are not held out. By mistake, it evaluates as many rows as are held out, some of which are held out
    themselves. It uses 100 thresholds, joins the points of each curve by straight lines, and takes FPR80 at the point
    with a true positive rate nearest to 0.8.

    >>> metrics = evaluate_detection(torch.arange(100.0), torch.arange(60.0, 140.0))
    >>> [f"{mean:.3f} ({deviation:.3f})" for mean, deviation in metrics[:3]]
    ['0.900 (0.012)', '0.903 (0.009)', '0.246 (0.033)']
    """
    inside, outside = validate_scores(score_in=score_in, score_out=score_out)
    held, random = int(HELD_OUT * len(inside)), torch.Generator().manual_seed(0)
    if not held:
        raise InputError(argument="score_in", must="have at least 5 scores", got=str(len(inside)))
    areas = []
    for _ in range(RESAMPLINGS):
        order = torch.randperm(len(inside), generator=random).numpy()
        rows, evaluated = order[:held], inside[order[held:]]
        if as_paper:
            evaluated = inside[-1 - rows]
            with np.errstate(invalid="ignore"):
                between = np.quantile(inside[rows], 1.0 - ALPHAS)
            # Quantiles are linear between scores. Next to an infinite score, the higher score is used, which flags
            # less.
            higher = np.quantile(inside[rows], 1.0 - ALPHAS, method="higher")
            areas.append(_score_points(np.where(np.isnan(between), higher, between), evaluated, outside))
        else:
            areas.append((auroc(evaluated, outside), aupr(evaluated, outside), fpr80(evaluated, outside)))
    first, second, third = ((float(values.mean()), float(values.std(ddof=1))) for values in np.array(areas).T)
    return Detection(first, second, third, len(evaluated), len(outside))


def _score_points(thresholds: np.ndarray, inside: np.ndarray, outside: np.ndarray) -> tuple[float, float, float]:
    """Compute AUROC, AUPR and FPR80 from the ROC and precision-recall curves at the given thresholds.

    Rows with a score above a threshold are flagged as OOD (out of distribution). FPR80 is the false positive rate at
    the threshold with the true positive rate nearest to 0.8. The points of the curves are joined by straight lines.
    `inside` and `outside` are the scores of in-distribution and OOD rows.
    """
    hits, alarms = (len(side) - np.searchsorted(np.sort(side), thresholds, "right") for side in (outside, inside))
    tpr, fpr = hits / len(outside), alarms / len(inside)
    precision = np.where(hits + alarms > 0, hits / np.maximum(hits + alarms, 1), 1.0)
    return float(np.trapezoid(tpr, fpr)), float(np.trapezoid(precision, tpr)), float(fpr[np.abs(tpr - 0.8).argmin()])
