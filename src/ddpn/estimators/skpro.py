"""`CountRegressor` as a probabilistic regressor of skpro, and its predictions as a distribution of skpro."""

from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor
from torch.distributions import Distribution, Normal

from ddpn.distributions import Mixture, discretized
from ddpn.estimators import CountRegressor, DDPNRegressor
from ddpn.runtime.errors import ConfigError

try:
    from skpro.distributions.base import BaseDistribution
    from skpro.regression.base import BaseProbaRegressor
except ImportError:
    raise ConfigError("ddpn[skpro] is not installed: pip install 'ddpn[skpro]'") from None


class SkproDistribution(BaseDistribution):
    """A predicted distribution per row, in one column, with skpro's interface; every method is exact.

    Between counts the cdf is that of the count below, and the pmf is 0.

    Parameters
    ----------
    dist : Distribution
        With batch shape (rows,), or () for a single distribution; Normals are rounded to counts (`discretized`).
    index : pandas Index, optional
        Labels of the rows. Default: 0, 1, 2, ...
    columns : pandas Index, optional
        The name of the one column. Default: 0.

    Examples
    --------
    >>> import torch
    >>> from ddpn.distributions import Mixture, Poisson
    >>> from ddpn.estimators.skpro import SkproDistribution
    >>> dist = SkproDistribution(Mixture(Poisson(torch.tensor([[1.0, 3.0], [2.0, 2.0]]))))
    >>> dist.mean()[0].tolist(), dist.ppf(0.95)[0].tolist()
    ([2.0, 2.0], [5.0, 5.0])
    """

    _tags = {
        "capabilities:approx": [],
        "capabilities:exact": ["mean", "var", "energy", "pmf", "log_pmf", "cdf", "ppf"],
        "distr:measuretype": "discrete",
        "distr:paramtype": "composite",
    }

    def __init__(self, dist: Distribution, index: Any = None, columns: Any = None) -> None:
        self.dist = dist
        if dist.batch_shape:
            index = range(dist.batch_shape[0]) if index is None else index
            columns = range(1) if columns is None else columns
        super().__init__(index=index, columns=columns)

    @property
    def _counts(self) -> Any:
        return discretized(self.dist)

    def _subset_params(self, rowidx: Any, colidx: Any, coerce_scalar: bool = False) -> dict[str, Distribution]:
        # skpro's own subsetting takes every parameter for an array with a column for each of `columns`.
        return {"dist": self.dist if rowidx is None else self._counts.rows(torch.as_tensor(np.asarray(rowidx)))}

    def _frame(self, values: Tensor) -> np.ndarray:
        """One value per row, in this distribution's shape."""
        return values.double().numpy().reshape(self.shape)

    def _at_counts(self, x: np.ndarray) -> tuple[Tensor, Tensor]:
        """Numbers, one per row, and the counts below them (0 for negative ones, which have none)."""
        real = torch.as_tensor(np.array(x, dtype=np.float64)).reshape(self._counts.batch_shape)
        return real, real.floor().clamp(min=0.0)

    def _mean(self) -> np.ndarray:
        return self._frame(self._counts.mean)

    def _var(self) -> np.ndarray:
        return self._frame(self._counts.variance)

    def _log_pmf(self, x: np.ndarray) -> np.ndarray:
        real, count = self._at_counts(x)
        return self._frame(torch.where(real == count, self._counts.log_prob(count), -torch.inf))

    def _pmf(self, x: np.ndarray) -> np.ndarray:
        return np.exp(self._log_pmf(x))

    def _cdf(self, x: np.ndarray) -> np.ndarray:
        real, count = self._at_counts(x)
        return self._frame(torch.where(real < 0.0, 0.0, self._counts.cdf(count)))

    def _ppf(self, p: np.ndarray) -> np.ndarray:
        levels = torch.as_tensor(np.array(p, dtype=np.float64)).reshape(self._counts.batch_shape)
        return self._frame(self._counts.icdf(levels))

    def _half_mean_difference(self) -> Tensor:
        """E|X - Y| / 2: CRPS(y) = E|X - y| - E|X - Y| / 2, and E|X - 0| is the mean."""
        return self._counts.mean - self._counts.crps(torch.zeros_like(self._counts.mean))

    def _energy_self(self) -> np.ndarray:
        return self._frame(2.0 * self._half_mean_difference())

    def _energy_x(self, x: np.ndarray) -> np.ndarray:
        """E|X - x|, which is linear between two counts and below 0."""
        real, low = self._at_counts(x)
        below, above = (self._counts.crps(count).double() for count in (low, low + 1.0))
        at_counts = torch.lerp(below, above, (real - low).clamp(min=0.0)) + self._half_mean_difference()
        return self._frame(torch.where(real < 0.0, self._counts.mean - real, at_counts))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """A distribution per row, of counts and of Normals, and a single one: what skpro's checks are run on."""
        from ddpn.distributions import DoublePoisson

        mu, spread = torch.tensor([[1.0, 2.0], [5.0, 9.0], [30.0, 31.0]]), torch.tensor([0.5, 2.0])
        return [
            {"dist": Mixture(DoublePoisson(mu, spread)), "index": ["a", "b", "c"], "columns": ["y"]},
            {"dist": Mixture(Normal(mu, spread))},
            {"dist": Mixture(DoublePoisson(mu[0], spread))},
        ]


class CountRegressorSkpro(BaseProbaRegressor):
    """A `CountRegressor` with skpro's interface: its pipelines, tuning, metrics and conformal wrappers.

    Parameters
    ----------
    estimator : CountRegressor or DDPNRegressor, optional
        Cloned before it is fitted. Default: `CountRegressor()`.

    Attributes
    ----------
    estimator_ : CountRegressor
        The fitted estimator.

    Examples
    --------
    >>> import pandas as pd
    >>> from ddpn import DDPNRegressor
    >>> from ddpn.estimators.skpro import CountRegressorSkpro
    >>> X = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0] * 5})
    >>> y = pd.DataFrame({"visits": [1, 2, 4, 9] * 5})
    >>> quick = DDPNRegressor(members=1, hidden=(), epochs=50, random_state=0)
    >>> dist = CountRegressorSkpro(quick).fit(X, y).predict_proba(X.tail(2))
    >>> dist.cdf(100).round(3)
        visits
    18     1.0
    19     1.0
    """

    _tags = {
        "capability:multioutput": False,
        "capability:missing": True,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator: CountRegressor | DDPNRegressor | None = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, y: Any) -> "CountRegressorSkpro":
        chosen = CountRegressor() if self.estimator is None else clone(self.estimator)
        self.estimator_ = chosen.fit(_named(X), y.iloc[:, 0])
        return self

    def _predict_proba(self, X: Any) -> SkproDistribution:
        dist = self.estimator_.predict_distribution(_named(X)).distribution
        return SkproDistribution(dist, index=X.index, columns=self._get_columns(method="predict"))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Small ensembles of counts and of Normals."""
        small: dict[str, Any] = {"members": 2, "hidden": (8,), "epochs": 3, "random_state": 0}
        return [{"estimator": DDPNRegressor(likelihood=name, **small)} for name in ("double_poisson", "gaussian")]


def _named(X: Any) -> Any:
    """X with text for column names: skpro allows numbers among them, scikit-learn does not."""
    return X.set_axis([str(name) for name in X.columns], axis=1)
