"""Test log_mass against 40-digit sums, scipy, finite differences and autograd through an explicit sum."""

import csv
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.autograd import gradcheck

from ddpn.distributions import DoublePoisson, Mixture, NegativeBinomial, Poisson, Truncated, ZeroInflated, log_mass
from ddpn.runtime.errors import InputError

FAMILIES = {
    "poisson": lambda mu, other: Poisson(mu + 0 * other),
    "negative_binomial": NegativeBinomial,
    "double_poisson": DoublePoisson,
}


def make_leaf(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.fixture(scope="module")
def rows(pytestconfig):
    """Rows of tests/reference/truncated_counts.csv by family."""
    path = pytestconfig.rootpath / "tests" / "reference" / "truncated_counts.csv"
    with path.open(newline="") as file:
        table = list(csv.DictReader(file))
    columns = {}
    for family in {row["family"] for row in table}:
        family_rows = [row for row in table if row["family"] == family]
        columns[family] = {
            k: torch.tensor([float(r[k]) for r in family_rows], dtype=torch.float64)
            for k in family_rows[0]
            if k != "family"
        }
        high = columns[family]["high"]
        columns[family]["high"] = torch.where(high < 0, torch.inf, high)
    return columns


@pytest.mark.parametrize("family", FAMILIES)
def test_masses_moments_and_scores_are_those_of_40_digit_sums(rows, family, assert_within):
    at = rows[family]
    log_mu, log_other = (at[k].log().requires_grad_() for k in ("mu", "other"))
    base = FAMILIES[family](log_mu.exp(), log_other.exp())
    got = log_mass(base, at["low"], at["high"])
    where = {k: at[k].numpy() for k in ("mu", "other", "low")}
    # log(1 - tiny) is relatively accurate.
    assert_within(got.detach(), at["log_mass"], 2e-9, **where)
    by_mu, by_other = torch.autograd.grad(got.sum(), (log_mu, log_other))
    assert_within(by_mu, at["by_log_mu"], 1e-8, **where)
    assert_within(by_other, at["by_log_other"], 1e-7, floor=1e-3, **where)
    dist = Truncated(FAMILIES[family](at["mu"], at["other"]), at["low"], at["high"])
    assert_within(dist.mean, at["mean"], 1e-9, **where)
    assert_within(dist.variance, at["variance"], 1e-7, **where)
    assert_within(dist.entropy(), at["entropy"], 1e-7, **where)
    assert_within(dist.cdf(at["y"]), at["cdf"], 1e-8, **where)
    assert_within(dist.crps(at["y"]), at["crps"], 1e-6, **where)


def test_upper_tails_are_those_of_scipy():
    mu, c = torch.tensor([2.0, 50.0, 1e4], dtype=torch.float64), torch.tensor([30, 90, 10300])
    np.testing.assert_allclose(log_mass(Poisson(mu), c), stats.poisson.logsf(c.numpy() - 1, mu.numpy()), rtol=1e-9)
    alpha = torch.tensor([0.3, 2.0, 1e-3], dtype=torch.float64)
    p = (1 / (1 + alpha * mu)).numpy()
    expected = stats.nbinom.logsf(c.numpy() - 1, (1 / alpha).numpy(), p)
    np.testing.assert_allclose(log_mass(NegativeBinomial(mu, alpha), c), expected, rtol=1e-8)
    # 50-digit sum; scipy's sf is off by 6e-4 here.
    assert log_mass(Poisson(torch.tensor(3e6).double()), 3_010_000).item() == pytest.approx(
        -19.3467566869056809, rel=1e-12
    )


RANGES = {
    "first count": (0.0, 0.0),
    "above zero": (1.0, math.inf),
    "upper": (60.0, math.inf),
    "both sides": (3.0, 45.0),
    "long": (20.0, 900.0),
    "far": (5000.0, math.inf),
    "empty": (7.0, 3.0),
}


@pytest.mark.parametrize("name", RANGES)
def test_gradients_are_finite_differences(name):
    low, high = RANGES[name]
    mu, other, raw = make_leaf(0.4, 8.0, 30.0, 250.0), make_leaf(0.5, 1.7, 0.2, 0.6), make_leaf(0.3, -1.0)

    def masses(mu, other, raw):
        mixture = Mixture(
            [DoublePoisson(mu, other), ZeroInflated(NegativeBinomial(mu, other), logits=raw.sum())], raw.softmax(0)
        )
        log_masses = torch.stack([log_mass(d, low, high) for d in (Poisson(mu), NegativeBinomial(mu, other), mixture)])
        return torch.where(torch.isfinite(log_masses), log_masses, 0.0)

    assert gradcheck(masses, (mu, other, raw), eps=1e-6, atol=1e-5, rtol=1e-5, fast_mode=True)


def test_gradients_are_those_of_an_explicit_sum():
    mu, gamma = make_leaf(700.0), make_leaf(0.05)
    z = torch.arange(400.0, 5000.0, dtype=torch.float64)
    expected = torch.autograd.grad(torch.logsumexp(DoublePoisson(mu, gamma).log_prob(z), 0), (mu, gamma))
    gradients = torch.autograd.grad(log_mass(DoublePoisson(mu, gamma), 400).sum(), (mu, gamma))
    torch.testing.assert_close(gradients, expected, rtol=1e-8, atol=1e-12)


def test_gradients_are_never_nan():
    mu = torch.logspace(-8, 8, 9, dtype=torch.float64)
    other = torch.tensor([[1e-3], [1.0], [1e3]], dtype=torch.float64)
    for family in FAMILIES.values():
        for low, high in ((0, None), (1, None), (10**9, None), (0, 0), (0, 10**12), (5, 4), (10**6, 10**6 + 50)):
            parameters = [x.expand(3, 9).clone().requires_grad_() for x in (mu, other)]
            value = log_mass(family(*parameters), low, high)
            assert not value.isnan().any()
            assert (value <= 0).all()
            if value.requires_grad:
                value.masked_fill(torch.isinf(value), 0.0).sum().backward()
                assert all(torch.isfinite(x.grad).all() for x in parameters)


def test_bounds_broadcast_and_nothing_is_summed_for_all_counts():
    dist = Poisson(torch.tensor([2.0, 5.0]))
    log_masses = log_mass(dist, torch.tensor([[0.0], [3.0], [4.0]]), torch.tensor([[math.inf], [3.0], [6.0]]))
    assert log_masses.shape == (3, 2)
    assert log_masses.dtype == torch.float32
    assert torch.equal(log_masses[0], torch.zeros(2))
    torch.testing.assert_close(log_masses[1], dist.log_prob(torch.tensor(3.0)))
    torch.testing.assert_close(log_masses[2].exp(), dist.cdf(torch.tensor(6)) - dist.cdf(torch.tensor(3)))
    assert torch.equal(log_mass(dist), torch.zeros(2))


def test_only_count_distributions_have_counts():
    with pytest.raises(InputError, match="count distribution"):
        log_mass(torch.distributions.Normal(0.0, 1.0), 1)


def test_crps_of_extreme_overdispersion_is_its_closed_form(rows):
    """Compare with Wei and Held (2014), alone and as a mixture; the score is never negative."""
    at = rows["overdispersed"]
    alone = NegativeBinomial(at["mu"], at["other"])
    for dist in (alone, Mixture([alone]), Mixture([alone, alone, alone])):
        np.testing.assert_allclose(dist.crps(at["y"]), at["crps"], rtol=2e-6)
    mu, alpha = torch.logspace(-2, 10, 7, dtype=torch.float64), torch.logspace(0, 6, 4, dtype=torch.float64)
    assert (NegativeBinomial(mu.unsqueeze(1), alpha).crps(torch.tensor([0.0, 3.0, 1e6]).view(3, 1, 1)) >= 0).all()


@pytest.mark.parametrize("sigmas", [-34, -10, -1, 0, 1, 10, 34])
@pytest.mark.parametrize("gamma", [1e6, 1e8])
def test_tails_of_narrow_distributions_of_huge_counts_are_sums(gamma, sigmas):
    """Sum all counts in extended precision: D by its series, h by Stirling's."""
    mu, deviation = 1e12 + 0.5, np.sqrt(1e12 / gamma)
    y = np.longdouble(1e12) + np.arange(-int(40 * deviation), int(40 * deviation) + 1)
    v = (y - mu) / (y + mu)
    log_w = -0.5 * np.log(y) - gamma * ((y - mu) * v + 2.0 * y * v**3 / 3.0)
    w = np.exp(log_w - log_w.max())
    count, dist = np.floor(1e12 + sigmas * deviation), DoublePoisson(torch.tensor(mu, dtype=torch.float64), gamma)
    is_side = y <= count if sigmas <= 0 else y > count
    tail = (dist.cdf if sigmas <= 0 else dist.survival)(torch.tensor(count, dtype=torch.float64)).item()
    assert tail == pytest.approx(float(w[is_side].sum() / w.sum()), rel=1e-11)
