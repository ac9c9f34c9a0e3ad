"""Telling inputs of another kind by a score: the higher the score, the less familiar the input.

`ood_score` reads one off a predictive law; the others say how well any such score does. Equal scores count as they
must, never by the order of rows.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions import Mixture
from ddpn.errors import ConfigError, InputError
from ddpn.metrics.predictive import known
from ddpn.validation import is_number


def _ensemble(dist: Any, kind: str) -> Mixture:
    """`dist`, if it has members that can disagree."""
    if isinstance(dist, Mixture) and dist.size > 1:
        return dist
    got = "one of a single member" if isinstance(dist, Mixture) else f"a single {type(dist).__name__}"
    raise InputError(
        f'dist must be a mixture of at least 2 members for kind="{kind}", got {got}: nothing can disagree. '
        'Use kind="variance" or "entropy", or train more members.'
    )


#: What can be read off a law as a score: name -> function (dist) -> one value an example.
OOD_SCORES: dict[str, Callable[[Any], Tensor]] = {
    "variance": lambda dist: dist.variance,
    "epistemic": lambda dist: _ensemble(dist, "epistemic").epistemic,
    "entropy": lambda dist: dist.entropy(),
    "mutual_information": lambda dist: _ensemble(dist, "mutual_information").mutual_information,
}


def ood_score(dist: Distribution, kind: str = "variance") -> Tensor:
    """How unfamiliar an input looks by its predictive law; higher is stranger.

    "variance" is the total variance (the paper's score, Section 4.4), "epistemic" the part of it that members disagree
    about; "entropy" and "mutual_information" are the same two in nats. Those of disagreement need an ensemble.

    Shape: dist.batch_shape.

    >>> from ddpn.distributions import Poisson
    >>> ood_score(Mixture(Poisson(torch.tensor([[4.0, 4.0], [2.0, 6.0]]))), "epistemic")
    tensor([0., 4.])
    """
    check_ood_kind(kind)
    return OOD_SCORES[kind](known(dist))


def check_ood_kind(kind: str) -> None:
    """Refuse a score that nobody knows."""
    if kind not in OOD_SCORES:
        raise ConfigError(f"kind must be one of {', '.join(OOD_SCORES)}, got {kind!r}. Choose one of them.")


def checked_scores(**scores: Any) -> tuple[Tensor, ...]:
    """Flat float64 tensors on the first one's device, none empty, none NaN."""
    found: list[Tensor] = []
    for name, values in scores.items():
        x = _flat(name, values)
        if x.numel() == 0:
            raise InputError(f"{name} must hold at least one score, got none. Give scores of both kinds of input.")
        if torch.isnan(x).any():
            row = int(torch.isnan(x).nonzero()[0])
            raise InputError(f"{name} must hold numbers, got nan at {row}. Drop or mend the rows without a score.")
        found.append(x.to(found[0].device) if found else x)
    return tuple(found)


def _flat(name: str, values: Any) -> Tensor:
    """By numpy where it is no tensor: torch would look rows of a data frame's column up by their labels."""
    try:
        found = values if isinstance(values, Tensor) else torch.tensor(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError(f"{name} must hold numbers, got {type(values).__name__}. Give one score an input.") from None
    return found.detach().double().reshape(-1)


def quantiles(scores: Tensor, q: Tensor) -> Tensor:
    """Quantiles, linear between scores; torch's own takes no more than 16 million."""
    ordered = scores.sort().values
    place = q.to(scores.device) * (len(scores) - 1)
    low, high = ordered[place.floor().long()], ordered[place.ceil().long()]
    between = low + (high - low) * (place - place.floor())
    # An infinite score has no difference to another: the higher of the two flags less.
    return torch.where(torch.isnan(between), high, between)


def auroc(score_in: Any, score_out: Any) -> float:
    """Area under the ROC curve: P(an outside score is above an inside one) + P(they are equal) / 2 (Appendix B.2).

    >>> auroc([0.1, 0.2, 0.3], [0.3, 0.9])
    0.9166666666666666
    """
    inside, outside = checked_scores(score_in=score_in, score_out=score_out)
    inside = inside.sort().values
    below, upto = (torch.searchsorted(inside, outside, right=right).double() for right in (False, True))
    return (0.5 * (below + upto).mean() / len(inside)).item()


def aupr(score_in: Any, score_out: Any) -> float:
    """Area under the precision-recall curve, outside inputs as positives: average precision, with no interpolation.

    A score that knows nothing has the share of outside inputs, not 1/2.

    >>> aupr([0.1, 0.2, 0.3], [0.3, 0.9])
    0.8333333333333333
    """
    inside, outside = checked_scores(score_in=score_in, score_out=score_out)
    thresholds, hits = outside.unique(return_counts=True)
    thresholds, hits = thresholds.flip(0), hits.flip(0).double()
    caught = hits.cumsum(0)
    alarms = len(inside) - torch.searchsorted(inside.sort().values, thresholds).double()
    return (hits * caught / (caught + alarms)).sum().item() / len(outside)


def fpr_at(score_in: Any, score_out: Any, tpr: float = 0.8) -> float:
    """Share of inside inputs flagged at the highest threshold that flags at least `tpr` of the outside ones.

    >>> fpr_at([0.1, 0.2, 0.3, 0.4], [0.3, 0.9, 0.8], tpr=0.9)
    0.5
    """
    if not is_number(tpr) or not 0.0 < tpr <= 1.0:
        raise ConfigError(f"tpr must lie in (0, 1], got {tpr!r}. Use 0.8 for 80%.")
    inside, outside = checked_scores(score_in=score_in, score_out=score_out)
    # 0.8 * 5 is 4 in words but not always in floating point.
    needed = max(1, math.ceil(tpr * len(outside) * (1 - 1e-12)))
    threshold = outside.sort(descending=True).values[needed - 1]
    return (inside >= threshold).double().mean().item()


def fpr80(score_in: Any, score_out: Any) -> float:
    """False positive rate at a true positive rate of 80% (Appendix B.2).

    >>> fpr80([0.1, 0.2, 0.3, 0.4], [0.3, 0.35, 0.9, 0.8, 0.7])
    0.25
    """
    return fpr_at(score_in, score_out, tpr=0.8)
