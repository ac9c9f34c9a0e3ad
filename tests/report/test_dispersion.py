"""The dispersion finding on counts whose law is known."""

import numpy as np
import pytest
import torch

from ddpn import Poisson
from ddpn.report.dispersion import dispersion, pearson

RNG = np.random.default_rng(8)
M = RNG.uniform(2.0, 12.0, 1500)
COUNTS = {
    "equi-dispersed": RNG.poisson(M),
    "over-dispersed": RNG.negative_binomial(2.0, 2.0 / (2.0 + M)),
    "under-dispersed": RNG.binomial(np.ceil(2 * M).astype(int), M / np.ceil(2 * M)),
}


@pytest.mark.parametrize("finding", COUNTS)
def test_the_finding_is_that_of_the_law_drawn_from(finding):
    found = pearson(COUNTS[finding].astype(float), M, np.ones(len(M)))
    assert found.value == pytest.approx(np.mean((COUNTS[finding] - M) ** 2 / M))
    assert found.low < found.value < found.high
    assert found.finding == finding


def test_without_exposure_the_marginal_statistic_is_variance_over_mean(made):
    y = COUNTS["equi-dispersed"]
    found = dispersion(made(Poisson(torch.from_numpy(M)), y))
    assert found.marginal.value == pytest.approx(y.var() / y.mean())
    assert found.marginal.finding == "over-dispersed", "means differ between rows"
    assert found.conditional.finding == "equi-dispersed"


def test_exposure_explains_what_it_brings(made):
    y = COUNTS["equi-dispersed"]
    found = dispersion(made(Poisson(torch.from_numpy(M)), y, exposure=M))
    assert found.marginal.finding == "equi-dispersed"


def test_the_share_of_rows_below_is_of_predicted_variances(made):
    evidence = made(Poisson(torch.full((4,), 3.0).double()), [1, 2, 3, 4], weight=[1, 1, 1, 5])
    changed = evidence.model._replace(variance=np.array([2.0, 3.5, 3.1, 2.9]))
    assert dispersion(evidence._replace(model=changed)).share_below == pytest.approx(6 / 8)
