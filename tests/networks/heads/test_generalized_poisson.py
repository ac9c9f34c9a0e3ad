"""The Generalised Poisson head against statsmodels and glmmTMB."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch

from ddpn import CountGLM
from ddpn.networks.heads import GeneralizedPoissonHead, PoissonHead, make_head
from ddpn.runtime.errors import ConfigError


@pytest.mark.parametrize("power", [1, 2])
def test_start_is_statsmodels_fit(power):
    rng = np.random.default_rng(6)
    y = rng.negative_binomial(2.0, 2.0 / 7.0, 400)
    model = sm.GeneralizedPoisson(y, np.ones(400), p=power)
    fit = model.fit(disp=False, method="bfgs", maxiter=500, gtol=1e-6)
    head = GeneralizedPoissonHead(power=power)
    start = head.start(torch.tensor(y))
    assert start.tolist() == pytest.approx([fit.params[0], np.log(fit.params[1])], abs=1e-4)
    assert head.loss(start, torch.tensor(y)).sum().item() == pytest.approx(-fit.llf, rel=1e-9)


def test_glm_is_statsmodels_fit():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(250, 2))
    y = rng.negative_binomial(3.0, 3.0 / (3.0 + np.exp(1.0 + 0.5 * X[:, 0] - 0.3 * X[:, 1])))
    fit = sm.GeneralizedPoisson(y, sm.add_constant(X), p=1).fit(disp=False, method="bfgs", maxiter=500, gtol=1e-6)
    glm = CountGLM(likelihood="generalized_poisson", dispersion="constant").fit(X, y)
    found = [glm.intercept_[0], *glm.coef_[0], np.exp(glm.intercept_[1])]
    np.testing.assert_allclose(found, fit.params, rtol=1e-4, atol=1e-5)
    assert glm.loglik_ == pytest.approx(fit.llf, rel=1e-9)


def test_tends_to_poisson():
    raw, y = torch.tensor([2.0, -50.0], dtype=torch.float64), torch.tensor([0, 3, 40])
    torch.testing.assert_close(GeneralizedPoissonHead().loss(raw, y), PoissonHead().loss(raw[:1], y), rtol=1e-6, atol=0)


def test_it_can_be_mixed_and_has_two_powers():
    head = make_head(["poisson", "generalized_poisson"])
    assert torch.isfinite(head.loss(head.start(torch.tensor([0, 1, 1, 7, 20])), torch.tensor([0, 9]))).all()
    with pytest.raises(ConfigError, match="power must be 1 or 2, got 3"):
        GeneralizedPoissonHead(power=3)
