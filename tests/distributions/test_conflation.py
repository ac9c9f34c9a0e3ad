"""Conflations against products of pmfs, normalised over every integer in extended precision."""

import math
from functools import cache, cached_property

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn.distributions import Conflation, DoublePoisson, Mixture, NegativeBinomial, Poisson
from ddpn.errors import DDPNError, InputError

LONG = np.longdouble
KINDS = {"dp": DoublePoisson, "poisson": Poisson, "nb": NegativeBinomial}


def log_ratios(kind: str, parameters: tuple[float, ...], y: np.ndarray) -> np.ndarray:
    """log p(y + 1) / p(y)."""
    number = y.dtype.type
    mu = number(parameters[0])
    if kind == "poisson":
        return np.log(mu / (y + 1))
    other = number(parameters[1])
    if kind == "nb":
        return np.log((y + 1 / other) / (y + 1)) - np.log1p(1 / (other * mu))
    grows = np.where(y > 0, y * np.log1p(1 / np.maximum(y, 1)), 0) - 1
    return (1 - other) * grows - other * np.log((y + 1) / mu)


class Product:
    """The normalised product on 0..n-1, n doubled until it has fallen by e^-70."""

    def __init__(self, laws: list[tuple]) -> None:
        n = 256
        while not self.has_fallen(log_p := self.log_weights(laws, n, float)):
            n *= 2
        log_p = self.log_weights(laws, n, LONG)
        assert self.has_fallen(log_p)
        self.y = np.arange(len(log_p), dtype=LONG)
        self.log_pmf = log_p - log_p.max() - np.log(np.exp(log_p - log_p.max()).sum())
        self.pmf = np.exp(self.log_pmf)
        self.upto = np.cumsum(self.pmf)
        self.beyond = np.append(np.cumsum(self.pmf[::-1])[::-1][1:], LONG(0))
        self.mean = (self.pmf * self.y).sum()
        self.variance = (self.pmf * (self.y - self.mean) ** 2).sum()
        self.entropy = -(self.pmf * self.log_pmf).sum()

    @staticmethod
    def log_weights(laws: list[tuple], n: int, dtype: type) -> np.ndarray:
        """On 0..n, up to a constant."""
        y = np.arange(n, dtype=dtype)
        steps = sum(log_ratios(kind, tuple(parameters), y) for kind, *parameters in laws)
        return np.concatenate([np.zeros(1, dtype), np.cumsum(steps.astype(dtype))])

    @staticmethod
    def has_fallen(log_p: np.ndarray) -> bool:
        return log_p[-1] < log_p.max() - 70

    def icdf(self, q: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.upto, np.asarray(q, dtype=LONG))

    def crps(self, y: float) -> float:
        left, right = self.squares
        at = min(math.ceil(y), len(self.y))
        return left[at] + right[at] + max(y - self.y[-1] - 1, 0)

    @cached_property
    def squares(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums of F^2 below, and of (1 - F)^2 from, each integer on."""
        return np.append(0, np.cumsum(self.upto**2)), np.append(np.cumsum(self.beyond[::-1] ** 2)[::-1], 0)

    def shortest(self, coverage: float) -> int:
        ends = np.searchsorted(self.upto, self.upto - self.pmf + LONG(coverage) - LONG(1e-15))
        return int(np.where(ends < len(self.pmf), ends - np.arange(len(ends)), len(ends)).min()) + 1


CASES: dict[str, list[tuple]] = {
    "the paper's, at its top": [("poisson", 20.0)] * 5,
    "the paper's, near 0": [("poisson", 0.01)] * 5,
    "five alike": [("poisson", m) for m in (90.0, 95.0, 101.0, 103.5, 110.0)],
    "five of large counts": [("poisson", m) for m in (1e5, 1.1e5, 0.97e5, 1.01e5, 0.9e5)],
    "far apart": [("poisson", 1.0), ("poisson", 1000.0)],
    "very far apart": [("poisson", 1e-3), ("poisson", 1e6)],
    "two large": [("poisson", 4e4), ("poisson", 2e5)],
    "mixed kinds": [("poisson", 12.0), ("nb", 20.0, 0.3), ("dp", 9.0, 0.5)],
    "mixed kinds, long": [("poisson", 900.0), ("nb", 2000.0, 0.3), ("dp", 1100.0, 0.02)],
    "pulled to 0": [("poisson", 1e-6), ("nb", 50.0, 2.0), ("dp", 300.0, 0.4)],
    "heavy at 0 and a peak": [("poisson", 12.0), ("nb", 100.0, 20.0), ("dp", 15.0, 1e-3)],
    "narrow, far apart": [("dp", 10.0, 20.0), ("dp", 5000.0, 3.0)],
    "small gamma": [("dp", 0.5, 1e-3), ("dp", 40.0, 5e-3)],
    "small gamma, long": [("dp", 3000.0, 1e-3), ("dp", 5000.0, 2e-4)],
    "small gamma, apart": [("dp", 1e-3, 1e-3), ("dp", 2e4, 1e-3)],
    "peaks at 0 and beyond": [("dp", 400.0, 8e-3), ("dp", 300.0, 0.01)],
    "point mass": [("dp", 30.0, 500.0), ("dp", 31.0, 2000.0)],
    "wide": [("dp", 4e4, 0.01), ("dp", 6e4, 0.02)],
}
names = pytest.mark.parametrize("name", CASES)
QUANTILES = np.array([1e-6, 1e-3, 0.013, 0.1, 0.27, 0.5, 0.71, 0.9, 0.991, 0.9995])


def conflated(rows: list[list[tuple]], dtype: torch.dtype = torch.float64) -> Conflation:
    """One conflation a row, of the same kinds of laws."""
    laws = []
    for column in zip(*rows, strict=True):
        parameters = torch.tensor([law[1:] for law in column], dtype=dtype)
        laws.append(KINDS[column[0][0]](*parameters.unbind(-1)))
    return Conflation(laws)


def kinds_of(name: str) -> tuple[str, ...]:
    return tuple(law[0] for law in CASES[name])


@cache
def truth_of(name: str) -> Product:
    return Product(CASES[name])


def counts(name: str) -> torch.Tensor:
    """The first, the quantiles, far beyond. Shape: (14,)."""
    truth = truth_of(name)
    last = len(truth.y) - 1
    return torch.tensor([0, 1, 2, *truth.icdf(QUANTILES), last // 2], dtype=torch.float64)


@cache
def all_of(kinds: tuple[str, ...]) -> tuple[list[str], Conflation]:
    """The cases of these kinds, and their conflations in one batch."""
    cases = [name for name in CASES if kinds_of(name) == kinds]
    return cases, conflated([CASES[name] for name in cases])


def law_of(name: str) -> Conflation:
    """The conflation of one case."""
    cases, law = all_of(kinds_of(name))
    return law.rows([cases.index(name)])


@cache
def answer_to_all(kinds: tuple[str, ...], method: str) -> dict[str, torch.Tensor]:
    """A method's answer for every case of these kinds, asked in one batch."""
    cases, law = all_of(kinds)
    q = torch.from_numpy(QUANTILES).unsqueeze(-1)
    ask = {
        "icdf": lambda: law.icdf(q),
        "entropy": law.entropy,
        "central": lambda: torch.stack(law.interval(0.83)),
    }
    if method in ask:
        found = ask[method]()
    elif method in ("mean", "variance", "mode"):
        found = getattr(law, method)
    else:
        found = getattr(law, method)(torch.stack([counts(name) for name in cases], -1))
    return dict(zip(cases, found.unbind(-1), strict=True))


def answer(name: str, method: str) -> torch.Tensor:
    return answer_to_all(kinds_of(name), method)[name]


def close(got: torch.Tensor, expected: object, relative: float, absolute: float = 0.0) -> None:
    np.testing.assert_allclose(got.numpy(), np.asarray(expected).astype(np.float64), rtol=relative, atol=absolute)


@names
def test_log_prob(name):
    expected = truth_of(name).log_pmf[counts(name).int().numpy()].astype(np.float64)
    error = np.abs(answer(name, "log_prob").numpy() - expected)
    assert (error <= 1e-8 * np.maximum(1, np.abs(expected))).all()


@names
def test_cdf_and_survival(name):
    truth, at = truth_of(name), counts(name).int().numpy()
    close(answer(name, "cdf"), truth.upto[at], 2e-6, 1e-20)
    close(answer(name, "survival"), truth.beyond[at], 2e-6, 1e-20)


@names
def test_quantiles(name):
    assert answer(name, "icdf").tolist() == truth_of(name).icdf(QUANTILES).tolist()


@names
def test_mean_and_variance(name):
    close(answer(name, "mean"), truth_of(name).mean, 1e-7)
    close(answer(name, "variance"), truth_of(name).variance, 1e-7)


@names
def test_mode(name):
    pmf = truth_of(name).pmf
    assert pmf[int(answer(name, "mode"))] >= pmf.max() * (1 - 1e-12)


@names
def test_entropy(name):
    close(answer(name, "entropy"), truth_of(name).entropy, 1e-7)


@names
def test_crps(name):
    close(answer(name, "crps"), [truth_of(name).crps(y) for y in counts(name).tolist()], 1e-6)


@pytest.mark.parametrize("name", [name for name in CASES if kinds_of(name) == ("poisson", "nb", "dp")])
def test_central_intervals(name):
    assert answer(name, "central").tolist() == truth_of(name).icdf(np.array([0.085, 0.915])).tolist()


@pytest.mark.parametrize("name", ["the paper's, at its top", "mixed kinds", "two large"])
def test_highest_intervals(name):
    truth = truth_of(name)
    low, high = (int(end) for end in law_of(name).interval(0.83, kind="highest"))
    assert truth.pmf[low : high + 1].sum() >= 0.83 - 1e-9
    assert high - low + 1 == truth.shortest(0.83)


def test_ends_of_the_quantiles():
    law = law_of("mixed kinds")
    assert law.icdf(torch.tensor([[0.0], [1.0]], dtype=torch.float64)).tolist() == [[0.0], [math.inf]]


def test_crps_far_beyond_is_a_distance():
    law, truth = law_of("far apart"), truth_of("far apart")
    spread = (truth.upto * truth.beyond).sum()
    close(law.crps(torch.tensor([1e9], dtype=torch.float64)), [1e9 - truth.mean - spread], 1e-15)


def test_the_papers_conflation_is_underdispersed():
    """Figure 1: five Poissons of rate 10 sin x + 10 have about the mean of one and a fifth of its variance."""
    x = torch.linspace(0.0, 2 * math.pi, 50, dtype=torch.float64)
    rate = 10 * x.sin() + 10 + 1e-3
    law = Conflation([Poisson(rate)] * 5)
    truths = [Product([("poisson", r)] * 5) for r in rate.tolist()]
    close(law.mean, [t.mean for t in truths], 1e-9)
    close(law.variance, [t.variance for t in truths], 1e-8)
    expected = [t.log_pmf[round(r)] for t, r in zip(truths, rate.tolist(), strict=True)]
    close(law.log_prob(rate.round()), expected, 1e-9, 1e-12)
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
    law = Conflation([NegativeBinomial(torch.tensor(p / (1 - p), dtype=torch.float64), 1.0) for p in (q, r)])
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
    mixture = Mixture(Poisson(torch.tensor([3.0, 8.0]).double()))
    law = Conflation([mixture, Poisson(torch.tensor(6.0).double())])
    y = torch.arange(80.0, dtype=torch.float64)
    product = mixture.log_prob(y) + Poisson(torch.tensor(6.0).double()).log_prob(y)
    expected = product - product.logsumexp(0)
    torch.testing.assert_close(law.log_prob(y), expected, rtol=1e-9, atol=1e-9)


def test_batches_broadcast():
    mu = torch.tensor([[1.0], [30.0], [1e4]], dtype=torch.float64)
    alpha = torch.tensor([0.1, 2.0], dtype=torch.float64)
    forty = torch.tensor(40.0, dtype=torch.float64)
    law = Conflation([Poisson(mu), NegativeBinomial(forty, alpha)])
    assert law.batch_shape == law.mean.shape == law.mode.shape == law.entropy().shape == (3, 2)
    assert law.sample((5,)).shape == (5, 3, 2)
    y = torch.tensor(25.0, dtype=torch.float64)
    crps = law.crps(y)
    for i, j in ((0, 1), (2, 0)):
        one = Conflation([Poisson(mu[i, 0]), NegativeBinomial(forty, alpha[j])])
        assert one.batch_shape == ()
        torch.testing.assert_close(crps[i, j], one.crps(y), rtol=1e-10, atol=0)
        torch.testing.assert_close(law.variance[i, j], one.variance, rtol=1e-10, atol=0)
    wide = law.expand((4, 3, 2))
    assert wide.batch_shape == (4, 3, 2)
    torch.testing.assert_close(wide.crps(y), crps.expand(4, 3, 2), rtol=1e-12, atol=0)
    assert law.log_prob(torch.zeros(7, 1, 1)).shape == (7, 3, 2)


@pytest.mark.parametrize("name", ["the paper's, at its top", "mixed kinds", "small gamma"])
def test_samples_by_chi_square(name):
    truth, n = truth_of(name), 2000
    draws = law_of(name).sample((n,), generator=torch.Generator().manual_seed(2)).squeeze(-1).numpy()
    edges = np.unique(truth.icdf(np.linspace(0.05, 0.95, 19)))
    expected = np.diff(np.concatenate([[0], truth.upto[edges], [1]]).astype(np.float64)) * n
    seen = np.bincount(np.searchsorted(edges, draws), minlength=len(expected))
    assert expected.min() > 5
    assert stats.chisquare(seen, expected).pvalue > 1e-3


def test_float32_laws_give_the_float64_answer():
    names = ["narrow, far apart", "small gamma, long", "wide"]
    single = conflated([CASES[name] for name in names], torch.float32)
    # The same numbers: what float32 holds of the parameters.
    double = Conflation([DoublePoisson(law.mu.double(), law.gamma.double()) for law in single.components])
    y = torch.tensor([truth_of(name).icdf(0.4) for name in names], dtype=torch.float64)
    for method in ("log_prob", "cdf", "crps"):
        got = getattr(single, method)(y.float())
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), getattr(double, method)(y), rtol=1e-5, atol=1e-7)
    assert single.mean.dtype == torch.float32
    torch.testing.assert_close(single.mean.double(), double.mean, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("laws", "got"),
    [
        ([], "got none"),
        ([Poisson(1.0), torch.distributions.Poisson(1.0)], "got Poisson, Poisson"),
        ([3.0], "got float"),
    ],
)
def test_what_is_no_count_law_raises(laws, got):
    with pytest.raises(InputError, match=f"components must be one or more count distributions.*{got}"):
        Conflation(laws)


def test_shapes_that_do_not_broadcast_raise():
    with pytest.raises(InputError, match=r"shapes must broadcast, got component 0 \(2,\) and component 1 \(3,\)"):
        Conflation([Poisson(torch.ones(2)), Poisson(torch.ones(3))])
    with pytest.raises(InputError, match=r"shapes must broadcast, got y \(3,\) and batch_shape \(2,\)"):
        Conflation([Poisson(torch.ones(2))]).log_prob(torch.zeros(3))


@pytest.mark.parametrize("bad", [-1.0, 0.5, math.nan, math.inf])
def test_bad_counts_raise(bad):
    with pytest.raises(InputError, match="y must hold non-negative integers"):
        Conflation([Poisson(2.0)]).log_prob(torch.tensor(bad))


def test_gradients_are_right_or_refused():
    def log_prob(mu: torch.Tensor) -> torch.Tensor:
        return Conflation([Poisson(mu), Poisson(torch.tensor(3.0).double())]).log_prob(torch.tensor(4.0))

    mu = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    try:
        assert torch.autograd.gradcheck(log_prob, (mu,))
    except DDPNError as refusal:
        assert "no gradient" in str(refusal)  # noqa: PT017


def test_scores_without_a_gradient_say_so():
    law = Conflation([Poisson(torch.tensor(2.0, requires_grad=True)), Poisson(3.0)])
    with pytest.raises(DDPNError, match="no gradient"):
        law.crps(torch.tensor(2.0)).backward()
