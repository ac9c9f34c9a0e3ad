"""Share members whose predictions are formulas, so that every answer of an explanation is known."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from ddpn.distributions import NegativeBinomial
from ddpn.members.member import Member
from ddpn.predictor import Predictor
from ddpn.tables.columns import ColumnTable


class Formula(Member):
    """A Negative Binomial whose log mean and alpha are functions of the columns."""

    def __init__(self, log_mean: Callable, alpha: Callable = lambda c: 1e-12) -> None:
        self.log_mean, self.alpha = log_mean, alpha

    def distribution(self, X: ColumnTable, exposure: Any = None) -> Any:
        cells = cells_by_name(X)
        size = len(next(iter(cells.values())))
        mean = np.exp(np.broadcast_to(self.log_mean(cells), size)) * (1.0 if exposure is None else exposure)
        alpha = np.broadcast_to(self.alpha(cells), size).copy()
        return NegativeBinomial(*(torch.from_numpy(values).unsqueeze(1) for values in (mean, alpha)))

    fit = state = from_state = None


def cells_by_name(X: ColumnTable) -> dict[str, np.ndarray]:
    """Return the columns of a table by name: numbers, or levels with None where missing."""
    return {column.name: column.cells() if column.is_category else column.values for column in X}


@pytest.fixture(scope="session")
def formula() -> Callable[..., Predictor]:
    """Make a predictor of members with these log means, mixed equally."""

    def make(*log_means: Callable, alpha: Callable = lambda c: 1e-12, **options: Any) -> Predictor:
        members = {f"m{i}": Formula(log_mean, alpha) for i, log_mean in enumerate(log_means)}
        return Predictor(members, **options)

    return make


@pytest.fixture(scope="session")
def frame() -> pd.DataFrame:
    """Correlated numbers, a category and a number with missing values, a flag, a constant."""
    rng = np.random.default_rng(1)
    n = 400
    x = rng.normal(size=n)
    return pd.DataFrame(
        {
            "x": x,
            "z": 0.8 * x + 0.6 * rng.normal(size=n),
            "ward": np.where(rng.random(n) < 0.2, None, rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])),
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.integers(20, 80, n)),
            "few": rng.integers(0, 4, n),
            "flag": rng.random(n) < 0.3,
            "same": 1.0,
        }
    )
