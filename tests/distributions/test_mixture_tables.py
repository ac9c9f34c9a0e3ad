"""Tables of mixtures: quantiles, modes and moments against sums in extended precision, and against other methods."""

from functools import cached_property

import numpy as np
import pytest
import torch
from scipy.special import gammaln

from ddpn.distributions import DoublePoisson, Mixture, NegativeBinomial, Poisson, ZeroInflated
from ddpn.distributions.mixture_tables import MixtureTables

LONG = np.longdouble
LEVELS = torch.tensor([1e-4, 0.05, 0.5, 0.9, 0.95, 0.999], dtype=torch.float64)


def f64(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def double_poisson_pmf(mu: np.ndarray, gamma: np.ndarray, n: int) -> np.ndarray:
    y = np.arange(n, dtype=LONG)
    log_y = np.log(np.maximum(y, 1))
    log_h = y * log_y - y - gammaln(np.arange(n) + 1.0).astype(LONG)
    mu, gamma = (LONG(1) * x[..., None] for x in (mu, gamma))
    log_w = log_h - gamma * (mu - y + y * (log_y - np.log(mu)))
    w = np.exp(log_w - log_w.max(-1, keepdims=True))
    return w / w.sum(-1, keepdims=True)


def negative_binomial_pmf(mean: np.ndarray, alpha: np.ndarray, n: int) -> np.ndarray:
    y = np.arange(1, n, dtype=LONG)
    mean, alpha = (LONG(1) * x[..., None] for x in (mean, alpha))
    ratios = mean * (1 + alpha * (y - 1)) / (y * (1 + alpha * mean))
    return np.concatenate([np.exp(-np.log1p(alpha * mean) / alpha), ratios], axis=-1).cumprod(-1)


class Case:
    """Mixtures of two Double Poissons and a Negative Binomial per network, of three networks, and their exact pmf."""

    def __init__(self, rng: np.random.Generator, rows: int, scale: float, narrow: float = 0.0) -> None:
        base = scale * np.exp(rng.normal(0.0, 0.5, (rows, 1, 1)))
        self.mu = base * np.exp(rng.normal(0.0, 0.4, (rows, 3, 2)))
        self.gamma = np.exp(rng.normal(narrow, 0.7, (rows, 3, 2)))
        self.mean = base * np.exp(rng.normal(0.0, 0.4, (rows, 3, 1)))
        self.alpha = np.exp(rng.normal(-1.0, 1.0, (rows, 3, 1)))
        weight = rng.uniform(0.05, 1.0, (rows, 3, 3))
        self.weight = weight / weight.sum(-1, keepdims=True)
        self.n = int(600 + 20 * scale)

    @cached_property
    def each(self) -> np.ndarray:
        doubles = double_poisson_pmf(self.mu, self.gamma, self.n)
        return np.concatenate([doubles, negative_binomial_pmf(self.mean, self.alpha, self.n)], axis=2)

    @cached_property
    def pmf(self) -> np.ndarray:
        return (self.weight[..., None] * self.each).sum(2).mean(1)

    def mixture(self, rows: slice = slice(None)) -> Mixture:
        stacks = [
            DoublePoisson(f64(self.mu[rows]), f64(self.gamma[rows])),
            NegativeBinomial(f64(self.mean[rows]), f64(self.alpha[rows])),
        ]
        return Mixture(Mixture.trusted(stacks, f64(self.weight[rows])))

    def quantiles(self, q: np.ndarray) -> np.ndarray:
        cdf = self.pmf.cumsum(1)
        return np.array([np.searchsorted(row, q.astype(LONG)) for row in cdf])


@pytest.fixture(scope="module")
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.mark.parametrize(("scale", "narrow"), [(0.05, 0.0), (0.7, -1.0), (5.0, 0.0), (5.0, 3.0), (25.0, 0.5)])
def test_quantiles_modes_and_moments_are_those_of_sums(rng, scale, narrow, assert_within):
    case = Case(rng, 50, scale, narrow)
    dist = case.mixture()
    found = dist.summary(LEVELS)
    np.testing.assert_array_equal(found.quantiles.numpy(), case.quantiles(LEVELS.numpy()))
    highest = case.pmf.max(1, keepdims=True)
    np.testing.assert_array_equal(found.mode.numpy(), (case.pmf >= highest * (1 - 1e-12)).argmax(1))
    y = np.arange(case.pmf.shape[1])
    doubles = case.each[:, :, :2]
    means = np.concatenate([(doubles * y).sum(-1), case.mean], axis=2)
    variances = (doubles * (y - means[:, :, :2, None]) ** 2).sum(-1)
    variances = np.concatenate([variances, case.mean + case.alpha * case.mean**2], axis=2)
    inner = (case.weight * means).sum(-1)
    spread = (case.weight * (variances + (means - inner[..., None]) ** 2)).sum(-1)
    assert_within(dist.mean, inner.mean(1), 1e-9)
    assert_within(dist.aleatoric, spread.mean(1), 1e-8)
    assert_within(dist.epistemic, inner.var(1), 1e-7)
    assert_within(dist.variance, spread.mean(1) + inner.var(1), 1e-8)


def test_few_rows_are_those_among_many(rng):
    case = Case(rng, 60, 6.0)
    whole = case.mixture()
    expected = whole.summary(LEVELS), whole.mean, whole.variance
    for rows in (slice(7, 8), slice(20, 26)):
        part = case.mixture(rows)
        found = part.summary(LEVELS)
        assert torch.equal(found.quantiles, expected[0].quantiles[rows])
        assert torch.equal(found.mode, expected[0].mode[rows])
        assert part.mean.numpy() == pytest.approx(expected[1][rows].numpy(), rel=1e-12)
        assert part.variance.numpy() == pytest.approx(expected[2][rows].numpy(), rel=1e-11)


@pytest.mark.parametrize("rows", [1, 40])
def test_levels_that_a_sum_meets_to_the_last_digits(rng, rows):
    """The quantile at the cdf of a count is this count, and the next one just above it."""
    dist = Case(rng, rows, 4.0).mixture()
    for y in (0.0, 2.0, 9.0):
        count = torch.full((rows,), y, dtype=torch.float64)
        level = dist.cdf(count)
        assert torch.equal(dist.icdf(level), count)
        assert torch.equal(dist.icdf(level * (1.0 + 1e-13)), count + 1.0)
        assert torch.equal(dist.icdf(level * (1.0 - 1e-9)), count)


@pytest.mark.parametrize(
    ("mu", "gamma"),
    [(1e-6, 1e-4), (3.0, 65.0), (40.0, 4000.0), (0.01, 9.0), (200.0, 2.0), (300.0, 0.01), (1e5, 0.5), (0.3, 1e3)],
)
def test_extreme_components_beside_ordinary_ones(mu, gamma, assert_within):
    """Those beyond a table, and those too narrow for one, agree with the Double Poisson by itself."""
    extreme, ordinary = DoublePoisson(f64([mu] * 12), f64([gamma] * 12)), Poisson(torch.full((12,), 2.0).double())
    dist = Mixture([extreme, ordinary], weights=[0.5, 0.5])
    dist.moments_by_table = True
    alone = DoublePoisson(f64(mu), f64(gamma))
    assert_within(dist.mean, f64([0.5 * alone.mean.item() + 1.0] * 12), 1e-9)
    expected = 0.5 * alone.variance.item() + 1.0 + (0.5 * (alone.mean.item() - 2.0)) ** 2
    assert_within(dist.variance, f64([expected] * 12), 1e-8)
    q = f64([0.02, 0.4, 0.6, 0.97])
    found = dist.summary(q).quantiles
    assert (dist.cdf(found.T) >= q.unsqueeze(1)).all()
    assert ((dist.cdf(found.T - 1.0) < q.unsqueeze(1)) | (found.T == 0)).all()


def test_components_without_weight_count_for_nothing():
    wide, plain = NegativeBinomial(f64([1e5]), f64([3.0])), Poisson(f64([4.0]))
    dist = Mixture([wide, plain], weights=[0.0, 1.0])
    assert dist.icdf(f64(0.9)).tolist() == Poisson(4.0).icdf(f64(0.9)).reshape(1).tolist()
    assert dist.mean.item() == pytest.approx(4.0, rel=1e-12)


def test_results_have_the_dtype_and_shape_of_the_parameters():
    dist = Mixture(DoublePoisson(torch.rand(3, 4, 2) + 1.0, torch.rand(3, 4, 2) + 0.5))
    assert dist.mean.shape == dist.icdf(torch.tensor(0.5)).shape == (3, 4)
    assert dist.mean.dtype == dist.epistemic.dtype == torch.float32
    assert Mixture([Poisson(3.0), Poisson(4.0)]).mean.shape == ()


def test_moments_keep_their_gradients():
    mu = torch.tensor([[2.0, 5.0]], dtype=torch.float64, requires_grad=True)
    dist = Mixture(DoublePoisson(mu, f64([[0.7, 2.0]])))
    (dist.mean + dist.variance).sum().backward()
    assert torch.isfinite(mu.grad).all()
    assert (mu.grad != 0).all()


def test_large_tables_are_computed_again_and_give_the_same(rng, monkeypatch):
    case = Case(rng, 30, 5.0)
    expected = case.mixture().summary(LEVELS)
    monkeypatch.setattr("ddpn.distributions.mixture_tables._KEPT", 0)
    dist = case.mixture()
    assert torch.equal(dist.summary(LEVELS).quantiles, expected.quantiles)
    assert not dist._flat().from_zero._known


def test_other_families_have_no_tables():
    zeros = ZeroInflated(Poisson(f64([3.0, 4.0])), f64([0.2, 0.3]))
    plain = Mixture(Poisson(f64([[3.0, 4.0]])))
    assert Mixture([zeros, Poisson(f64([3.0, 4.0]))])._flat().from_zero is None
    assert isinstance(plain._flat().from_zero, MixtureTables)


def test_no_rows_have_no_quantiles(rng):
    none = Case(rng, 3, 2.0).mixture(slice(0, 0))
    assert none.summary(LEVELS).quantiles.shape == (0, 6)
    assert none.mean.shape == none.epistemic.shape == none.interval(0.9)[0].shape == (0,)
    assert none.mode.shape == none.entropy().shape == none.crps(torch.zeros(0)).shape == (0,)


@pytest.mark.parametrize("rows", [3, 2000])
def test_no_levels_have_no_quantiles(rng, rows):
    found = Case(rng, rows, 2.0).mixture().summary(torch.zeros(0))
    assert found.quantiles.shape == (rows, 0)
    assert found.mode.shape == (rows,)


def test_a_row_of_nan_leaves_the_others_alone():
    mu = f64([[1.0, 2.0], [torch.nan, 2.0]])
    dist = Mixture(DoublePoisson(mu, torch.ones_like(mu), validate_args=False), validate_args=False)
    for found in (dist.icdf(f64(0.5)), dist.mode, dist.mean):
        assert found.isnan().tolist() == [False, True]
