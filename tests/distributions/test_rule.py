"""Sums of fixed shape in operations of torch, which GPUs take: against 50-digit sums, direct sums and the Poisson."""

import numpy as np
import pytest
import torch

from ddpn.distributions import DoublePoisson, rule

#: log p by the formula that autograd differentiates, and with the gradient in closed form, as on a GPU.
WAYS = {"recorded": rule.double_poisson, "closed form": rule.DoublePoissonLogProb.apply}


@pytest.fixture(params=WAYS)
def log_prob(request):
    return WAYS[request.param]


def leaf(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("number", "123")
def test_golden_rows(golden, assert_within, log_prob, number):
    y, expected = golden[f"y{number}"], golden[f"log_pmf{number}"]
    found = log_prob(y, golden["mu"], golden["gamma"])
    assert_within(found, expected, 1e-9, floor=1.0, mu=golden["mu"], gamma=golden["gamma"], y=y)


def test_direct_sums(random_laws, assert_within, log_prob):
    """log p with both derivatives, gamma (y - E[Z]) / mu and E[D] - D(y)."""
    mu, gamma = leaf([o.mu for o in random_laws]), leaf([o.gamma for o in random_laws])
    rng = np.random.default_rng(3)
    y = np.array([o.count_at(rng.uniform(), depth=20.0) for o in random_laws])
    at = {"mu": mu.detach(), "gamma": gamma.detach(), "y": y}
    value = log_prob(torch.from_numpy(y), mu, gamma)
    value.sum().backward()
    laws = list(zip(random_laws, y, strict=True))
    assert_within(value.detach(), [o.law.log_pmf(count) for o, count in laws], 1e-9, floor=1.0, **at)
    # Relative to what y and its expectation bring, of which the score is the difference.
    scale = np.array([o.gamma * max(count, o.law.mean, 1e-6 * o.mu) / o.mu for o, count in laws])
    by_mu = np.array([o.gamma * (count - o.law.mean) / o.mu for o, count in laws])
    assert_within(mu.grad.numpy() / scale, by_mu / scale, 3e-9, floor=1.0, **at)
    own = np.array([float(o.deviance[int(count) - o.law.first]) for o, count in laws])
    mean = np.array([o.law.expectation(o.deviance) for o in random_laws])
    scale = np.maximum(own, mean) + 1.0 / gamma.detach().numpy()
    assert_within(gamma.grad.numpy() / scale, (mean - own) / scale, 3e-9, floor=1.0, **at)


def test_a_poisson_has_total_1(assert_within):
    """gamma = 1, from windows at 0 to means where only nodes are left."""
    mu = torch.logspace(-8, 12, 4001, dtype=torch.float64)
    sums = rule.double_poisson_sums(mu, torch.ones_like(mu))
    assert_within(sums.log_total, torch.zeros_like(mu), 1e-9, floor=1.0, mu=mu)
    assert_within(sums.mean, mu, 1e-9, mu=mu)
    assert_within(sums.variance, mu, 1e-8, mu=mu)


def test_joins(summed, assert_within, log_prob):
    """Where counts are joined to nodes, inside of the distribution, and where a window is just short enough."""
    pairs = [(mu, gamma) for mu in (14.0, 18.5, 23.3, 31.0, 44.9) for gamma in (0.3, 0.8, 1.2, 2.4, 6.4)]
    mu, gamma = torch.tensor(pairs, dtype=torch.float64).T.contiguous()
    expected = [summed(*pair).law.log_pmf(20) for pair in pairs]
    found = log_prob(torch.full_like(mu, 20.0), mu, gamma)
    assert_within(found, expected, 1e-9, floor=1.0, mu=mu, gamma=gamma)


def test_far_counts_are_finite(log_prob):
    mu, gamma = leaf([1e-6, 1e12, 3.0, 1e7]), leaf([1e4, 1.0, 1e-4, 1e4])
    value = log_prob(torch.tensor([1e7, 0.0, 1e12, 1.0], dtype=torch.float64), mu, gamma)
    slopes = torch.autograd.grad(value.sum(), (mu, gamma))
    assert all(torch.isfinite(x).all() for x in (value, *slopes))


class TestClosedForm:
    Y = torch.tensor([[0.0, 7.0, 70.0], [950.0, 41.0, 90.0]], dtype=torch.float64)

    def parameters(self) -> tuple[torch.Tensor, torch.Tensor]:
        return leaf([[0.3, 5.0, 80.0], [900.0, 40.5, 200.0]]), leaf([[2.0, 0.4, 1.0], [3.0, 50.0, 0.05]])

    def test_second_derivatives(self):
        found = []
        for log_prob in WAYS.values():
            given = self.parameters()
            slopes = torch.autograd.grad(log_prob(self.Y, *given).sum(), given, create_graph=True)
            found.append([torch.autograd.grad(slope.sum(), given, retain_graph=True) for slope in slopes])
        torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("learnt", [0, 1])
    def test_one_parameter_alone(self, learnt):
        expected = torch.autograd.grad(rule.double_poisson(self.Y, *(given := self.parameters())).sum(), given)[learnt]
        given = [x if i == learnt else x.detach() for i, x in enumerate(self.parameters())]
        value = rule.DoublePoissonLogProb.apply(self.Y, *given)
        (slope,) = torch.autograd.grad(value.sum(), given[learnt], create_graph=True)
        torch.testing.assert_close(slope, expected, rtol=1e-8, atol=1e-10)
        assert torch.isfinite(torch.autograd.grad(slope.sum(), given[learnt])[0]).all()

    def test_blocks_of_rows(self, monkeypatch):
        whole = rule.DoublePoissonLogProb.apply(self.Y, *self.parameters())
        monkeypatch.setattr(rule, "_MAX_BLOCK_ROWS", 4)
        torch.testing.assert_close(rule.DoublePoissonLogProb.apply(self.Y, *self.parameters()), whole, rtol=0, atol=0)

    def test_no_rows(self):
        empty = torch.zeros(0, 3, dtype=torch.float64)
        assert rule.DoublePoissonLogProb.apply(empty, empty + 1.0, empty + 1.0).shape == (0, 3)


def test_deviance_has_no_cancellation():
    mu = np.array([1e-3, 5.0, 1e6, 1e12])
    for step in (1e-7, 1e-3, 0.3):
        y = mu * (1.0 + step)
        exact_mu, exact_y = mu.astype(np.longdouble), y.astype(np.longdouble)
        gap = exact_y - exact_mu
        expected = (exact_y * np.log1p(gap / exact_mu) - gap).astype(float)
        found = rule.deviance(torch.from_numpy(y), torch.from_numpy(mu)).numpy()
        assert (np.abs(found - expected) <= 4e-16 * np.abs(y - mu)).all()
    zero = torch.zeros(1, dtype=torch.float64)
    assert rule.deviance(zero, zero + 2.5).item() == 2.5


@pytest.mark.parametrize(("gamma", "tolerance"), [(1e-4, 1e-9), (1e-3, 1e-9), (5e-8, 3e-6)])
def test_the_range_that_is_stated(assert_within, log_prob, gamma, tolerance):
    """Against the sums of the kernels, which are exact there."""
    mu = torch.logspace(-6, 5, 23, dtype=torch.float64)
    y, gammas = torch.full_like(mu, 3.0), torch.full_like(mu, gamma)
    expected = DoublePoisson(mu, gammas).log_prob(y)
    assert_within(log_prob(y, mu, gammas), expected, tolerance, floor=1.0, mu=mu)
