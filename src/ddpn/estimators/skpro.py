"""CountRegressor as a probabilistic regressor of skpro, and its predictions as a distribution of skpro."""

from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor
from torch.distributions import Distribution, Normal

from ddpn.distributions import Mixture, discretized
from ddpn.errors import ConfigError
from ddpn.estimators.regressor import CountRegressor

try:
    from skpro.distributions.base import BaseDistribution
    from skpro.regression.base import BaseProbaRegressor
except ImportError:
    raise ConfigError("skpro must be installed for its adapter, got no such package. Install ddpn[skpro].") from None


class CountLaw(BaseDistribution):
    """A count law a row, in one column: the uniform mixture of `members`, exact in all that it gives.

    `members` has batch shape (rows, M), or (M,) for a single law; Normals are taken as their integer laws
    (`discretized`). Between counts the cdf is that of the count below, and the pmf is 0.

    >>> import torch
    >>> from ddpn.distributions import Poisson
    >>> from ddpn.estimators.skpro import CountLaw
    >>> law = CountLaw(Poisson(torch.tensor([[1.0, 3.0], [2.0, 2.0]])))
    >>> law.mean()[0].tolist(), law.ppf(0.95)[0].tolist()
    ([2.0, 2.0], [5.0, 5.0])
    """

    _tags = {
        "capabilities:approx": [],
        "capabilities:exact": ["mean", "var", "energy", "pmf", "log_pmf", "cdf", "ppf"],
        "distr:measuretype": "discrete",
        "distr:paramtype": "composite",
    }

    def __init__(self, members: Distribution, index: Any = None, columns: Any = None) -> None:
        self.members = members
        if len(members.batch_shape) > 1:
            index = range(members.batch_shape[0]) if index is None else index
            columns = range(1) if columns is None else columns
        super().__init__(index=index, columns=columns)

    @property
    def _law(self) -> Any:
        return discretized(Mixture(self.members))

    def _subset_params(self, rowidx: Any, colidx: Any, coerce_scalar: bool = False) -> dict[str, Distribution]:
        # skpro's own subsetting takes every parameter for an array with a column for each of `columns`.
        if rowidx is None:
            return {"members": self.members}
        rows = torch.as_tensor(np.asarray(rowidx))
        parameters = {name: getattr(self.members, name)[rows] for name in self.members.arg_constraints}
        return {"members": type(self.members)(**parameters, validate_args=False)}

    def _frame(self, values: Tensor) -> np.ndarray:
        """One value a law, in this distribution's shape."""
        return values.double().numpy().reshape(self.shape)

    def _at_counts(self, x: np.ndarray) -> tuple[Tensor, Tensor]:
        """Numbers, one a law, and the counts below them (0 for negative ones, which have none)."""
        real = torch.as_tensor(np.array(x, dtype=np.float64)).reshape(self._law.batch_shape)
        return real, real.floor().clamp(min=0.0)

    def _mean(self) -> np.ndarray:
        return self._frame(self._law.mean)

    def _var(self) -> np.ndarray:
        return self._frame(self._law.variance)

    def _log_pmf(self, x: np.ndarray) -> np.ndarray:
        real, count = self._at_counts(x)
        return self._frame(torch.where(real == count, self._law.log_prob(count), -torch.inf))

    def _pmf(self, x: np.ndarray) -> np.ndarray:
        return np.exp(self._log_pmf(x))

    def _cdf(self, x: np.ndarray) -> np.ndarray:
        real, count = self._at_counts(x)
        return self._frame(torch.where(real < 0.0, 0.0, self._law.cdf(count)))

    def _ppf(self, p: np.ndarray) -> np.ndarray:
        levels = torch.as_tensor(np.array(p, dtype=np.float64)).reshape(self._law.batch_shape)
        return self._frame(self._law.icdf(levels))

    def _half_mean_difference(self) -> Tensor:
        """E|X - Y| / 2: CRPS(y) = E|X - y| - E|X - Y| / 2, and E|X - 0| is the mean."""
        return self._law.mean - self._law.crps(torch.zeros_like(self._law.mean))

    def _energy_self(self) -> np.ndarray:
        return self._frame(2.0 * self._half_mean_difference())

    def _energy_x(self, x: np.ndarray) -> np.ndarray:
        """E|X - x|, which is linear between two counts and below 0."""
        real, low = self._at_counts(x)
        below, above = (self._law.crps(count).double() for count in (low, low + 1.0))
        at_counts = torch.lerp(below, above, (real - low).clamp(min=0.0)) + self._half_mean_difference()
        return self._frame(torch.where(real < 0.0, self._law.mean - real, at_counts))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """A law a row, of counts and of Normals, and a single law: what skpro's checks make instances from."""
        from ddpn.distributions import DoublePoisson

        mu, spread = torch.tensor([[1.0, 2.0], [5.0, 9.0], [30.0, 31.0]]), torch.tensor([0.5, 2.0])
        return [
            {"members": DoublePoisson(mu, spread), "index": ["a", "b", "c"], "columns": ["y"]},
            {"members": Normal(mu, spread)},
            {"members": DoublePoisson(mu[0], spread)},
        ]


class CountRegressorSkpro(BaseProbaRegressor):
    """A `CountRegressor` behind skpro's interface: its pipelines, tuning, metrics and conformal wrappers.

    `estimator` says how to fit, and is left as it is (None: `CountRegressor()`); the fitted one is `estimator_`.

    >>> import pandas as pd
    >>> from ddpn import CountRegressor
    >>> from ddpn.estimators.skpro import CountRegressorSkpro
    >>> X = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0] * 5})
    >>> y = pd.DataFrame({"visits": [1, 2, 4, 9] * 5})
    >>> quick = CountRegressor(members=1, hidden=(), epochs=50, random_state=0)
    >>> law = CountRegressorSkpro(quick).fit(X, y).predict_proba(X.tail(2))
    >>> law.cdf(100).round(3)
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

    def __init__(self, estimator: CountRegressor | None = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, y: Any) -> "CountRegressorSkpro":
        chosen = CountRegressor() if self.estimator is None else clone(self.estimator)
        self.estimator_ = chosen.fit(_named(X), y.iloc[:, 0])
        return self

    def _predict_proba(self, X: Any) -> CountLaw:
        law = self.estimator_.predict_distribution(_named(X))
        return CountLaw(law.components, index=X.index, columns=self._get_columns(method="predict"))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Small ensembles on counts and on the line."""
        small: dict[str, Any] = {"members": 2, "hidden": (8,), "epochs": 3, "random_state": 0}
        return [{"estimator": CountRegressor(likelihood=name, **small)} for name in ("double_poisson", "gaussian")]


def _named(X: Any) -> Any:
    """X with text for column names: skpro allows numbers among them, scikit-learn does not."""
    return X.set_axis([str(name) for name in X.columns], axis=1)
