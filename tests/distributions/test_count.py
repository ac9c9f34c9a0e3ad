"""Test the contract of three methods against sums over every integer: whatever pmf a subclass has, all else follows."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from ddpn.distributions import (
    CountDistribution,
    DoublePoisson,
    Mixture,
    NegativeBinomial,
    Poisson,
    discretize,
    log_mass,
)
from ddpn.metrics import crps, evaluate
from ddpn.runtime.errors import DDPNError, InputError


class Empirical(CountDistribution):
    """The distribution of some neighbours' counts: as rough as a pmf can be."""

    def __init__(self, counts: Tensor) -> None:
        self.counts = counts
        super().__init__(counts.shape[:-1])

    def log_prob(self, value: Tensor) -> Tensor:
        shares = torch.arange(self.counts.shape[-1] + 1.0, dtype=self.counts.dtype) / self.counts.shape[-1]
        return shares.log()[(torch.as_tensor(value).unsqueeze(-1) == self.counts).sum(-1, dtype=torch.int32)]

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        return self.counts.amin(-1), self.counts.amax(-1)

    def rows(self, index: Tensor) -> "Empirical":
        return Empirical(self.counts[index])


#: Few and many, with gaps and ties; windows below 16, below 128, far from 0, long, and of one count.
COUNTS = torch.tensor(
    [
        [0, 0, 3, 7, 7, 1],
        [40, 90, 90, 41, 100, 0],
        [1000, 1003, 1003, 1100, 1001, 1002],
        [5, 700, 20, 5000, 5000, 33],
        [4, 4, 4, 4, 4, 4],
        [70_000, 0, 12, 70_000, 69_998, 3],
    ],
    dtype=torch.float64,
)
#: Rounding of sums of shares such as 1/6.
SLACK = 1e-12
LEVELS = [0.0, 1e-9, 1 / 6, 0.2, 1 / 3, 0.5, 2 / 3, 0.9, 1 - 1e-9]
#: Components of other families, with weights, to mix with the first rows.
OTHERS = {
    "alone": [],
    "short": [(Poisson(2.0), 0.31), (NegativeBinomial(4.0, 0.5), 0.23)],
    "long": [(DoublePoisson(3000.0, 0.2), 0.47), (Poisson(150.0), 0.12)],
    "narrow and wide": [(DoublePoisson(900.0, 200.0), 0.27), (DoublePoisson(2e4, 0.05), 0.24), (Poisson(1.0), 0.0)],
}


def make_blend(name: str) -> tuple[CountDistribution, np.ndarray]:
    """Mix the empirical distributions with others, and return probabilities of every integer from 0, (rows, n)."""
    base, others = Empirical(COUNTS), OTHERS[name]
    y = torch.arange(80_000.0, dtype=torch.float64)
    masses = [base.log_prob(y.unsqueeze(1)).exp().T]
    if not others:
        return base, masses[0].numpy()
    weights = [1.0 - sum(w for _, w in others), *(w for _, w in others)]
    for dist, _ in others:
        wide = type(dist)(*(getattr(dist, name).double() for name in dist.arg_constraints))
        masses.append(wide.log_prob(y).exp().expand(len(COUNTS), -1))
    pmf = sum(w * p for w, p in zip(weights, masses, strict=True)).numpy()
    return Mixture([base, *(dist for dist, _ in others)], weights), pmf


@pytest.fixture(scope="module", params=OTHERS)
def case(request, sum_masses):
    dist, pmf = make_blend(request.param)
    return dist, [sum_masses(0, p) for p in pmf]


def test_results_that_are_linear_in_the_pmf_are_sums(case):
    dist, truth = case
    y = torch.tensor([0.0, 4.0, 90.0, 1002.0, 5000.0, 79_000.0], dtype=torch.float64)
    table = dist.cdf(y.unsqueeze(1)).numpy(), dist.survival(y.unsqueeze(1)).numpy()
    expected = np.array([[t.cdf(v) for t in truth] for v in y.tolist()])
    np.testing.assert_allclose(table[0], expected, rtol=1e-7)
    np.testing.assert_allclose(table[1], 1 - expected, atol=1e-7)
    np.testing.assert_allclose(dist.mean, [t.mean for t in truth], rtol=1e-6)
    np.testing.assert_allclose(dist.variance, [t.variance for t in truth], rtol=1e-6, atol=1e-9)


def test_scores_and_entropy_are_sums(case):
    dist, truth = case
    for y in (0.0, 7.0, 1003.0, 81_234.0):
        np.testing.assert_allclose(dist.crps(torch.tensor(y)), [t.crps(y) for t in truth], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(dist.entropy(), [t.entropy for t in truth], rtol=1e-6, atol=1e-12)


def test_quantiles_mode_and_intervals_follow_the_cdf(case):
    dist, truth = case
    quantiles = dist.icdf(torch.tensor(LEVELS, dtype=torch.float64).unsqueeze(1))
    assert quantiles.tolist() == [[t.quantile(q - SLACK).item() for t in truth] for q in LEVELS]
    assert dist.mode.tolist() == [t.p.argmax() for t in truth]
    for coverage in (0.4, 0.9):
        tail = 0.5 * (1.0 - coverage)
        expected = [[t.quantile(q - SLACK).item() for t in truth] for q in (tail, 1.0 - tail)]
        assert [end.tolist() for end in dist.interval(coverage)] == expected


def test_variance_splits_exactly():
    dist, _ = make_blend("long")
    means = torch.cat([stack.mean.expand(len(COUNTS), 1) for stack in dist.components], dim=-1)
    expected = (dist.weights * (means - dist.mean.unsqueeze(-1)) ** 2).sum(-1)
    torch.testing.assert_close(dist.epistemic, expected)
    torch.testing.assert_close(dist.aleatoric + dist.epistemic, dist.variance)
    torch.testing.assert_close(dist.expected_entropy + dist.mutual_information, dist.entropy())


def test_float32_ties_are_ties():
    """In float32 the cdf of six neighbours reaches 1/2 at the third of them, whatever rounding does."""
    dist = Empirical(COUNTS.float())
    assert dist.icdf(torch.tensor(0.5)).tolist() == [row[2] for row in COUNTS.sort(-1).values.tolist()]
    assert dist.mean.dtype == dist.crps(torch.tensor(1)).dtype == torch.float32


def test_metrics_and_discretized_take_a_distribution_of_three_methods():
    dist, _ = make_blend("short")
    y = torch.tensor([3, 90, 1000, 20, 4, 12])
    torch.testing.assert_close(crps(dist, y), dist.crps(y))
    assert math.isfinite(evaluate(dist, y)["crps"])
    assert discretize(dist) is dist
    mixed = Mixture([Empirical(COUNTS), Normal(10.0, 3.0)], [0.5, 0.5])
    torch.testing.assert_close(mixed.mean, 0.5 * COUNTS.mean(-1) + 5.0)
    with pytest.raises(InputError, match=r"discretize\(\)"):
        mixed.log_prob(y)
    np.testing.assert_allclose(discretize(mixed).mean, mixed.mean, rtol=1e-3)


def test_a_class_without_the_three_methods_is_abstract():
    class Missing(CountDistribution):
        def log_prob(self, value):
            return value

    with pytest.raises(TypeError, match="abstract"):
        Missing()


class Geometric(CountDistribution):
    """p(y) = (1 - q) q^y, by the three methods that a subclass must have."""

    def __init__(self, q: torch.Tensor) -> None:
        self.q = q
        super().__init__(q.shape)

    def log_prob(self, y):
        return torch.log1p(-self.q) + torch.as_tensor(y) * self.q.log()

    def bracket(self, depth):
        return torch.zeros_like(self.q), (-depth / self.q.detach().log()).ceil()

    def rows(self, index):
        return Geometric(self.q[index])


def test_any_count_distribution_has_masses_with_gradients():
    """P(Z >= c) = q^c, also far beyond the bracket."""
    q, c = torch.tensor([[0.2, 0.9, 0.999], [400.0, 7.0, 30000.0]], dtype=torch.float64)
    q.requires_grad_()
    log_masses = log_mass(Geometric(q), c)
    torch.testing.assert_close(log_masses, c * q.log(), rtol=1e-9, atol=0.0)
    torch.testing.assert_close(torch.autograd.grad(log_masses.sum(), q)[0], (c / q).detach(), rtol=1e-8, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_have_the_dtype_of_the_parameters(dtype):
    """A distribution that names no dtype has one, too."""
    for dist in (Geometric(torch.tensor([0.3, 0.6], dtype=dtype)), Poisson(torch.tensor([0.3, 0.6], dtype=dtype))):
        y = torch.tensor([1, 2])
        values = dist.mean, dist.variance, dist.cdf(y), dist.crps(y), dist.log_prob(y), dist.entropy(), dist.sample()
        assert {value.dtype for value in values} == {dtype}
    torch.testing.assert_close(Geometric(torch.tensor([0.3])).mean, torch.tensor([0.3 / 0.7]))


def test_a_table_cannot_be_mixed_with_a_family_that_is_too_wide():
    wide = NegativeBinomial(torch.tensor([1e8], dtype=torch.float64), 2.0)
    mixture = Mixture.concatenate([Empirical(COUNTS[:1].unsqueeze(1)), wide.expand((1, 1))])
    with pytest.raises(DDPNError, match="more than 33,554,432 counts"):
        mixture.summary(torch.tensor([0.25]))
