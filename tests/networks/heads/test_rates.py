"""Test likelihoods of a mean and a dispersion against scipy, statsmodels and glmmTMB."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch

from ddpn import CountGLM
from ddpn.networks.heads import make_head


def test_starts_are_fits_of_statsmodels():
    rng = np.random.default_rng(6)
    exposure, ones = rng.uniform(0.5, 3.0, 400), np.ones(400)
    y = rng.negative_binomial(2.0, 2.0 / (2.0 + 5.0 * exposure))
    models = {
        "poisson": sm.Poisson(y, ones, exposure=exposure),
        "negative_binomial": sm.NegativeBinomial(y, ones, loglike_method="nb2", exposure=exposure),
    }
    for name, model in models.items():
        fit = model.fit(disp=False, method="newton", maxiter=100, tol=1e-12)
        head = make_head(name)
        start = head.start(torch.tensor(y), None, torch.tensor(exposure))
        assert start.tolist() == pytest.approx([fit.params[0], *np.log(fit.params[1:])], abs=1e-4)
        loss = head.loss(start, torch.tensor(y), torch.tensor(exposure)).sum().item()
        assert loss == pytest.approx(-fit.llf, rel=1e-9)


def test_the_start_of_a_generalised_poisson_is_that_of_statsmodels():
    y = np.random.default_rng(6).negative_binomial(2.0, 2.0 / 7.0, 400)
    fit = sm.GeneralizedPoisson(y, np.ones(400), p=1).fit(disp=False, method="bfgs", maxiter=500, gtol=1e-6)
    head = make_head("generalized_poisson")
    start = head.start(torch.tensor(y))
    assert start.tolist() == pytest.approx([fit.params[0], np.log(fit.params[1])], abs=1e-4)
    assert head.loss(start, torch.tensor(y)).sum().item() == pytest.approx(-fit.llf, rel=1e-9)


# fmt: off
#: datasets::warpbreaks in R: 27 of wool A, then B; within each 9 of tension L, M and H.
BREAKS = np.array([
    26, 30, 54, 25, 70, 52, 51, 26, 67, 18, 21, 29, 17, 12, 18, 35, 30, 36, 36, 21, 24, 18, 10, 43, 28, 15, 26,
    27, 14, 29, 19, 29, 31, 41, 20, 44, 42, 26, 19, 16, 39, 28, 21, 39, 29, 20, 21, 24, 17, 13, 15, 15, 16, 28,
])
# fmt: on
#: R 4.2.2, glmmTMB 1.1.5: m <- glmmTMB(breaks ~ wool + tension, data = warpbreaks, family = compois()), with
#: glmmTMBControl(optCtrl = list(iter.max = 1e4, eval.max = 1e4, rel.tol = 1e-14)); fixef(m)$cond, sigma(m), logLik(m),
#: sqrt(diag(vcov(m)$cond)). sigma is 1 / nu of compois, and the variance over the mean, (1 + alpha)^2, of genpois.
GLMMTMB = {
    "conway_maxwell_poisson": (
        [3.690571606852, -0.204231517974, -0.319308207677, -0.518186744824],
        [0.0894155202027, 0.1008722206438, 0.1181630841818, 0.1248534035806],
        4.06798974289,
        -201.354072475,
    ),
    "generalized_poisson": (
        [3.652067229979, -0.167752988007, -0.292982242852, -0.465976976267],
        [0.093799448122, 0.100704611713, 0.118742511147, 0.123499829964],
        4.02287319705,
        -200.666259281,
    ),
}


@pytest.mark.parametrize("likelihood", GLMMTMB)
def test_a_glm_of_rates_agrees_with_glmmtmb(likelihood):
    coefficients, errors, sigma, loglik = GLMMTMB[likelihood]
    wool, tension = np.repeat([0, 1], 27), np.tile(np.repeat([0, 1, 2], 9), 2)
    X = np.stack([wool, tension == 1, tension == 2], axis=1).astype(float)
    glm = CountGLM(likelihood=likelihood, dispersion="constant").fit(X, BREAKS)
    np.testing.assert_allclose([glm.intercept_[0], *glm.coef_[0]], coefficients, atol=2e-5)
    np.testing.assert_allclose(glm.standard_errors_[:4], errors, rtol=1e-3)
    dispersion = np.exp(glm.intercept_[1])
    estimate = 1 / dispersion if likelihood.startswith("conway") else (1 + dispersion) ** 2
    assert estimate == pytest.approx(sigma, rel=1e-3)
    assert glm.loglik_ == pytest.approx(loglik, abs=1e-5)
