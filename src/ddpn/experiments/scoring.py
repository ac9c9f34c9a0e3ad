"""How a run is scored: by the paper's conventions, which differ from method to method, and by one rule for all.

paper   absolute error of the mode (count laws) or of the unrounded mean (Gaussians); an ensemble of Gaussians is one
        Normal with the mixture's moments; the precision of a single DDPN is gamma / mu.
ours    absolute error of the median, scores of the exact mixture, precision 1 / variance, for every method.
rounded ours, of a Gaussian's mass in [k - 1/2, k + 1/2) put on k: the comparison of laws without the line's handicap.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.distributions import Distribution, Normal

from ddpn.distributions import CountDistribution, DoublePoisson, Mixture, discretized
from ddpn.metrics import absolute_error, covered, crps, nll

Scores = dict[str, list[float]]


def score(law: Distribution, y: Tensor, truth: CountDistribution | None = None) -> dict[str, Any]:
    """All protocols, of each member and of the ensemble, from the members' laws (rows, M) and counts (rows,)."""
    ensemble = Mixture(law)
    found: dict[str, Any] = {
        "paper": {"single": _paper_single(law, y), "ensemble": _paper_ensemble(law, y)},
        "ours": _ours(law, ensemble, y),
    }
    if isinstance(law, Normal):
        # One member at a time keeps the mixture's machinery for count laws on its fast path.
        found["rounded"] = _ours(discretized(law), discretized(ensemble), y)
    if truth is not None:
        found["truth"] = _against(truth, ensemble, y)
    return found


def _each(value: Tensor) -> list[float]:
    return value.double().mean(0).reshape(-1).tolist()


def _ours(law: Distribution, ensemble: Distribution, y: Tensor) -> dict[str, Scores]:
    return {"single": _one_rule(law, y.unsqueeze(1)), "ensemble": _one_rule(ensemble, y)}


def _one_rule(law: Any, y: Tensor) -> Scores:
    return {
        "mae": _each(absolute_error(law, y, statistic="median")),
        "crps": _each(crps(law, y)),
        "nll": _each(nll(law, y)),
        "coverage": _each(covered(law, y, coverage=0.9)),
        "median_precision": (1.0 / law.variance).median(0).values.reshape(-1).tolist(),
    }


def _paper_single(law: Any, y: Tensor) -> Scores:
    y = y.unsqueeze(1)
    precision = law.gamma / law.mu if isinstance(law, DoublePoisson) else 1.0 / law.variance
    return {
        "mae": _each((_paper_point(law) - y).abs()),
        "crps": _each(crps(law, y)),
        "median_precision": precision.median(0).values.tolist(),
    }


def _paper_ensemble(law: Any, y: Tensor) -> Scores:
    mixture: Any = Mixture(law)
    precision = (1.0 / mixture.variance).median().reshape(1).tolist()
    whole = Normal(mixture.mean, mixture.stddev) if isinstance(law, Normal) else mixture
    return {
        "mae": _each((_paper_point(whole) - y).abs()),
        "crps": _each(crps(whole, y)),
        "median_precision": precision,
    }


def _paper_point(law: Any) -> Tensor:
    return law.mean if isinstance(law, Normal) else law.mode


def _against(truth: CountDistribution, ensemble: Any, y: Tensor) -> dict[str, float]:
    """What a simulation adds: the score no model can beat, and how far the variance is from the true one."""
    relative = (ensemble.aleatoric - truth.variance).abs() / truth.variance.clamp(min=1e-12)
    best = crps(truth, y).double().mean().item()
    median: Callable[[Tensor], float] = lambda x: x.median().item()  # noqa: E731
    return {
        "crps": best,
        "mae": absolute_error(truth, y, statistic="median").double().mean().item(),
        "crps_gap": crps(ensemble, y).double().mean().item() - best,
        "aleatoric_relative_error": median(relative),
        "epistemic": median(ensemble.epistemic),
    }
