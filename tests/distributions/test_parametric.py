"""Test derivatives: closed forms numerically and against direct sums, and finite values over the whole domain."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.distributions import kl_divergence

from ddpn import DDPNError, DoublePoisson, NegativeBinomial, Poisson
from ddpn.distributions import Censored, Truncated

#: (mu, gamma, y) of bells of all widths and of narrow ones, at y = 0 and in both tails.
REGIMES = {
    "series": [(50.0, 2.0, 47.0), (300.0, 0.2, 500.0), (1e5, 3.0, 1.001e5), (40.0, 1.0, 0.0)],
    "table": [(3.0, 0.8, 0.0), (0.01, 2.0, 1.0), (7.3, 30.0, 7.0), (12.0, 1.5, 20.0)],
    "local": [(100.3, 150.0, 100.0), (500.6, 2000.0, 501.0), (80.5, 70.0, 78.0)],
    "wide": [(10.0, 0.1, 0.0), (200.0, 0.05, 350.0), (1e-3, 0.01, 2.0), (30.0, 0.4, 31.0)],
}
REGIME_NAMES = [pytest.param(name, id=name) for name in REGIMES]


def make_leaf(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def make_log_leaves(regime: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return log mu and log gamma, to differentiate by, and y."""
    mu, gamma, y = zip(*REGIMES[regime], strict=True)
    return make_leaf(np.log(mu)), make_leaf(np.log(gamma)), torch.tensor(y, dtype=torch.float64)


def compute_second_derivatives(f, log_mu, log_gamma, by: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return d^2 f / dx_by d(x_0, x_1) row by row: autograd's, and the difference of autograd's first derivatives."""

    def slopes(a, b) -> torch.Tensor:
        return torch.stack(torch.autograd.grad(f(a, b).sum(), (a, b), create_graph=True))

    at = [log_mu, log_gamma]
    first = slopes(*at)[by]
    got = torch.stack(torch.autograd.grad(first.sum(), at))
    step = 2e-6
    up, down = ([x.detach() + (s if i == by else 0.0) for i, x in enumerate(at)] for s in (step, -step))
    up, down = ([x.requires_grad_() for x in point] for point in (up, down))
    return got, (slopes(*up).detach() - slopes(*down).detach()) / (2 * step)


class TestNumerically:
    @pytest.mark.parametrize("regime", REGIME_NAMES)
    def test_derivatives_of_log_prob_are_numerical_ones(self, regime):
        log_mu, log_gamma, y = make_log_leaves(regime)
        log_prob = lambda a, b: DoublePoisson(a.exp(), b.exp()).log_prob(y)
        assert gradcheck(log_prob, (log_mu, log_gamma), eps=1e-6, atol=1e-5, rtol=1e-5)
        assert gradgradcheck(log_prob, (log_mu, log_gamma), eps=1e-6, atol=1e-4, rtol=1e-4)

    @pytest.mark.parametrize("regime", REGIME_NAMES)
    @pytest.mark.parametrize("name", ["mean", "variance", "stddev"])
    def test_derivatives_of_moments_are_numerical_ones(self, regime, name):
        log_mu, log_gamma, _ = make_log_leaves(regime)
        moment = lambda a, b: getattr(DoublePoisson(a.exp(), b.exp()), name)
        assert gradcheck(moment, (log_mu, log_gamma), eps=1e-6, atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize("regime", REGIME_NAMES)
    def test_second_derivatives_of_the_log_normalizer_are_numerical_ones(self, regime):
        log_mu, log_gamma, _ = make_log_leaves(regime)
        log_c = lambda a, b: DoublePoisson(a.exp(), b.exp()).log_normalizer()
        for by in (0, 1):
            got, numeric = compute_second_derivatives(log_c, log_mu, log_gamma, by)
            torch.testing.assert_close(got, numeric, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("regime", REGIME_NAMES)
    def test_derivatives_of_the_divergence_are_numerical_ones(self, regime):
        log_mu, log_gamma, _ = make_log_leaves(regime)
        other = DoublePoisson(log_mu.detach().exp() * 1.2, log_gamma.detach().exp() * 0.8)
        to = lambda a, b: kl_divergence(DoublePoisson(a.exp(), b.exp()), other)
        back = lambda a, b: kl_divergence(other, DoublePoisson(a.exp(), b.exp()))
        assert gradcheck(to, (log_mu, log_gamma), eps=1e-6, atol=1e-5, rtol=1e-4)
        assert gradcheck(back, (log_mu, log_gamma), eps=1e-6, atol=1e-5, rtol=1e-4)


class TestClosedForms:
    def test_the_score_is_its_closed_form(self, random_sums, assert_within):
        """d log p / d mu = gamma (y - E[Z]) / mu and d log p / d gamma = E[D] - D(y), with moments summed directly."""
        mu, gamma = make_leaf([o.mu for o in random_sums]), make_leaf([o.gamma for o in random_sums])
        rng = np.random.default_rng(3)
        y = np.array([o.count_at(rng.uniform(), depth=20.0) for o in random_sums])
        DoublePoisson(mu, gamma).log_prob(torch.from_numpy(y)).sum().backward()
        at = {"mu": mu.detach(), "gamma": gamma.detach(), "y": y}
        for o, count, by_mu, by_gamma in zip(random_sums, y, mu.grad.tolist(), gamma.grad.tolist(), strict=True):
            mean, mean_deviance = o.sums.mean, o.sums.expectation(o.deviance)
            deviance = float(o.deviance[int(count) - o.sums.first])
            # Relative to what y and its expectation bring, of which the score is the difference.
            assert by_mu == pytest.approx(
                o.gamma * (count - mean) / o.mu, abs=1e-8 * o.gamma * max(count, mean) / o.mu
            ), at
            assert by_gamma == pytest.approx(
                mean_deviance - deviance, rel=1e-8, abs=max(1e-7 * max(mean_deviance, deviance), 1e-18)
            )

    @pytest.mark.parametrize(
        ("mu", "gamma"), [(5.0, 2.0), (0.3, 0.2), (60.0, 1.5), (30.0, 0.1), (90.4, 80.0), (2.0, 40.0)]
    )
    def test_fisher_information_is_the_covariance_of_the_score(self, sum_double_poisson, mu, gamma):
        """-E[Hessian] = Cov[score] = the exponential family's formula, with expectations summed over all counts."""
        o = sum_double_poisson(mu, gamma)
        keep = o.sums.p > 1e-30
        y, p = torch.from_numpy(o.sums.y[keep].astype(float)), torch.from_numpy(o.sums.p[keep].astype(float))
        m, g = make_leaf([mu]), make_leaf([gamma])
        rows = (m.expand(len(y)).clone(), g.expand(len(y)).clone())
        score = torch.autograd.grad(DoublePoisson(*rows).log_prob(y).sum(), rows, create_graph=True)
        hessian = [[h * p for h in torch.autograd.grad(s.sum(), rows, retain_graph=True)] for s in score]
        expected = torch.tensor([[h.sum() for h in row] for row in hessian])
        s = torch.stack(score).detach()
        torch.testing.assert_close(
            (s * p).sum(1), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-8 * gamma + 1e-8
        )
        covariance = (s * p) @ s.T
        z, d = o.sums.y - o.sums.mean, o.deviance - o.sums.expectation(o.deviance)
        family = [
            [gamma**2 * o.sums.variance / mu**2, -gamma / mu * o.sums.expectation(z * d)],
            [-gamma / mu * o.sums.expectation(z * d), o.sums.expectation(d * d)],
        ]
        scale = 1e-7 * covariance.diagonal().sqrt().outer(covariance.diagonal().sqrt())
        assert ((covariance - torch.tensor(family, dtype=torch.float64)).abs() <= scale).all()
        assert ((-expected - covariance).abs() <= scale).all()


class TestFinite:
    LOG_MU = torch.linspace(-14.0, 16.0, 61, dtype=torch.float64)
    LOG_GAMMA = torch.linspace(-9.2, 9.2, 47, dtype=torch.float64)

    @pytest.mark.parametrize("y", [0.0, 1.0, 7.0, 1000.0, 1e7])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_log_prob_and_its_derivatives_are_finite_everywhere(self, y, dtype):
        log_mu, log_gamma = (
            x.to(dtype).flatten().requires_grad_() for x in torch.meshgrid(self.LOG_MU, self.LOG_GAMMA, indexing="ij")
        )
        value = DoublePoisson(log_mu.exp(), log_gamma.exp()).log_prob(torch.tensor(y))
        first = torch.autograd.grad(value.sum(), (log_mu, log_gamma), create_graph=True)
        for tensor in (value, *first):
            assert torch.isfinite(tensor).all()
        for by in first:
            for second in torch.autograd.grad(by.sum(), (log_mu, log_gamma), retain_graph=True):
                assert torch.isfinite(second).all()

    def test_moments_and_their_gradients_are_finite_everywhere(self):
        log_mu, log_gamma = (
            x.flatten().requires_grad_() for x in torch.meshgrid(self.LOG_MU, self.LOG_GAMMA, indexing="ij")
        )
        dist = DoublePoisson(log_mu.exp(), log_gamma.exp())
        for value in (dist.log_normalizer(), dist.mean, dist.variance):
            assert torch.isfinite(value).all()
            for by in torch.autograd.grad(value.sum(), (log_mu, log_gamma), retain_graph=True):
                assert torch.isfinite(by).all()
        assert (dist.variance >= 0).all()


class TestWithoutGradient:
    MAKERS = {
        "DoublePoisson": lambda x: DoublePoisson(x, 0.5),
        "Poisson": lambda x: Poisson(x),
        "NegativeBinomial": lambda x: NegativeBinomial(x, 0.5),
    }

    @pytest.mark.parametrize("dist", MAKERS)
    @pytest.mark.parametrize("method", ["cdf", "survival", "crps", "entropy"])
    def test_backward_through_a_score_is_refused(self, dist, method):
        mu = torch.tensor([3.0, 200.0], requires_grad=True)
        bound = getattr(self.MAKERS[dist](mu), method)
        value = bound() if method == "entropy" else bound(torch.tensor(4.0))
        assert value.requires_grad
        with pytest.raises(DDPNError, match=rf"{dist}\.{method} has no gradient.*log_prob"):
            (2.0 * value).sum().backward()

    def test_results_without_gradients_record_nothing(self):
        dist = DoublePoisson(torch.tensor(3.0), 0.5)
        assert not dist.crps(4).requires_grad
        with torch.no_grad():
            assert not DoublePoisson(torch.tensor(3.0, requires_grad=True), 0.5).crps(4).requires_grad

    def test_counts_have_no_gradients(self):
        dist = DoublePoisson(torch.tensor(3.0, requires_grad=True), 0.5)
        for value in (dist.mode, dist.icdf(torch.tensor(0.3)), *dist.interval(0.9), dist.sample()):
            assert not value.requires_grad


def test_broadcast_parameters_sum_their_gradients():
    mu, gamma = make_leaf([2.0, 40.0]), make_leaf([[0.5], [1.0], [4.0]])
    y = torch.tensor([1.0, 35.0])
    DoublePoisson(mu, gamma).log_prob(y).sum().backward()
    rows = make_leaf([2.0, 40.0] * 3), make_leaf([0.5, 0.5, 1.0, 1.0, 4.0, 4.0])
    DoublePoisson(*rows).log_prob(y.repeat(3)).sum().backward()
    torch.testing.assert_close(mu.grad, rows[0].grad.view(3, 2).sum(0))
    torch.testing.assert_close(gamma.grad, rows[1].grad.view(3, 2).sum(1, keepdim=True))


@pytest.mark.parametrize("rows", [40, 4000], ids=["few rows, summed", "many rows, by a table"])
def test_training_steps_have_the_digits_of_float32_where_dispersions_are_large(rows):
    """Networks that separate zeros from large counts have means and gammas as small as clamps allow."""
    rng = np.random.default_rng(0)
    mu, gamma = np.exp(rng.uniform(-16.0, 14.0, rows)), np.exp(rng.uniform(-18.0, -6.0, rows))
    columns = [torch.from_numpy(values) for values in (np.floor(mu * rng.gamma(0.5, 2.0, rows)), mu, gamma)]
    short, exact = (np.asarray(DoublePoisson.evaluate_kernel(name, columns))[:3] for name in ("float32", "log_prob"))
    error = np.abs(short - exact) * np.stack([np.ones(rows), mu, gamma])
    assert error[0].max() < 2e-6
    assert error[1:].max() < 1e-5
    assert (error.max() == 0.0) == (rows < 100)


def test_training_steps_have_the_digits_of_float32_for_counts_of_millions():
    """Where mu is beyond the usual table, down to the smallest gamma that heads allow there, and beyond both."""
    rng = np.random.default_rng(0)
    mu = np.exp(rng.uniform(13.5, 18.0, 2000))
    gamma = np.exp(rng.uniform(np.log(np.where(mu < np.exp(16.0), 0.2, 10.0) / mu), 0.0))
    y = np.floor(mu * rng.gamma(1.0 / (0.1 + gamma), 0.1 + gamma))
    columns = [torch.from_numpy(values) for values in (y, mu, gamma)]
    short, exact = (np.asarray(DoublePoisson.evaluate_kernel(name, columns))[:3] for name in ("float32", "log_prob"))
    assert (short[1:] != exact[1:]).any(0).mean() > 0.98  # by tables
    scale = np.maximum(np.abs(exact[0]), 1.0)
    assert (np.abs(short[0] - exact[0]) / scale).max() < 1e-6
    assert (np.abs(short - exact)[1:] * np.stack([mu, gamma]) / scale).max() < 1e-6


@pytest.mark.parametrize("depth", [5.0, 20.0, 37.0, 60.0])
def test_a_bracket_omits_as_much_as_its_depth_says(depth):
    for dist in (
        DoublePoisson(*torch.tensor([[0.3, 40.0, 3e4], [2.0, 0.4, 0.7]], dtype=torch.float64)),
        NegativeBinomial(torch.tensor([3.0, 500.0], dtype=torch.float64), 0.4),
    ):
        first, last = dist.bracket(depth)
        before = torch.where(first > 0, dist.cdf(first - 1.0), 0.0)
        assert (before + dist.survival(last) < 3.0 * math.exp(-depth)).all()
        inner_first, inner_last = dist.bracket(0.5 * depth)
        assert ((first <= inner_first) & (inner_last <= last) & (inner_last - inner_first < last - first)).all()


@pytest.mark.parametrize("change", [lambda base: Truncated(base, 1, 9), lambda base: Censored(base, 4)])
def test_transforms_of_ranges_are_refused_in_one_sentence(change):
    log_prob = lambda mu: change(Poisson(mu)).log_prob(torch.tensor(4.0))
    with pytest.raises(DDPNError, match=r"Poisson has no formula for torch\.func and torch\.compile"):
        torch.func.grad(log_prob)(torch.tensor(3.0))
