"""The scores of a run: by the paper's conventions, which differ between methods, and by one rule for all.

paper   absolute error of the mode (counts) or of the unrounded mean (Gaussians); an ensemble of Gaussians is one Normal
        with the mixture's moments; the precision of a single DDPN is gamma / mu.
ours    absolute error of the median, scores of the exact mixture, precision 1 / variance, for every method.
rounded ours, with a Gaussian's mass in [k - 1/2, k + 1/2) on k: compares methods on the same support.
"""

from typing import Any

from torch import Tensor
from torch.distributions import Distribution, Normal

from ddpn.distributions import CountDistribution, DoublePoisson, Mixture, discretized
from ddpn.metrics import absolute_error, covered, crps, nll


def score(dist: Distribution, y: Tensor, truth: CountDistribution | None = None) -> dict[str, Any]:
    """All protocols, for each member and for the ensemble, from the members' predictions (rows, M) and counts (rows,).

    `truth` is the distribution that the counts of a simulation were drawn from.
    """
    ensemble, column = Mixture(dist), y.unsqueeze(1)
    whole = Normal(ensemble.mean, ensemble.stddev) if isinstance(dist, Normal) else ensemble
    found: dict[str, Any] = {
        "paper": {"single": _paper(dist, column), "ensemble": _paper(whole, y)},
        "ours": {"single": _ours(dist, column), "ensemble": _ours(ensemble, y)},
    }
    if isinstance(dist, Normal):
        found["rounded"] = {"single": _ours(discretized(dist), column), "ensemble": _ours(discretized(ensemble), y)}
    if truth is not None:
        found["truth"] = _against(truth, ensemble, y)
    return found


def _mean(value: Tensor) -> list[float]:
    return value.double().mean(0).reshape(-1).tolist()


def _median(value: Tensor) -> list[float]:
    return value.median(0).values.reshape(-1).tolist()


def _ours(dist: Any, y: Tensor) -> dict[str, list[float]]:
    return {
        "mae": _mean(absolute_error(dist, y, statistic="median")),
        "crps": _mean(crps(dist, y)),
        "nll": _mean(nll(dist, y)),
        "coverage": _mean(covered(dist, y, coverage=0.9)),
        "median_precision": _median(1.0 / dist.variance),
    }


def _paper(dist: Any, y: Tensor) -> dict[str, list[float]]:
    precision = dist.gamma / dist.mu if isinstance(dist, DoublePoisson) else 1.0 / dist.variance
    return {
        "mae": _mean(((dist.mean if isinstance(dist, Normal) else dist.mode) - y).abs()),
        "crps": _mean(crps(dist, y)),
        "median_precision": _median(precision),
    }


def _against(truth: CountDistribution, ensemble: Any, y: Tensor) -> dict[str, float]:
    """For simulations: the score of the true distribution, and how far the variance is from the true one."""
    relative = (ensemble.aleatoric - truth.variance).abs() / truth.variance.clamp(min=1e-12)
    best = crps(truth, y).double().mean().item()
    return {
        "crps": best,
        "mae": absolute_error(truth, y, statistic="median").double().mean().item(),
        "crps_gap": crps(ensemble, y).double().mean().item() - best,
        "aleatoric_relative_error": relative.median().item(),
        "epistemic": ensemble.epistemic.median().item(),
    }
