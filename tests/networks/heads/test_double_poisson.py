"""Test DDPN against the paper's formulas, sums over the integers and identities of the exponential family."""

import math

import numpy as np
import pytest
import torch

from ddpn.networks.heads import DoublePoissonHead, make_head
from ddpn.runtime.errors import ConfigError

MU = (0.05, 0.7, 3.0, 12.5, 400.0)
GAMMA = (0.02, 0.4, 1.0, 2.5, 4.9)
COUNTS = (0, 1, 2, 13, 390)
GRID = [(mu, gamma, y) for mu in MU for gamma in GAMMA for y in COUNTS]
BETAS = (0.0, 0.3, 0.5, 1.0)


@pytest.fixture(scope="module")
def columns() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mu, gamma, y = np.array(GRID).T
    return torch.tensor(mu), torch.tensor(gamma), torch.tensor(y)


def make_raw(mu, gamma) -> torch.Tensor:
    return torch.stack([mu.log(), gamma.log()], dim=-1).requires_grad_()


def compute_y_term(mu, y):
    """Return y (1 + log mu - log y), which is 0 at y = 0."""
    return torch.where(y > 0, y * (1 + mu.log() - y.clamp(min=1).log()), 0.0)


def compute_partials(head, mu, gamma, y):
    """Return autograd's derivatives by mu and gamma, by the chain rule from those by raw outputs."""
    raw = make_raw(mu, gamma)
    (slope,) = torch.autograd.grad(head.loss(raw, y).sum(), raw)
    return slope[:, 0] / mu, slope[:, 1] / gamma


@pytest.mark.parametrize("beta", BETAS)
def test_paper_objective_is_equation_2_and_3(columns, beta):
    mu, gamma, y = columns
    loss = DoublePoissonHead(objective="paper", beta=beta).loss(make_raw(mu, gamma), y)
    printed = -gamma.log() / 2 + gamma * mu - gamma * compute_y_term(mu, y)
    torch.testing.assert_close(loss, gamma**-beta * printed, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("beta", BETAS)
def test_partial_derivatives_are_the_printed_ones_with_any_beta(columns, beta):
    mu, gamma, y = columns
    by_mu, by_gamma = compute_partials(DoublePoissonHead(objective="paper", beta=beta), mu, gamma, y)
    torch.testing.assert_close(by_mu, gamma ** (1 - beta) * (1 - y / mu), rtol=1e-11, atol=1e-11)
    printed = -1 / (2 * gamma ** (1 + beta)) + gamma**-beta * (mu - compute_y_term(mu, y))
    torch.testing.assert_close(by_gamma, printed, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize(
    "draw", [lambda rng: rng.binomial(20, 0.9, 500), lambda rng: rng.negative_binomial(2, 0.3, 500)]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_paper_start_has_a_closed_form(draw, weighted):
    """Set the printed partial derivatives to 0: mu = mean, 1 / gamma = 2 mean (y log(y / mu) - y + mu)."""
    rng = np.random.default_rng(1)
    y = draw(rng)
    weight = rng.uniform(size=500) if weighted else np.ones(500)
    mu, gamma = DoublePoissonHead(objective="paper").start(torch.tensor(y), torch.tensor(weight)).exp().tolist()
    mean = np.average(y, weights=weight)
    deviance = y * np.log(np.maximum(y, 1) / mean) - y + mean
    assert mu == pytest.approx(mean, rel=1e-12)
    assert gamma == pytest.approx(1 / (2 * np.average(deviance, weights=weight)), rel=1e-10)


@pytest.mark.parametrize(
    "draw", [lambda rng: rng.binomial(20, 0.9, 500), lambda rng: rng.negative_binomial(2, 0.3, 500)]
)
def test_exact_start_matches_the_sufficient_statistics(draw):
    """In an exponential family E[Z] and E[Z log Z], summed here, equal the means of the data."""
    y = draw(np.random.default_rng(1))
    mu, gamma = DoublePoissonHead().start(torch.tensor(y)).exp().tolist()
    z = np.arange(2000.0)
    z_log_z = z * np.log(np.maximum(z, 1))
    log_factorial = np.cumsum(np.log(np.maximum(z, 1)))
    log_weight = z_log_z - z - log_factorial - gamma * (mu - z + z_log_z - z * np.log(mu))
    p = np.exp(log_weight - log_weight.max())
    p /= p.sum()
    assert p @ z == pytest.approx(y.mean(), rel=1e-5)
    assert p @ z_log_z == pytest.approx((y * np.log(np.maximum(y, 1))).mean(), rel=1e-5)


def test_the_start_of_0_1_data_is_a_bernoulli():
    """The exact objective finds Bernoulli(0.1), where Eq. 2 finds a distribution of mean 0.02."""
    y = torch.tensor([1.0] * 10 + [0.0] * 90)
    exact, paper = (DoublePoissonHead(objective=objective) for objective in ("exact", "paper"))
    dist = exact(exact.start(y))
    assert dist.mean.item() == pytest.approx(0.1, rel=1e-3)
    entropy = -(0.1 * math.log(0.1) + 0.9 * math.log(0.9))
    assert -dist.log_prob(y).mean().item() == pytest.approx(entropy, abs=2e-4)
    assert paper(paper.start(y)).mean.item() < 0.03


# By the exact mean ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exposure", [None, 0.01, 250.0])
def test_the_mean_is_the_exponential_of_the_first_raw_output(exposure):
    raw = torch.cartesian_prod(torch.tensor([-5.0, 0.5, 4.0]), torch.tensor([-4.0, -1.0, 0.0, 1.0])).double()
    scale = None if exposure is None else torch.full((len(raw),), exposure, dtype=torch.float64)
    dist = make_head("double_poisson", location="mean")(raw, scale)
    expected = raw[:, 0].exp() * (1.0 if exposure is None else exposure)
    torch.testing.assert_close(dist.mean, expected, rtol=1e-12, atol=0)
    assert make_head("double_poisson", location="mean").parameter_names == ("log mean", "log gamma")


def test_zeros_of_their_own_leave_the_mean_of_the_base():
    raw = torch.tensor([[0.7, -1.5, 0.0]], dtype=torch.float64)
    dist = make_head("zero_inflated_double_poisson", location="mean")(raw)
    assert dist.mean.item() == pytest.approx(0.5 * np.exp(0.7), rel=1e-9)


def test_the_objective_of_the_paper_has_no_exact_mean():
    with pytest.raises(ConfigError, match='cannot be combined with `objective="paper"`'):
        make_head("double_poisson", location="mean", objective="paper")
