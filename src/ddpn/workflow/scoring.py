"""Scores of models on the same rows, and whether the model was worth it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.distributions import Distribution

from ddpn.distributions import discretized
from ddpn.metrics import absolute_error, covered, crps, width
from ddpn.workflow.sample import Sample

#: The coverage of the intervals that are judged.
COVERAGE = 0.9
#: How the model itself is called beside its baselines, and these in words.
MODEL = "ddpn"
WORDS = {
    MODEL: "this model",
    "constant": "a constant law",
    "poisson_glm": "a Poisson GLM",
    "poisson_boosting": "Poisson gradient boosting",
}


class Scores(NamedTuple):
    """One value a row: distance of the median, CRPS, whether the 90% interval held, and its width."""

    mae: np.ndarray
    crps: np.ndarray
    coverage: np.ndarray
    width: np.ndarray


@torch.no_grad()
def score_rows(law_of: Callable[[Any, Any], Distribution], sample: Sample, level: float = COVERAGE) -> Scores:
    """Every row's scores by its law, `law_of(X, exposure)`, and by the law's interval at this level.

    A law on the line counts as the integers it rounds to.
    """
    parts = [_scores(discretized(law_of(s.X, s.exposure)), torch.from_numpy(s.y), level) for s in sample.blocks()]
    return Scores(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _scores(law: Distribution, y: torch.Tensor, level: float) -> list[np.ndarray]:
    each = (absolute_error(law, y), crps(law, y), covered(law, y, level), width(law, level))
    return [values.double().numpy() for values in each]


def mean_scores(scores: Scores, weight: np.ndarray | None) -> dict[str, float]:
    """Means over rows, by name."""
    return {name: float(np.average(values, weights=weight)) for name, values in scores._asdict().items()}


def gain(model: Scores, other: Scores, weight: np.ndarray | None) -> tuple[float, float]:
    """By how much the model's mean CRPS is lower, and the standard error of that."""
    each = other.crps - model.crps
    share = np.full(len(each), 1.0 / len(each)) if weight is None else weight / weight.sum()
    mean = float(share @ each)
    return mean, float(np.sqrt(np.square(share) @ np.square(each - mean)))


def comparison(rows: Mapping[str, Scores], weight: np.ndarray | None) -> dict[str, Any]:
    """The table of scores, and the model's gain over the best baseline, ready for JSON."""
    table = {name: mean_scores(scores, weight) for name, scores in rows.items()}
    best = min((name for name in table if name != MODEL), key=lambda name: table[name]["crps"])
    ahead, error = gain(rows[MODEL], rows[best], weight)
    count = len(rows[MODEL].crps)
    found = {"rows": count, "scores": table, "best_baseline": best, "crps_gain": ahead, "crps_gain_error": error}
    return found | {"verdict": verdict(found)}


def verdict(found: Mapping[str, Any]) -> str:
    """One sentence: whether it was worth it. A difference counts from two standard errors on.

    >>> found = {"rows": 50, "best_baseline": "constant", "crps_gain": 0.3, "crps_gain_error": 0.1}
    >>> found["scores"] = {"ddpn": {"crps": 0.9, "coverage": 0.91}, "constant": {"crps": 1.2, "coverage": 0.9}}
    >>> verdict(found).split(";")[0]
    'Worth it: its CRPS is 25% lower than that of a constant law, the best baseline'
    """
    scores, best, ahead = found["scores"], found["best_baseline"], found["crps_gain"]
    share = abs(ahead) / scores[best]["crps"] if scores[best]["crps"] > 0 else 0.0
    held = f"its 90% intervals held in {scores[MODEL]['coverage']:.0%} of rows"
    name = f"that of {WORDS.get(best, best)}, the best baseline"
    if abs(ahead) < 2.0 * found["crps_gain_error"]:
        side = "lower" if ahead > 0 else "higher"
        noise = f"{share:.1%} {side} than {name}, which {found['rows']:,} test rows cannot tell from chance"
        return f"Not clearly worth it: its CRPS is {noise}; {held}."
    if ahead <= 0:
        return f"Not worth it: its CRPS is {share:.0%} higher than {name}; {held}."
    return f"Worth it: its CRPS is {share:.0%} lower than {name}; {held}."
