"""Test the warning about over-dispersion: rare for Poisson counts, and nearly sure for counts that vary more."""

import numpy as np
import pytest

from ddpn.estimators.dispersion import GoodnessOfFit, check_overdispersion
from ddpn.members.linear import fit_linear
from ddpn.networks.heads import make_head
from ddpn.rows.count_rows import CountRows


def measure_share_of_warnings(rows: int, mean: float, alpha: float, tables: int) -> float:
    """Return the share of tables with a warning; counts are Poisson for alpha = 0, else Negative Binomial."""
    warned = 0
    for seed in range(tables):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(rows, 2))
        rate = mean * np.exp(0.5 * X[:, 0])
        y = rng.poisson(rate) if alpha == 0.0 else rng.negative_binomial(1 / alpha, 1 / (1 + alpha * rate))
        if not y.any():
            continue
        fit = fit_linear(make_head("poisson"), X, CountRows(None, y.astype(float)), (True,), 1e-6)
        warned += bool(check_overdispersion(GoodnessOfFit.from_fit(fit, 0.0), 3))
    return warned / tables


@pytest.mark.parametrize(("rows", "mean"), [(20, 0.1), (30, 2.0), (50, 0.3), (400, 1.5)])
def test_poisson_counts_are_hardly_ever_called_overdispersed(rows, mean):
    assert measure_share_of_warnings(rows, mean, 0.0, 100) == 0.0


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_overdispersed_counts_are_noticed(alpha):
    assert measure_share_of_warnings(300, 1.65, alpha, 30) > 0.9
