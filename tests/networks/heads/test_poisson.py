"""The Poisson head against scipy and statsmodels."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from scipy import stats

from ddpn.networks.heads import PoissonHead


def test_loss_is_scipys():
    log_mu, y = np.meshgrid(np.linspace(-13.0, 8.0, 30), [0, 1, 7, 100, 3000])
    loss = PoissonHead().loss(torch.tensor(log_mu).unsqueeze(-1), torch.tensor(y))
    np.testing.assert_allclose(loss, -stats.poisson.logpmf(y, np.exp(log_mu)), rtol=1e-11, atol=1e-11)


def test_gradient_is_mu_minus_y():
    raw = torch.tensor([[-2.0], [0.0], [5.0]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 3, 100])
    (slope,) = torch.autograd.grad(PoissonHead().loss(raw, y).sum(), raw)
    torch.testing.assert_close(slope.squeeze(1), raw.detach().exp().squeeze(1) - y, rtol=1e-13, atol=1e-12)


def test_start_is_that_of_a_glm():
    rng = np.random.default_rng(5)
    y, exposure, weight = rng.poisson(3.0, 80), rng.uniform(0.2, 4.0, 80), rng.integers(0, 5, 80)
    glm = sm.GLM(y, np.ones(80), family=sm.families.Poisson(), exposure=exposure, freq_weights=weight).fit(tol=1e-14)
    start = PoissonHead().start(torch.tensor(y), torch.tensor(weight), torch.tensor(exposure))
    assert start.item() == pytest.approx(glm.params[0], rel=1e-9)
