"""Round Normals to counts: to the nearest integer, and to 0 if they are negative."""

from math import cosh, exp, inf, log
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from ddpn.distributions.arguments import as_parameters, check_positive, needs_validation
from ddpn.distributions.count import CountDistribution
from ddpn.distributions.gradients import without_gradient
from ddpn.distributions.kernels.scalar import HALF_LOG_TWO_PI, log_normal_cdf
from ddpn.distributions.mixture import CountMixture, Mixture
from ddpn.distributions.parametric import ParametricDistribution
from ddpn.runtime.errors import InputError

#: Quadrature nodes in half of a cell [k - 1/2, k + 1/2), and their weights: exact to 1e-16 if the cell is narrow
#: compared with the Normal.
NODES, WEIGHTS = (x[4:] for x in np.polynomial.legendre.leggauss(8))


class DiscretizedNormalFamily(NamedTuple):
    """A Normal rounded to counts, with the formulas that compiled kernels need (see `kernels.family`).

    Its parameters are the mean and the standard deviation of the Normal. Negative values are rounded to 0.
    """

    loc: float
    scale: float

    @classmethod
    def prepare(cls, a, b, c):
        return DiscretizedNormalFamily(a, b)

    def is_normalised(self):
        return True

    def log_weight(self, y):
        """Return log P(y - 1/2 <= X < y + 1/2), or log P(X < 1/2) at y = 0, with a small relative error in both tails.

        In general, the probability is a difference of two cdfs. If the cell [y - 1/2, y + 1/2) is narrow compared with
        the Normal, this difference would be inaccurate. Then the normal density is integrated by Gauss-Legendre
        quadrature: the probability is the width of the cell, times the density at its centre, times the mean of cosh(c
        t) exp(-t^2 / 2) over the cell. Here c = |y - loc| / scale, and t is the distance from the centre divided by the
        scale.
        """
        loc, scale = self.loc, self.scale
        if y < 0.5:
            return log_normal_cdf((0.5 - loc) / scale)
        centre, width = abs(y - loc) / scale, 1.0 / scale
        if width * max(centre, 1.0) < 1.0:
            ratio = 0.0
            for i in range(len(NODES)):
                t = 0.5 * width * NODES[i]
                ratio += WEIGHTS[i] * cosh(centre * t) * exp(-0.5 * t * t)
            return log(width) - 0.5 * centre * centre - HALF_LOG_TWO_PI + log(ratio)
        upper, lower = log_normal_cdf(0.5 * width - centre), log_normal_cdf(-0.5 * width - centre)
        return upper + log(1.0 - exp(lower - upper))

    def score(self, y):
        """Return zeros in place of derivatives, because rounded Normals have no gradients."""
        return 0.0, 0.0, 0.0

    def estimate_shape(self):
        """Return a rough mean (0 if negative), a rough standard deviation, and infinity (no largest count)."""
        return max(self.loc + 0.5, 0.0), self.scale + 0.3, inf


class Discretized(ParametricDistribution):
    """A Normal X that is rounded to counts: p(k) = P(k - 1/2 <= X < k + 1/2) for k >= 1, and p(0) = P(X < 1/2).

    Its scores, unlike those of a Normal, can be compared with the scores of count distributions. Use `discretize` for
    mixtures.

    The batch shape is that of `base`. Results are computed in float64, have the dtype of the parameters, and no
    gradients.

    Parameters
    ----------
    base : torch.distributions.Normal
        The Normal that is rounded to counts.
    validate_args : bool, optional
        Validate values. Default: only on a CPU.

    Examples
    --------
    >>> dist = Discretized(Normal(2.0, 1.0))
    >>> [round(p, 4) for p in dist.log_prob(torch.arange(4.0)).exp().tolist()]
    [0.0668, 0.2417, 0.3829, 0.2417]
    """

    family = DiscretizedNormalFamily
    _names = ("_loc", "_scale")

    def __init__(self, base: Normal, validate_args: bool | None = None) -> None:
        if not isinstance(base, Normal):
            raise InputError(f"base must be a Normal, got {type(base).__name__}. Use discretize() for mixtures.")
        self._loc, self._scale = as_parameters(loc=base.loc, scale=base.scale)
        if needs_validation(validate_args, self._loc):
            check_positive("scale", self._scale)
            if len(bad := self._loc[~torch.isfinite(self._loc)]):
                raise InputError(f"loc must be finite, got {bad[0].item()}. Look for a loss that diverged.")
        super().__init__(self._loc.shape, validate_args)

    @property
    def base(self) -> Normal:
        """The Normal that is rounded."""
        return Normal(self._loc, self._scale, validate_args=False)

    @without_gradient
    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log p(y), which is finite and accurate even far in the tails."""
        return super().log_prob(value)


def discretize(dist: Distribution) -> CountDistribution:
    """Round a Normal, or every Normal of a mixture, to a count distribution.

    The mass of [k - 1/2, k + 1/2) goes to the count k, and the mass below 0 to the count 0. The weights of a mixture
    are kept.

    Parameters
    ----------
    dist : Distribution
        A Normal, a `Mixture` of Normals and count distributions, or a count distribution, which is returned unchanged.

    Examples
    --------
    >>> ensemble = Mixture(Normal(torch.tensor([1.0, 3.0]), torch.tensor([0.5, 1.0])))
    >>> dist = discretize(ensemble)
    >>> dist.interval(0.9)[1].item(), round(dist.cdf(torch.tensor(0.0)).item(), 4)
    (4.0, 0.0824)
    """
    if isinstance(dist, CountDistribution):
        return dist
    if isinstance(dist, Normal):
        return Discretized(dist)
    if isinstance(dist, Mixture):
        stacks = [discretize(stack) for stack in dist._stacks]
        mixture = Mixture.concatenate(stacks, dist._weights, dist._check)
        assert isinstance(mixture, CountMixture)
        return mixture
    raise InputError(
        f"dist must be a Normal, a mixture of Normals or a count distribution, got {type(dist).__name__}. Sample it."
    )
