"""Heads with a separate probability of zero: zero-inflated and hurdle likelihoods.

Each combines this probability, pi, with a base likelihood for the other counts, such as a Poisson.
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import Hurdle, ZeroInflated
from ddpn.networks.heads import HEADS
from ddpn.networks.heads.clamps import bend
from ddpn.networks.heads.constant_fit import WeightedCounts
from ddpn.networks.heads.double_poisson import DoublePoissonHead
from ddpn.networks.heads.head import Head, promote_precision

#: logit of pi: from 6e-6 to 1 - 6e-6, bounded smoothly, so that its gradient never vanishes.
LOGIT = (-12.0, 12.0)

#: The note on mu of a Double Poisson with separate zeros.
_NO_MEAN = "mu is close to the mean of the Double Poisson, before separate zeros, only where gamma mu is large."


class ZeroHead(Head):
    """The base class of zero-inflated and hurdle heads.

    Raw outputs: those of the base likelihood, then logit pi, where pi is the separate probability of zero. A subclass
    sets `base_likelihood`, the name of the base likelihood in `HEADS`.
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
        """Create the base distribution with a separate probability of zero. Only the base depends on the exposure.

        The last element of `raw` is the logit of this probability, smoothly bounded; all others are the raw outputs of
        the base likelihood. See `Head.forward` for the shapes.
        """
        raw = promote_precision(raw)
        base: Any = self.base.forward(raw[..., :-1], exposure)
        return self._distribution(base, logits=bend(raw[..., -1], *LOGIT), validate_args=False)

    def _make_guesses(self, rows: WeightedCounts) -> list[Tensor]:
        """Return guesses of the raw outputs, each of shape (n_raw,), from which `start` chooses the best.

        A guess combines a fit of the base likelihood (to all counts in `rows`, or to the positive counts only) with a
        value of pi (the share of zeros, or 0.02).
        """
        fits, positive = [self.base.start(rows.y, rows.weight, rows.exposure)], rows.y > 0
        if bool(positive.any()) and not bool(positive.all()):
            exposure = None if rows.exposure is None else rows.exposure[positive]
            fits.append(self.base.start(rows.y[positive], rows.weight[positive], exposure))
        share = rows.mean((rows.y == 0).double())
        logits = [torch.logit(pi.clamp(0.02, 0.98)).reshape(1) for pi in (share, torch.zeros_like(share))]
        return [torch.cat([base, logit]) for base in fits for logit in logits]


class ZeroInflatedHead(ZeroHead):
    """The base class of zero-inflated likelihoods: 0 with probability pi, otherwise a count of the base likelihood.

    The count of the base likelihood may also be 0.
    """

    _distribution = ZeroInflated
    location_note = "mu is the mean of rows that are not extra zeros; the mean of all rows is (1 - pi) mu."


class HurdleHead(ZeroHead):
    """The base class of hurdle likelihoods: 0 with probability pi, otherwise a positive count.

    The positive count is drawn from the base likelihood, truncated to at least 1.
    """

    _distribution = Hurdle
    location_note = "mu is the mean of the base distribution with its zeros, not the mean of the positive counts."


class ZeroInflatedPoissonHead(ZeroInflatedHead):
    """The zero-inflated Poisson likelihood: 0 with probability pi, otherwise a Poisson count, which may also be 0.

    Raw outputs: (log mu, logit pi), where mu is the mean of the Poisson.

    >>> ZeroInflatedPoissonHead()(torch.tensor([1.0, 0.0])).mean
    tensor(1.3591)
    """

    name, base_likelihood = "zero_inflated_poisson", "poisson"


class ZeroInflatedNegativeBinomialHead(ZeroInflatedHead):
    """The zero-inflated Negative Binomial likelihood: 0 with probability pi, otherwise an over-dispersed count.

    Raw outputs: (log mu, log alpha, logit pi), where mu and alpha are the mean and the over-dispersion of the Negative
    Binomial.
    """

    name, base_likelihood = "zero_inflated_negative_binomial", "negative_binomial"


class ZeroInflatedDoublePoissonHead(ZeroInflatedHead):
    """The zero-inflated Double Poisson likelihood: 0 with probability pi, otherwise a count of any dispersion.

    Raw outputs: (log mu, log gamma, logit pi), where mu and gamma are the parameters of the Double Poisson.

    Parameters
    ----------
    location : {"mu", "mean"}
        As for `DoublePoissonHead`. With "mean", the first raw output is the log of the exact mean of the Double
        Poisson, before zeros are added.
    """

    name, base_likelihood = "zero_inflated_double_poisson", "double_poisson"

    def __init__(self, *, location: Literal["mu", "mean"] = "mu") -> None:
        self.base, self.location = DoublePoissonHead(location=location), location
        if location == "mu":
            self.location_note = _NO_MEAN


class HurdlePoissonHead(HurdleHead):
    """The hurdle Poisson likelihood: 0 with probability pi, otherwise a positive Poisson count.

    Raw outputs: (log mu, logit pi), where mu is the mean of the Poisson before its zeros are removed. There may be more
    or fewer zeros than in a Poisson.
    """

    name, base_likelihood = "hurdle_poisson", "poisson"


class HurdleNegativeBinomialHead(HurdleHead):
    """The hurdle Negative Binomial likelihood: 0 with probability pi, otherwise a positive over-dispersed count.

    Raw outputs: (log mu, log alpha, logit pi), where mu and alpha are the mean and the over-dispersion of the Negative
    Binomial before its zeros are removed. Any share of zeros is possible.
    """

    name, base_likelihood = "hurdle_negative_binomial", "negative_binomial"


class HurdleDoublePoissonHead(HurdleHead):
    """The hurdle Double Poisson likelihood: 0 with probability pi, otherwise a positive count of any dispersion.

    Raw outputs: (log mu, log gamma, logit pi), where mu and gamma are the location and the inverse dispersion of the
    Double Poisson before its zeros are removed. Any share of zeros is possible.

    Parameters
    ----------
    location : {"mu", "mean"}
        As for `DoublePoissonHead`. With "mean", the first raw output is the log of the exact mean of the Double Poisson
        before its zeros are removed.
    """

    name, base_likelihood = "hurdle_double_poisson", "double_poisson"

    def __init__(self, *, location: Literal["mu", "mean"] = "mu") -> None:
        self.base, self.location = DoublePoissonHead(location=location), location
        if location == "mu":
            self.location_note = _NO_MEAN
