"""The Double Poisson as a distribution of NumPyro. With `jax_numerics`, the only files that import jax or numpyro."""

from importlib import import_module
from typing import Any

from ddpn.forecasting.libraries import base_class

_Distribution: Any = base_class("numpyro.distributions", "Distribution", "numpyro")
_constraints: Any = base_class("numpyro.distributions", "constraints", "numpyro")
_positive, _counts = (getattr(_constraints, name, None) for name in ("positive", "nonnegative_integer"))


def _numerics() -> Any:
    """`jax_numerics`, imported on use, as JAX may be missing where the reference is built."""
    return import_module("ddpn.forecasting.jax_numerics")


class DoublePoisson(_Distribution):
    """A Double Poisson for `numpyro.sample`, in JAX: `jit`, `vmap` and derivatives of any order work.

    log_prob is exact to 1e-8 in float64 (`numpyro.enable_x64()`), for mu from 1e-6 to 1e7 and gamma from 1e-4 to 1e4.
    In float32, the default of JAX, it is exact to 1e-5 for gamma up to 1,000 and to 1e-4 beyond; errors are relative to
    1 + abs(log_prob). Counts have no gradient: as observations they suit every algorithm, also NUTS; as latent
    variables they cannot be enumerated.

    Parameters
    ----------
    mu : Array or float
        Location, positive.
    gamma : Array or float
        Inverse dispersion, positive: the variance is about mu / gamma.
    validate_args : bool, optional
        Whether parameters and values are checked. Default: as set by `numpyro.enable_validation`.

    Examples
    --------
    >>> import jax
    >>> from ddpn.forecasting.numpyro import DoublePoisson
    >>> dist = DoublePoisson(5.0, 4.0)
    >>> print(f"{dist.mean:.3f} {dist.variance:.3f} {dist.log_prob(5):.3f}")
    5.003 1.249 -1.034
    >>> dist.sample(jax.random.key(0), (4,)).shape
    (4,)
    """

    arg_constraints = {"mu": _positive, "gamma": _positive}
    support = _counts

    def __init__(self, mu: Any, gamma: Any, *, validate_args: bool | None = None) -> None:
        self.mu, self.gamma = _numerics().parameters(mu, gamma)
        super().__init__(self.mu.shape, validate_args=validate_args)

    def log_prob(self, value: Any) -> Any:
        """log pmf.

        Parameters
        ----------
        value : Array
            Counts, which broadcast with the parameters.
        """
        found = _numerics().log_prob(value, self.mu, self.gamma)
        return found if not self._validate_args else _numerics().masked(found, self._validate_sample(value))

    def cdf(self, value: Any) -> Any:
        """P(Z <= value).

        Parameters
        ----------
        value : Array
            Numbers, which broadcast with the parameters.
        """
        return _numerics().cdf(value, self.mu, self.gamma)

    def icdf(self, q: Any) -> Any:
        """The smallest count with P(Z <= count) >= q.

        Parameters
        ----------
        q : Array
            Levels strictly between 0 and 1, which broadcast with the parameters.
        """
        return _numerics().icdf(q, self.mu, self.gamma)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Integers, by inversion of the cdf; the outer 2e-6 of each tail is not drawn from (1e-9 in float64).

        Parameters
        ----------
        key : PRNG key
            As `jax.random.key` makes it.
        sample_shape : tuple of int
            Their shape, before that of the parameters.
        """
        return _numerics().sample(key, (*sample_shape, *self.batch_shape), self.mu, self.gamma)

    @property
    def mean(self) -> Any:
        """Mean, which is close to mu but not equal to it."""
        return _numerics().mean_variance(self.mu, self.gamma)[0]

    @property
    def variance(self) -> Any:
        """Variance, about mu / gamma."""
        return _numerics().mean_variance(self.mu, self.gamma)[1]
