"""Conflations against products of pmfs, normalised over every integer in extended precision."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn.distributions import Conflation, DoublePoisson, NegativeBinomial, Poisson, UniformMixture
from ddpn.errors import DDPNError, InputError

LONG = np.longdouble
KINDS = {"dp": DoublePoisson, "poisson": Poisson, "nb": NegativeBinomial}


def log_ratios(kind: str, parameters: tuple[float, ...], y: np.ndarray) -> np.ndarray:
    """log p(y + 1) / p(y)."""
    mu = LONG(parameters[0])
    if kind == "poisson":
        return np.log(mu / (y + 1))
    other = LONG(parameters[1])
    if kind == "nb":
        return np.log((y + 1 / other) / (y + 1)) - np.log1p(1 / (other * mu))
    grows = np.where(y > 0, y * np.log1p(1 / np.maximum(y, 1)), 0) - 1
    return (1 - other) * grows - other * np.log((y + 1) / mu)


class Product:
    """The normalised product on 0..n-1, n doubled until it has fallen by e^-70."""

    def __init__(self, laws: list[tuple]) -> None:
        n = 256
        while True:
            y = np.arange(n, dtype=LONG)
            steps = sum(log_ratios(kind, tuple(parameters), y) for kind, *parameters in laws)
            log_p = np.concatenate([[LONG(0)], np.cumsum(steps)])
            if log_p[-1] < log_p.max() - 70:
                break
            n *= 2
        self.y = np.arange(len(log_p), dtype=LONG)
        self.log_pmf = log_p - log_p.max() - np.log(np.exp(log_p - log_p.max()).sum())
        self.pmf = np.exp(self.log_pmf)
        self.upto = np.cumsum(self.pmf)
        self.beyond = np.append(np.cumsum(self.pmf[::-1])[::-1][1:], LONG(0))
        self.mean = (self.pmf * self.y).sum()
        self.variance = (self.pmf * (self.y - self.mean) ** 2).sum()
        self.entropy = -(self.pmf * self.log_pmf).sum()

    def icdf(self, q: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.upto, np.asarray(q, dtype=LONG))

    def crps(self, y: float) -> float:
        return np.where(self.y < y, self.upto**2, self.beyond**2).sum() + max(y - self.y[-1] - 1, 0)

    def shortest(self, coverage: float) -> int:
        ends = np.searchsorted(self.upto, self.upto - self.pmf + LONG(coverage) - LONG(1e-15))
        return int(np.where(ends < len(self.pmf), ends - np.arange(len(ends)), len(ends)).min()) + 1


CASES: dict[str, list[tuple]] = {
    "one": [("dp", 6.0, 1.5)],
    "the paper's, at its top": [("poisson", 20.0)] * 5,
    "the paper's, near 0": [("poisson", 0.01)] * 5,
    "five alike": [("poisson", m) for m in (90.0, 95.0, 101.0, 103.5, 110.0)],
    "mixed kinds": [("poisson", 12.0), ("nb", 20.0, 0.3), ("dp", 9.0, 0.5)],
    "mixed kinds, long": [("poisson", 900.0), ("nb", 2000.0, 0.3), ("dp", 1100.0, 0.02)],
    "far apart": [("poisson", 1.0), ("poisson", 1000.0)],
    "very far apart": [("poisson", 1e-3), ("poisson", 1e6)],
    "narrow, far apart": [("dp", 10.0, 20.0), ("dp", 5000.0, 3.0)],
    "pulled to 0": [("poisson", 1e-6), ("dp", 300.0, 0.4), ("nb", 50.0, 2.0)],
    "small gamma": [("dp", 0.5, 1e-3), ("dp", 40.0, 5e-3)],
    "small gamma, long": [("dp", 3000.0, 1e-3), ("dp", 2000.0, 4e-4), ("dp", 5000.0, 2e-4)],
    "peaks at 0 and beyond": [("dp", 400.0, 8e-3), ("dp", 300.0, 0.01)],
    "wide, overdispersed": [("nb", 300.0, 1.5), ("nb", 200.0, 0.9)],
    "heavy at 0 and a peak": [("nb", 100.0, 20.0), ("poisson", 12.0)],
    "point mass": [("dp", 30.0, 500.0), ("dp", 31.0, 2000.0)],
    "large counts": [("poisson", 1e5), ("poisson", 1.01e5), ("dp", 9.9e4, 0.2)],
}
names = pytest.mark.parametrize("name", CASES)
TRUTH = {name: Product(laws) for name, laws in CASES.items()}
QUANTILES = np.array([1e-6, 1e-3, 0.013, 0.1, 0.27, 0.5, 0.71, 0.9, 0.991, 0.9995])


def conflated(laws: list[tuple], dtype: torch.dtype = torch.float64) -> Conflation:
    return Conflation([KINDS[kind](*torch.tensor(parameters, dtype=dtype)) for kind, *parameters in laws])


def counts(truth: Product) -> torch.Tensor:
    last = len(truth.y) - 1
    return torch.tensor(sorted({0, 1, 2, *truth.icdf(QUANTILES).tolist(), last // 2}), dtype=torch.float64)


def close(got: torch.Tensor, expected: object, relative: float, absolute: float = 0.0) -> None:
    np.testing.assert_allclose(got.numpy(), np.asarray(expected).astype(np.float64), rtol=relative, atol=absolute)


@names
def test_log_prob(name):
    truth = TRUTH[name]
    y = counts(truth)
    expected = truth.log_pmf[y.numpy().astype(int)].astype(np.float64)
    error = np.abs(conflated(CASES[name]).log_prob(y).numpy() - expected)
    assert (error <= 1e-8 * np.maximum(1, np.abs(expected))).all()


@names
def test_cdf_and_survival(name):
    law, truth = conflated(CASES[name]), TRUTH[name]
    y = counts(truth)
    at = y.numpy().astype(int)
    close(law.cdf(y), truth.upto[at], 2e-6, 1e-20)
    close(law.survival(y), truth.beyond[at], 2e-6, 1e-20)


@names
def test_quantiles(name):
    law = conflated(CASES[name])
    assert law.icdf(torch.from_numpy(QUANTILES)).tolist() == TRUTH[name].icdf(QUANTILES).tolist()
    assert law.icdf(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist() == [0.0, math.inf]


@names
def test_moments_mode_and_entropy(name):
    law, truth = conflated(CASES[name]), TRUTH[name]
    close(law.mean, truth.mean, 1e-7)
    close(law.variance, truth.variance, 1e-7)
    close(law.stddev, np.sqrt(truth.variance), 1e-7)
    close(law.entropy(), truth.entropy, 1e-7)
    assert truth.pmf[int(law.mode)] >= truth.pmf.max() * (1 - 1e-12)


@names
def test_crps(name):
    law, truth = conflated(CASES[name]), TRUTH[name]
    y = torch.cat([counts(truth), torch.tensor([3.0 * len(truth.y)], dtype=torch.float64)])
    close(law.crps(y), [truth.crps(v) for v in y.tolist()], 1e-6)


@names
def test_intervals(name):
    law, truth = conflated(CASES[name]), TRUTH[name]
    low, high = (end.item() for end in law.interval(0.83))
    assert [low, high] == truth.icdf(np.array([0.085, 0.915])).tolist()
    low, high = (int(end) for end in law.interval(0.83, kind="highest"))
    assert truth.pmf[low : high + 1].sum() >= 0.83 - 1e-9
    assert high - low + 1 == truth.shortest(0.83)


def test_the_papers_conflation_is_underdispersed():
    """Figure 1: five Poissons of rate 10 sin x + 10 have about the mean of one and a fifth of its variance."""
    x = torch.linspace(0.0, 2 * math.pi, 50, dtype=torch.float64)
    rate = 10 * x.sin() + 10 + 1e-3
    law = Conflation([Poisson(rate)] * 5)
    truths = [Product([("poisson", r)] * 5) for r in rate.tolist()]
    close(law.mean, [t.mean for t in truths], 1e-9)
    close(law.variance, [t.variance for t in truths], 1e-8)
    close(law.log_prob(rate.round()), [t.log_pmf[round(r)] for t, r in zip(truths, rate.tolist(), strict=True)], 1e-9)
    high = rate > 15
    assert ((law.variance / (rate / 5) - 1).abs()[high] < 0.02).all()


def test_poissons_make_a_com_poisson_in_closed_form():
    """Of two: p(y) = (a b)^y / y!^2 / I0(2 sqrt(a b)), however far apart a and b are."""
    a, b = torch.tensor([1.0, 1e-3, 3.0]).double(), torch.tensor([1000.0, 1e6, 2.0]).double()
    root = (a * b).sqrt()
    log_i0 = torch.special.i0e(2 * root).log() + 2 * root
    y = torch.tensor([[0.0], [3.0], [30.0], [90.0]], dtype=torch.float64)
    expected = 2 * (y * root.log() - torch.lgamma(y + 1)) - log_i0
    law = Conflation([Poisson(a), Poisson(b)])
    torch.testing.assert_close(law.log_prob(y), expected, rtol=1e-9, atol=1e-9)
    ratio = torch.special.i1e(2 * root) / torch.special.i0e(2 * root)
    torch.testing.assert_close(law.mean, root * ratio, rtol=1e-9, atol=0)


def test_negative_binomials_of_one_size_make_geometric_ones():
    """Geometric laws (alpha = 1): the product of q^y and r^y is (q r)^y."""
    q, r = 0.9, 0.7
    law = Conflation([NegativeBinomial(p / (1 - p), torch.tensor(1.0).double()) for p in (q, r)])
    y = torch.arange(20, dtype=torch.float64)
    torch.testing.assert_close(law.log_prob(y), math.log(1 - q * r) + y * math.log(q * r), rtol=1e-9, atol=0)
    assert law.mean.item() == pytest.approx(q * r / (1 - q * r), rel=1e-9)


def test_double_poissons_of_large_mean_add_their_precisions():
    """Deviances add: gamma = 0.3 + 0.7, and h(y)^2 instead of h(y) takes half a count off the peak."""
    law = Conflation([DoublePoisson(torch.tensor(1e6).double(), g) for g in (0.3, 0.7)])
    assert law.mean.item() == pytest.approx(1e6 - 0.5, abs=0.01)
    assert law.variance.item() == pytest.approx(1e6, rel=1e-5)


def test_one_law_is_itself():
    one = DoublePoisson(torch.tensor([0.2, 5.0, 800.0]).double(), torch.tensor([2.0, 0.3, 0.1]).double())
    law = Conflation([one])
    y = torch.tensor([1.0, 7.0, 900.0], dtype=torch.float64)
    for name in ("log_prob", "cdf", "survival", "crps"):
        torch.testing.assert_close(getattr(law, name)(y), getattr(one, name)(y), rtol=1e-7, atol=1e-12)
    for name in ("mean", "variance", "mode"):
        torch.testing.assert_close(getattr(law, name), getattr(one, name), rtol=1e-7, atol=0)
    torch.testing.assert_close(law.entropy(), one.entropy(), rtol=1e-7, atol=0)


def test_order_and_grouping_do_not_matter():
    laws = [Poisson(torch.tensor(12.0).double()), NegativeBinomial(20.0, torch.tensor(0.3).double())]
    third = DoublePoisson(torch.tensor(9.0).double(), 0.5)
    y = torch.arange(30.0, dtype=torch.float64)
    flat = Conflation([*laws, third])
    torch.testing.assert_close(Conflation([third, *laws[::-1]]).log_prob(y), flat.log_prob(y), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        Conflation([Conflation(laws), third]).log_prob(y), flat.log_prob(y), rtol=1e-9, atol=1e-9
    )


def test_mixtures_can_be_conflated():
    mixture = UniformMixture(Poisson(torch.tensor([3.0, 8.0]).double()))
    law = Conflation([mixture, Poisson(torch.tensor(6.0).double())])
    y = torch.arange(80.0, dtype=torch.float64)
    product = mixture.log_prob(y) + Poisson(torch.tensor(6.0).double()).log_prob(y)
    expected = product - product.logsumexp(0)
    torch.testing.assert_close(law.log_prob(y), expected, rtol=1e-9, atol=1e-9)


def test_batches_broadcast():
    mu = torch.tensor([[1.0], [30.0], [1e4]], dtype=torch.float64)
    alpha = torch.tensor([0.1, 2.0], dtype=torch.float64)
    law = Conflation([Poisson(mu), NegativeBinomial(torch.tensor(40.0).double(), alpha)])
    assert law.batch_shape == law.mean.shape == law.mode.shape == law.entropy().shape == (3, 2)
    assert law.sample((5,)).shape == (5, 3, 2)
    y = torch.tensor(25.0, dtype=torch.float64)
    for i in range(3):
        for j in range(2):
            one = Conflation([Poisson(mu[i, 0]), NegativeBinomial(torch.tensor(40.0).double(), alpha[j])])
            assert one.batch_shape == ()
            for name in ("log_prob", "cdf", "survival", "crps"):
                torch.testing.assert_close(getattr(law, name)(y)[i, j], getattr(one, name)(y), rtol=1e-10, atol=0)
            torch.testing.assert_close(law.variance[i, j], one.variance, rtol=1e-10, atol=0)
    wide = law.expand((4, 3, 2))
    assert wide.batch_shape == (4, 3, 2)
    torch.testing.assert_close(wide.crps(y), law.crps(y).expand(4, 3, 2), rtol=1e-12, atol=0)
    assert law.log_prob(torch.zeros(7, 1, 1)).shape == (7, 3, 2)


@pytest.mark.parametrize(
    "name", ["the paper's, at its top", "mixed kinds, long", "small gamma", "heavy at 0 and a peak"]
)
def test_samples_by_chi_square(name):
    truth, n = TRUTH[name], 20_000
    draws = conflated(CASES[name]).sample((n,), generator=torch.Generator().manual_seed(2)).numpy()
    edges = np.unique(truth.icdf(np.linspace(0.02, 0.98, 49)))
    expected = np.diff(np.concatenate([[0], truth.upto[edges], [1]]).astype(np.float64)) * n
    seen = np.bincount(np.searchsorted(edges, draws), minlength=len(expected))
    keep = expected > 5
    assert seen[~keep].sum() < 60
    assert stats.chisquare(seen[keep], expected[keep] * seen[keep].sum() / expected[keep].sum()).pvalue > 1e-3


def test_float32_laws_give_the_float64_answer():
    for name in ("mixed kinds", "very far apart", "small gamma, long"):
        single, double_ = conflated(CASES[name], torch.float32), conflated(CASES[name])
        y = double_.mode
        assert single.mean.dtype == single.log_prob(y.float()).dtype == single.crps(y.float()).dtype == torch.float32
        for method in ("log_prob", "cdf", "crps"):
            got, expected = getattr(single, method)(y.float()).double(), getattr(double_, method)(y)
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(single.mean.double(), double_.mean, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("laws", "got"),
    [
        ([], "got none"),
        ([Poisson(1.0), torch.distributions.Poisson(1.0)], "got Poisson, Poisson"),
        ([3.0], "got float"),
    ],
)
def test_what_is_no_count_law_raises(laws, got):
    with pytest.raises(InputError, match=f"laws must be one or more count laws.*{got}"):
        Conflation(laws)


def test_shapes_that_do_not_broadcast_raise():
    with pytest.raises(InputError, match=r"shapes must broadcast, got law 0 \(2,\) and law 1 \(3,\)"):
        Conflation([Poisson(torch.ones(2)), Poisson(torch.ones(3))])
    with pytest.raises(InputError, match=r"shapes must broadcast, got y \(3,\) and batch_shape \(2,\)"):
        Conflation([Poisson(torch.ones(2))]).log_prob(torch.zeros(3))


@pytest.mark.parametrize("bad", [-1.0, 0.5, math.nan, math.inf])
def test_bad_counts_raise(bad):
    with pytest.raises(InputError, match="y must hold non-negative integers"):
        Conflation([Poisson(2.0)]).log_prob(torch.tensor(bad))


def test_a_conflation_without_a_gradient_does_not_pretend_to_have_one():
    law = Conflation([Poisson(torch.tensor(2.0, requires_grad=True)), Poisson(3.0)])
    value = law.log_prob(torch.tensor(2.0))
    if value.requires_grad:
        mu = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
        other = Poisson(torch.tensor(3.0).double())
        assert torch.autograd.gradcheck(lambda m: Conflation([Poisson(m), other]).log_prob(torch.tensor(4.0)), (mu,))
    with pytest.raises(DDPNError, match="no gradient"):
        law.crps(torch.tensor(2.0)).backward()
