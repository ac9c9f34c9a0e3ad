"""Test sums of fixed shape in torch's operations, which GPUs take, against 50-digit sums and the Poisson."""

import numpy as np
import pytest
import torch

from ddpn.distributions import DoublePoisson, torch_formulas

#: log p by the formula that autograd differentiates, and with the gradient in closed form, as on a GPU.
WAYS = {"recorded": torch_formulas.double_poisson, "closed form": torch_formulas.DoublePoissonLogProb.apply}


@pytest.fixture(params=WAYS)
def log_prob(request):
    return WAYS[request.param]


def make_leaf(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("number", "123")
def test_log_prob_is_that_of_50_digit_sums(golden, assert_within, log_prob, number):
    y, expected = golden[f"y{number}"], golden[f"log_pmf{number}"]
    log_probs = log_prob(y, golden["mu"], golden["gamma"])
    assert_within(log_probs, expected, 1e-9, floor=1.0, mu=golden["mu"], gamma=golden["gamma"], y=y)


def test_log_prob_and_derivatives_are_those_of_direct_sums(random_sums, assert_within, log_prob):
    """Check log p with both derivatives, gamma (y - E[Z]) / mu and E[D] - D(y)."""
    mu, gamma = make_leaf([o.mu for o in random_sums]), make_leaf([o.gamma for o in random_sums])
    rng = np.random.default_rng(3)
    y = np.array([o.count_at(rng.uniform(), depth=20.0) for o in random_sums])
    at = {"mu": mu.detach(), "gamma": gamma.detach(), "y": y}
    value = log_prob(torch.from_numpy(y), mu, gamma)
    value.sum().backward()
    dists = list(zip(random_sums, y, strict=True))
    assert_within(value.detach(), [o.sums.log_pmf(count) for o, count in dists], 1e-9, floor=1.0, **at)
    # Relative to what y and its expectation bring, of which the score is the difference.
    scale = np.array([o.gamma * max(count, o.sums.mean, 1e-6 * o.mu) / o.mu for o, count in dists])
    by_mu = np.array([o.gamma * (count - o.sums.mean) / o.mu for o, count in dists])
    assert_within(mu.grad.numpy() / scale, by_mu / scale, 3e-9, floor=1.0, **at)
    deviances = np.array([float(o.deviance[int(count) - o.sums.first]) for o, count in dists])
    mean = np.array([o.sums.expectation(o.deviance) for o in random_sums])
    scale = np.maximum(deviances, mean) + 1.0 / gamma.detach().numpy()
    assert_within(gamma.grad.numpy() / scale, (mean - deviances) / scale, 3e-9, floor=1.0, **at)


def test_a_poisson_has_a_total_of_1(assert_within):
    """Take gamma = 1, from windows at 0 to means where only nodes are left."""
    mu = torch.logspace(-8, 12, 4001, dtype=torch.float64)
    sums = torch_formulas.double_poisson_sums(mu, torch.ones_like(mu))
    assert_within(sums.log_total, torch.zeros_like(mu), 1e-9, floor=1.0, mu=mu)
    assert_within(sums.mean, mu, 1e-9, mu=mu)
    assert_within(sums.variance, mu, 1e-8, mu=mu)


def test_counts_that_are_joined_to_nodes_keep_their_digits(sum_double_poisson, assert_within, log_prob):
    """Take counts where they are joined to nodes, inside the distribution, and where a window is just short enough."""
    pairs = [(mu, gamma) for mu in (14.0, 18.5, 23.3, 31.0, 44.9) for gamma in (0.3, 0.8, 1.2, 2.4, 6.4)]
    mu, gamma = torch.tensor(pairs, dtype=torch.float64).T.contiguous()
    expected = [sum_double_poisson(*pair).sums.log_pmf(20) for pair in pairs]
    log_probs = log_prob(torch.full_like(mu, 20.0), mu, gamma)
    assert_within(log_probs, expected, 1e-9, floor=1.0, mu=mu, gamma=gamma)


def test_far_counts_are_finite(log_prob):
    mu, gamma = make_leaf([1e-6, 1e12, 3.0, 1e7]), make_leaf([1e4, 1.0, 1e-4, 1e4])
    value = log_prob(torch.tensor([1e7, 0.0, 1e12, 1.0], dtype=torch.float64), mu, gamma)
    slopes = torch.autograd.grad(value.sum(), (mu, gamma))
    assert all(torch.isfinite(x).all() for x in (value, *slopes))


class TestClosedForm:
    Y = torch.tensor([[0.0, 7.0, 70.0], [950.0, 41.0, 90.0]], dtype=torch.float64)

    def parameters(self) -> tuple[torch.Tensor, torch.Tensor]:
        return make_leaf([[0.3, 5.0, 80.0], [900.0, 40.5, 200.0]]), make_leaf([[2.0, 0.4, 1.0], [3.0, 50.0, 0.05]])

    def test_second_derivatives_are_those_of_the_recorded_sum(self):
        derivatives = []
        for log_prob in WAYS.values():
            parameters = self.parameters()
            slopes = torch.autograd.grad(log_prob(self.Y, *parameters).sum(), parameters, create_graph=True)
            derivatives.append([torch.autograd.grad(slope.sum(), parameters, retain_graph=True) for slope in slopes])
        torch.testing.assert_close(derivatives[0], derivatives[1], rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("learnt", [0, 1])
    def test_one_parameter_alone_has_its_derivative(self, learnt):
        expected = torch.autograd.grad(
            torch_formulas.double_poisson(self.Y, *(parameters := self.parameters())).sum(), parameters
        )[learnt]
        parameters = [x if i == learnt else x.detach() for i, x in enumerate(self.parameters())]
        value = torch_formulas.DoublePoissonLogProb.apply(self.Y, *parameters)
        (slope,) = torch.autograd.grad(value.sum(), parameters[learnt], create_graph=True)
        torch.testing.assert_close(slope, expected, rtol=1e-8, atol=1e-10)
        assert torch.isfinite(torch.autograd.grad(slope.sum(), parameters[learnt])[0]).all()

    def test_blocks_of_rows_have_the_same_results(self, monkeypatch):
        whole = torch_formulas.DoublePoissonLogProb.apply(self.Y, *self.parameters())
        monkeypatch.setattr(torch_formulas, "_MAX_BLOCK_ROWS", 4)
        blocks = torch_formulas.DoublePoissonLogProb.apply(self.Y, *self.parameters())
        torch.testing.assert_close(blocks, whole, rtol=0, atol=0)

    def test_no_rows_have_no_results(self):
        empty = torch.zeros(0, 3, dtype=torch.float64)
        assert torch_formulas.DoublePoissonLogProb.apply(empty, empty + 1.0, empty + 1.0).shape == (0, 3)


def test_deviance_has_no_cancellation():
    mu = np.array([1e-3, 5.0, 1e6, 1e12])
    for step in (1e-7, 1e-3, 0.3):
        y = mu * (1.0 + step)
        exact_mu, exact_y = mu.astype(np.longdouble), y.astype(np.longdouble)
        gap = exact_y - exact_mu
        expected = (exact_y * np.log1p(gap / exact_mu) - gap).astype(float)
        deviances = torch_formulas.deviance(torch.from_numpy(y), torch.from_numpy(mu)).numpy()
        assert (np.abs(deviances - expected) <= 4e-16 * np.abs(y - mu)).all()
    zero = torch.zeros(1, dtype=torch.float64)
    assert torch_formulas.deviance(zero, zero + 2.5).item() == 2.5


@pytest.mark.parametrize(("gamma", "tolerance"), [(1e-4, 1e-9), (1e-3, 1e-9), (5e-8, 3e-6)])
def test_errors_stay_below_the_stated_ones_in_their_range(assert_within, log_prob, gamma, tolerance):
    """Compare with the sums of the kernels, which are exact in this range."""
    mu = torch.logspace(-6, 5, 23, dtype=torch.float64)
    y, gammas = torch.full_like(mu, 3.0), torch.full_like(mu, gamma)
    expected = DoublePoisson(mu, gammas).log_prob(y)
    assert_within(log_prob(y, mu, gammas), expected, tolerance, floor=1.0, mu=mu)
