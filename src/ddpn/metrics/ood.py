"""Out-of-distribution (OOD) scores of predictive distributions: the higher the score, the less familiar the input."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions import Mixture, Recalibrated
from ddpn.metrics.predictive import known
from ddpn.runtime.errors import InputError
from ddpn.runtime.registry import Registry


def _ensemble(dist: Any, kind: str) -> Mixture:
    """`dist`, if it has at least two members, which can disagree."""
    if isinstance(dist, Mixture) and dist.size > 1:
        return dist
    got = "one of a single member" if isinstance(dist, Mixture) else f"a single {type(dist).__name__}"
    remedy = "Use kind='variance' or kind='entropy', or train more members."
    raise InputError(f"dist must be a mixture of at least 2 members for kind={kind!r}, got {got}. {remedy}")


#: OOD scores of a distribution: name -> function (dist) -> one value per row.
OOD_SCORES = Registry(
    "kind",
    {
        "variance": lambda dist: dist.variance,
        "epistemic": lambda dist: _ensemble(dist, "epistemic").epistemic,
        "entropy": lambda dist: dist.entropy(),
        "mutual_information": lambda dist: _ensemble(dist, "mutual_information").mutual_information,
        "none": lambda dist: torch.zeros(dist.batch_shape, dtype=torch.float64),
    },
)


def ood_score(dist: Distribution, kind: str = "variance") -> Tensor:
    """Out-of-distribution (OOD) score of each row; higher is less familiar.

    The scores of a recalibrated distribution are those of its base.

    Parameters
    ----------
    dist : Distribution
        Predicted distributions, one per row; an ensemble (`Mixture`) for the scores of disagreement.
    kind : {"variance", "epistemic", "entropy", "mutual_information", "none"}
        "variance" is the total variance (the paper's score, Section 4.4), "epistemic" the part of it that members
        disagree about; "entropy" and "mutual_information" are the same two in nats. "none" is 0 for every row, for
        flags that follow the features alone. Or a name that you added to `OOD_SCORES`.

    Returns
    -------
    Tensor
        Of shape `dist.batch_shape`.

    Examples
    --------
    >>> import torch
    >>> from ddpn.distributions import Poisson
    >>> ood_score(Mixture(Poisson(torch.tensor([[4.0, 4.0], [2.0, 6.0]]))), "epistemic")
    tensor([0., 4.])
    """
    return OOD_SCORES.find(kind)(dist.base if isinstance(dist, Recalibrated) else known(dist))
