"""The Negative Binomial head against scipy and statsmodels."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from scipy import stats

from ddpn.networks.heads import NegativeBinomialHead, PoissonHead


def test_loss_is_scipys():
    log_mu, log_alpha, y = np.meshgrid(np.linspace(-10.0, 7.0, 12), np.linspace(-7.0, 5.0, 9), [0, 1, 7, 100, 3000])
    loss = NegativeBinomialHead().loss(torch.tensor(np.stack([log_mu, log_alpha], -1)), torch.tensor(y))
    size = np.exp(-log_alpha)
    expected = -stats.nbinom.logpmf(y, size, size / (size + np.exp(log_mu)))
    np.testing.assert_allclose(loss, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("y", [0, 1, 40])
def test_tends_to_poisson(y):
    raw, count = torch.tensor([2.0, -50.0], dtype=torch.float64), torch.tensor(y)
    poisson = PoissonHead().loss(raw[:1], count).item()
    assert NegativeBinomialHead().loss(raw, count).item() == pytest.approx(poisson, rel=1e-7)


def test_start_is_statsmodels_fit():
    rng = np.random.default_rng(6)
    exposure = rng.uniform(0.5, 3.0, 400)
    y = rng.negative_binomial(2.0, 2.0 / (2.0 + 5.0 * exposure))
    model = sm.NegativeBinomial(y, np.ones(400), loglike_method="nb2", exposure=exposure)
    fit = model.fit(disp=False, method="newton", maxiter=100, tol=1e-12)
    start = NegativeBinomialHead().start(torch.tensor(y), None, torch.tensor(exposure))
    assert start.tolist() == pytest.approx([fit.params[0], np.log(fit.params[1])], abs=1e-4)
    loss = NegativeBinomialHead().loss(start, torch.tensor(y), torch.tensor(exposure)).sum().item()
    assert loss == pytest.approx(-fit.llf, rel=1e-9)


def test_start_of_underdispersed_counts_is_nearly_poisson():
    y = torch.tensor(np.random.default_rng(1).binomial(20, 0.9, 300))
    dist = NegativeBinomialHead()(NegativeBinomialHead().start(y))
    assert dist.mean.item() == pytest.approx(y.double().mean().item(), rel=1e-5)
    assert dist.variance.item() == pytest.approx(dist.mean.item(), rel=1e-3)
