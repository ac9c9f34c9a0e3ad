"""The faithful Gaussian head of Stirn et al. (2023): the mean is fitted as if there were no variance."""

from torch import Tensor

from ddpn.heads.gaussian import NormalHead, nll, rate


class FaithfulGaussianHead(NormalHead):
    """Gaussian baseline whose mean is fitted by squared error (Stirn et al., 2023).

    raw = (mean, log variance): squared error for the mean, the likelihood for the variance around it. Neither disturbs
    the other: the variance's loss takes the mean as given, and the variance sees features without gradient, so the
    backbone learns from squared error alone. That is no likelihood of both, hence no generalised linear model.

    >>> FaithfulGaussianHead().sees
    ('features', 'detached')
    """

    name = "faithful_gaussian"
    has_glm = False

    @property
    def sees(self) -> tuple[str, ...]:
        """The variance uses the features but sends no gradient back."""
        return ("features", "detached")

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """(y / exposure - mean)^2 / 2 plus -log p(y) with the mean held fixed."""
        mean, log_variance = self.links(raw)
        error = rate(y, exposure, mean.dtype) - mean
        return 0.5 * error.square() + nll(mean.detach(), log_variance, y, exposure)
