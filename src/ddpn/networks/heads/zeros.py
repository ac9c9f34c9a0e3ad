"""Heads with a separate probability of zero: zero-inflated and hurdle likelihoods.

pi is this probability, and the base is the distribution of the other counts, such as a Poisson.
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import Hurdle, ZeroInflated
from ddpn.networks.heads import HEADS
from ddpn.networks.heads.clamps import bend
from ddpn.networks.heads.double_poisson import DoublePoissonHead
from ddpn.networks.heads.head import Head, WeightedCounts, promote_precision

#: logit of pi: from 6e-6 to 1 - 6e-6, bounded smoothly, so that its gradient never vanishes.
LOGIT = (-12.0, 12.0)

#: The note on mu of a Double Poisson with separate zeros.
_NO_MEAN = "mu is close to the mean of the Double Poisson, before separate zeros, only where gamma mu is large."


class ZeroHead(Head):
    """The base class of zero-inflated and hurdle heads. raw = (raw outputs of the base likelihood, logit pi).

    A subclass sets `base_likelihood`, the name of the likelihood of counts that are not separate zeros.
    """

    base_likelihood: ClassVar[str]
    support = constraints.nonnegative_integer
    _distribution: ClassVar[Any]

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        if "base_likelihood" in vars(cls):
            base = HEADS[cls.base_likelihood]
            cls.n_raw, cls.parameter_names = base.n_raw + 1, (*base.parameter_names, "logit pi")
            cls.dispersion_outputs = base.dispersion_outputs

    def __init__(self) -> None:
        #: The head of the base likelihood.
        self.base: Head = HEADS[self.base_likelihood]()

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> Any:
        """Make the base distribution with a separate probability of zero. Exposures scale the base distribution."""
        raw = promote_precision(raw)
        base: Any = self.base.forward(raw[..., :-1], exposure)
        return self._distribution(base, logits=bend(raw[..., -1], *LOGIT), validate_args=False)

    def _make_guesses(self, rows: WeightedCounts) -> list[Tensor]:
        """Return fits of the base to all counts and to positive counts, each with a large and with a small pi."""
        fits, positive = [self.base.start(rows.y, rows.weight, rows.exposure)], rows.y > 0
        if bool(positive.any()) and not bool(positive.all()):
            exposure = None if rows.exposure is None else rows.exposure[positive]
            fits.append(self.base.start(rows.y[positive], rows.weight[positive], exposure))
        share = rows.mean((rows.y == 0).double())
        logits = [torch.logit(pi.clamp(0.02, 0.98)).reshape(1) for pi in (share, torch.zeros_like(share))]
        return [torch.cat([base, logit]) for base in fits for logit in logits]


class ZeroInflatedHead(ZeroHead):
    """Zero-inflated counts: 0 with probability pi, otherwise a count of the base, which may also be 0."""

    _distribution = ZeroInflated
    location_note = "mu is the mean of rows that are not extra zeros; the mean of all rows is (1 - pi) mu."


class HurdleHead(ZeroHead):
    """Hurdle counts: 0 with probability pi, otherwise a positive count of the base."""

    _distribution = Hurdle
    location_note = "mu is the mean of the base distribution with its zeros, not the mean of the positive counts."


class ZeroInflatedPoissonHead(ZeroInflatedHead):
    """The zero-inflated Poisson likelihood: more zeros than in a Poisson, from a separate process.

    raw = (log mu, logit pi).

    >>> ZeroInflatedPoissonHead()(torch.tensor([1.0, 0.0])).mean
    tensor(1.3591)
    """

    name, base_likelihood = "zero_inflated_poisson", "poisson"


class ZeroInflatedNegativeBinomialHead(ZeroInflatedHead):
    """The zero-inflated Negative Binomial likelihood: separate zeros, and over-dispersed counts.

    raw = (log mu, log alpha, logit pi).
    """

    name, base_likelihood = "zero_inflated_negative_binomial", "negative_binomial"


class ZeroInflatedDoublePoissonHead(ZeroInflatedHead):
    """The zero-inflated Double Poisson likelihood: separate zeros, and counts of any dispersion.

    raw = (log mu, log gamma, logit pi).

    Parameters
    ----------
    location : {"mu", "mean"}
        As for `DoublePoissonHead`. With "mean", mu is the exact mean of the Double Poisson, before zeros are added.
    """

    name, base_likelihood = "zero_inflated_double_poisson", "double_poisson"

    def __init__(self, *, location: Literal["mu", "mean"] = "mu") -> None:
        self.base, self.location = DoublePoissonHead(location=location), location
        if location == "mu":
            self.location_note = _NO_MEAN


class HurdlePoissonHead(HurdleHead):
    """The hurdle Poisson likelihood: any share of zeros (more or fewer than in a Poisson), and positive Poisson counts.

    raw = (log mu, logit pi). mu is the mean of the Poisson with its zeros.
    """

    name, base_likelihood = "hurdle_poisson", "poisson"


class HurdleNegativeBinomialHead(HurdleHead):
    """The hurdle Negative Binomial likelihood: any share of zeros, and positive over-dispersed counts.

    raw = (log mu, log alpha, logit pi), where pi is the probability of 0, and mu and alpha are the mean and the
    over-dispersion of the Negative Binomial with its zeros.
    """

    name, base_likelihood = "hurdle_negative_binomial", "negative_binomial"


class HurdleDoublePoissonHead(HurdleHead):
    """The hurdle Double Poisson likelihood: 0 with probability pi, else a positive count of a Double Poisson.

    raw = (log mu, log gamma, logit pi), where mu and gamma are the location and the inverse dispersion of the Double
    Poisson. Any share of zeros is possible, and positive counts may have any dispersion.

    Parameters
    ----------
    location : {"mu", "mean"}
        As for `DoublePoissonHead`. With "mean", mu is the exact mean of the Double Poisson with its zeros.
    """

    name, base_likelihood = "hurdle_double_poisson", "double_poisson"

    def __init__(self, *, location: Literal["mu", "mean"] = "mu") -> None:
        self.base, self.location = DoublePoissonHead(location=location), location
        if location == "mu":
            self.location_note = _NO_MEAN
