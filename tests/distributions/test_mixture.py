"""Test mixtures with equal weights against sums over every integer in extended precision.

Mixtures of Normals are in test_continuous.py; shapes and dtypes in test_contract.py.
"""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.distributions import Laplace, Normal

from ddpn.distributions import DoublePoisson, Mixture, NegativeBinomial, Poisson
from ddpn.runtime.errors import InputError

KINDS = {"dp": DoublePoisson, "poisson": Poisson, "nb": NegativeBinomial}


def draw_components(kind: str, seed: int, mu: tuple[float, float], other: tuple[float, float]) -> list:
    """Draw five components with log-uniform parameters."""
    rng = np.random.default_rng(seed)
    draws = np.exp(rng.uniform(np.log([mu[0], other[0]]), np.log([mu[1], other[1]]), (5, 2)))
    return [(kind, *(float(x) for x in row[: 1 if kind == "poisson" else 2])) for row in draws]


CASES: dict[str, list[tuple]] = {
    "dp one": [("dp", 7.3, 1.7)],
    "dp one, long": [("dp", 3000.0, 0.2)],
    "dp similar": draw_components("dp", 1, (10, 14), (1, 2)),
    "dp similar, small": draw_components("dp", 2, (0.1, 0.3), (0.5, 2)),
    "dp similar, long": draw_components("dp", 3, (800, 1100), (0.2, 0.4)),
    "dp similar, narrow, far from 0": draw_components("dp", 4, (5000, 5020), (200, 400)),
    "dp dissimilar": [("dp", 2.1, 3.0), ("dp", 9.3, 0.6), ("dp", 40.2, 1.4), ("dp", 300.5, 0.3), ("dp", 2500.0, 2.0)],
    "dp dissimilar, smooth": [("dp", 3e3, 0.5), ("dp", 1e4, 0.9), ("dp", 4e4, 0.4), ("dp", 2e5, 1.1), ("dp", 1e5, 1.0)],
    "dp narrow in wide": [*draw_components("dp", 5, (150, 260), (0.04, 0.08))[:4], ("dp", 181.3, 60.0)],
    "dp narrow beside wide": [("dp", 5.0, 10.0), ("dp", 1e5, 1.0)],
    "dp narrow beyond wide": [("dp", 3.0, 0.05), ("dp", 5e4, 4e3)],
    "dp narrow ones apart": [("dp", 3.2, 8.0), ("dp", 700.4, 90.0), ("dp", 7e4, 9e3)],
    "dp point masses": [("dp", 4.0, 300.0), ("dp", 1000.0, 3e4), ("dp", 20.0, 2e3)],
    "dp tiny gamma": [("dp", 0.5, 1e-3), ("dp", 3.0, 4e-3), ("dp", 1e-2, 2e-3), ("dp", 20.0, 1e-3), ("dp", 0.1, 9e-3)],
    "dp tiny gamma and a narrow one": [("dp", 0.5, 1e-3), ("dp", 30.0, 2e-3), ("dp", 12.0, 50.0)],
    "dp nearly all at 0": [("dp", 1e-4, 1.0), ("dp", 3e-5, 2.0), ("dp", 1e-3, 0.7)],
    "dp large counts": draw_components("dp", 6, (9e5, 1.1e6), (0.5, 3)),
    "dp very large counts": [("dp", 1e7, 1.0), ("dp", 1.001e7, 2.5), ("dp", 0.999e7, 4.0)],
    **{f"dp random {i}": draw_components("dp", 100 + i, (0.05, 3e3), (7e-3, 50)) for i in range(6)},
    "poisson one": [("poisson", 4.4)],
    "poisson similar": draw_components("poisson", 7, (20, 30), (1, 1)),
    "poisson dissimilar": [("poisson", 0.3), ("poisson", 5.0), ("poisson", 77.7), ("poisson", 900.1), ("poisson", 2e4)],
    "nb one": [("nb", 12.0, 0.4)],
    "nb similar": draw_components("nb", 8, (20, 30), (0.2, 0.4)),
    "nb dissimilar": [("nb", 0.3, 2.0), ("nb", 5.0, 0.1), ("nb", 77.0, 1e-3), ("nb", 900.0, 0.05), ("nb", 300.0, 1.5)],
    "nb large counts": [("nb", 1e5, 1e-4), ("nb", 1.3e5, 1e-3), ("nb", 0.9e5, 1e-2)],
}
#: None is k / M, where the cdf of components apart is flat, and rounding decides between two of them.
QUANTILES = np.array([1e-6, 1e-3, 0.01, 0.07, 0.26, 0.48, 0.55, 0.71, 0.93, 0.99, 0.9995])


def make_batch(rows: list[list[tuple]]) -> Mixture:
    """Make one mixture per row."""
    parameters = torch.tensor([[m[1:] for m in components] for components in rows], dtype=torch.float64)
    return Mixture(KINDS[rows[0][0][0]](*parameters.unbind(-1)))


def make_single(components: list[tuple]) -> Mixture:
    """Make one mixture of batch_shape ()."""
    parameters = torch.tensor([m[1:] for m in components], dtype=torch.float64)
    return Mixture(KINDS[components[0][0]](*parameters.unbind(-1)))


def choose_counts(truth) -> torch.Tensor:
    """Choose 0, quantiles, both ends of the support and counts far beyond it."""
    last = int(truth.y[-1])
    extra = [0, 1, truth.first, last, last + 5, 3 * last + 100]
    return torch.tensor(sorted([*truth.quantile(QUANTILES).tolist(), *extra]), dtype=torch.float64)


def assert_close(got: torch.Tensor, expected: object, relative: float, absolute: float = 0.0, name: str = "") -> None:
    expected = np.asarray(expected).astype(np.float64)
    np.testing.assert_allclose(got.numpy(), expected, rtol=relative, atol=absolute, err_msg=name)


def group_cases() -> dict[tuple[str, int], list[str]]:
    """Group cases by kind and number of components: a group makes one batch."""
    groups: dict[tuple[str, int], list[str]] = {}
    for name, components in CASES.items():
        groups.setdefault((components[0][0], len(components)), []).append(name)
    return groups


@pytest.fixture(params=group_cases(), ids=str)
def cases(request, sum_mixture) -> tuple[Mixture, dict]:
    """A mixture of several rows, and each row's name and sums."""
    names = group_cases()[request.param]
    return make_batch([CASES[name] for name in names]), {name: sum_mixture(CASES[name]) for name in names}


def choose_counts_of_rows(truths: dict) -> torch.Tensor:
    """Choose counts in shape (counts, rows)."""
    return torch.stack([choose_counts(truth) for truth in truths.values()], 1)


# Each method against the sums --------------------------------------------------------------------------------------


def test_log_prob_is_that_of_a_sum(cases):
    mixture, truths = cases
    counts = choose_counts_of_rows(truths)
    for (name, truth), y, log_p in zip(truths.items(), counts.T, mixture.log_prob(counts).T.numpy(), strict=True):
        p = truth.pmf(y.numpy())
        seen = p > 1e-20  # below, windows of components end in the oracle
        expected = np.log(p[seen])
        assert np.all(np.abs(log_p[seen] - expected) <= 1e-8 * np.maximum(1, np.abs(expected))), name
        assert np.all(log_p[~seen] < math.log(2e-20)), name


def test_cdf_survival_and_quantiles_are_those_of_sums(cases):
    mixture, truths = cases
    counts = choose_counts_of_rows(truths)
    below, above = mixture.cdf(counts), mixture.survival(counts)
    for i, (name, truth) in enumerate(truths.items()):
        y = counts[:, i].numpy()
        assert_close(below[:, i], truth.cdf(y), 2e-6, 1e-18, name)
        assert_close(above[:, i], truth.survival(y), 2e-6, 1e-18, name)
    quantiles = mixture.icdf(torch.from_numpy(QUANTILES).unsqueeze(1)).T.tolist()
    assert dict(zip(truths, quantiles, strict=True)) == {
        name: t.quantile(QUANTILES).tolist() for name, t in truths.items()
    }
    ends = mixture.icdf(torch.tensor([[0.0], [1.0]], dtype=torch.float64))
    assert ends.T.tolist() == [[0.0, math.inf]] * len(truths)


def test_the_mode_is_the_most_probable_count(cases):
    mixture, truths = cases
    for (name, truth), mode in zip(truths.items(), mixture.mode.tolist(), strict=True):
        # Two counts may tie (Poisson with an integer mean); then neither is wrong.
        assert truth.pmf(mode) >= truth.p.max() * (1 - 1e-12), name


def test_moments_and_their_split_are_those_of_sums(cases):
    mixture, truths = cases
    for i, (name, truth) in enumerate(truths.items()):
        each_mean, each_variance = np.array([[dist.mean, dist.variance] for dist in truth.parts]).T
        assert_close(mixture.mean[i], truth.mean, 1e-9, name=name)
        assert_close(mixture.variance[i], truth.variance, 1e-8, name=name)
        assert_close(mixture.stddev[i], np.sqrt(truth.variance), 1e-8, name=name)
        assert_close(mixture.aleatoric[i], each_variance.mean(), 1e-8, name=name)
        assert_close(mixture.epistemic[i], each_mean.var(), 1e-7, 1e-9 * truth.variance, name)
        assert_close((mixture.aleatoric + mixture.epistemic)[i], truth.variance, 1e-8, name=name)


def test_crps_is_that_of_a_sum(cases):
    mixture, truths = cases
    counts = choose_counts_of_rows(truths)
    scores = mixture.crps(counts)
    for i, (name, truth) in enumerate(truths.items()):
        assert_close(scores[:, i], [truth.crps(float(v)) for v in counts[:, i]], 1e-7, name=name)


def test_entropy_and_its_split_are_those_of_sums(cases):
    mixture, truths = cases
    total, within, between = mixture.entropy(), mixture.expected_entropy, mixture.mutual_information
    for i, (name, truth) in enumerate(truths.items()):
        expected = np.mean([dist.entropy for dist in truth.parts])
        assert_close(total[i], truth.entropy, 1e-7, name=name)
        assert_close(within[i], expected, 1e-7, name=name)
        assert_close(between[i], truth.entropy - expected, 1e-6, 2e-7 * truth.entropy, name)
        assert_close((within + between)[i], truth.entropy, 2e-7, name=name)


@pytest.mark.parametrize(
    ("group", "coverage"), [*((group, 0.37) for group in group_cases()), (("dp", 5), 0.83)], ids=str
)
def test_intervals_are_quantiles_of_sums(group, coverage, sum_mixture):
    rows = [CASES[name] for name in group_cases()[group]]
    mixture, truths = make_batch(rows), [sum_mixture(row) for row in rows]
    half = 0.5 * (1 - coverage)
    central = torch.stack(mixture.interval(coverage), -1).tolist()
    assert central == [truth.quantile([half, 1 - half]).tolist() for truth in truths]


# Members so far apart that no table holds them: pairs, each by the difference of its means --------------------------


@pytest.mark.parametrize(
    "parameters",
    [
        [("dp", 5.0, 10.0), ("dp", 1e5, 1.0)],
        [("dp", 5.0, 10.0), ("dp", 1e9, 60.0)],
        [("dp", 0.02, 3.0), ("dp", 4e3, 50.0), ("dp", 1e8, 40.0), ("dp", 1e9, 50.0)],
        [("poisson", 2.0), ("poisson", 1e6), ("poisson", 1e8)],
        [("nb", 2.0, 0.3), ("nb", 1e5, 1e-6), ("nb", 1e8, 1e-9)],
    ],
    ids=str,
)
def test_components_with_nothing_in_common_have_closed_forms(parameters, sum_distribution):
    mixture = make_single(parameters)
    components = [sum_distribution(*component_parameters) for component_parameters in parameters]
    assert all(before.y[-1] < after.first for before, after in pairwise(components))
    means = np.array([dist.mean for dist in components])
    size = len(components)
    # Two components apart differ by the difference of their means; the half difference of one is F (1 - F).
    between = np.abs(means[:, None] - means).sum() / (2 * size**2)
    within = sum(dist.half_mean_difference for dist in components) / size**2
    counts = torch.tensor([float(dist.quantile(0.3)) for dist in components], dtype=torch.float64)
    crps, cdf = mixture.crps(counts), mixture.cdf(counts)
    for i, (dist, y) in enumerate(zip(components, counts.tolist(), strict=True)):
        to_y = dist.expectation(np.abs(dist.y - y)) + np.abs(np.delete(means, i) - y).sum()
        assert_close(crps[i], to_y / size - between - within, 1e-8)
        assert_close(cdf[i], (i + dist.cdf(y)) / size, 1e-8)
    levels = (torch.arange(size, dtype=torch.float64) + 0.3) / size
    assert mixture.icdf(levels).tolist() == counts.tolist()
    assert_close(mixture.entropy(), np.mean([dist.entropy for dist in components]) + math.log(size), 1e-8)
    assert_close(mixture.mutual_information, math.log(size), 1e-6)
    highest = max(components, key=lambda dist: dist.p.max())
    assert highest.pmf(mixture.mode) >= highest.p.max() * (1 - 1e-12)


#: Found by looking at 20,000 random mixtures: peaks of nearly one height, components of middling width in wide ones.
HARD = [
    [("dp", 43485.32, 11.87), ("dp", 42280.16, 0.575), ("dp", 40848.18, 206.48), ("dp", 41353.12, 210.96)],
    [("dp", 873.080532538193, 6.367611447140665), ("dp", 1620.376, 0.01196), ("dp", 745.4171129416015, 5.361909282975)],
    [("dp", 4579.873443, 21.50205067), ("dp", 100335.2059, 468.04993893), ("dp", 4111.650841, 0.278574404)],
    [("dp", 917.8044924551383, 13.487852885), ("dp", 14726.41, 0.09976595), ("dp", 890.2571781686695, 13.030542257)],
    [("dp", 6515.3558709903555, 17.07586460774281), ("dp", 13881.3775, 0.00268), ("dp", 872248.9866, 1474.27006)],
    [("dp", 5124.711166238488, 25.994547494), ("dp", 5088.941014845, 0.00556291176), ("dp", 1428084.2568, 139.516674)],
    [("dp", 3493.2008681679913, 24.408988536), ("dp", 2869.65307, 0.011601967), ("dp", 47075.0794576, 1.638449125)],
    [("dp", 4594.212935675539, 73.48067522), ("dp", 78348.4941107, 4.542065341), ("dp", 3843.29784757, 0.009899638)],
    [("poisson", m) for m in (35940.318863, 31628.461746, 42244.10121, 26486.4971987, 32003.33614)],
    [("dp", 20.5, 9e3), ("dp", 400.0, 0.02), ("dp", 90.5, 3e3)],
]


@pytest.mark.parametrize(("kind", "n_components"), sorted({(row[0][0], len(row)) for row in HARD}))
def test_hard_modes_entropies_cdfs_and_scores_are_those_of_sums(kind, n_components, sum_mixture):
    """All rows of one kind and number of components make one batch."""
    rows = [row for row in HARD if (row[0][0], len(row)) == (kind, n_components)]
    mixture, truths = make_batch(rows), [sum_mixture(row) for row in rows]
    assert mixture.mode.tolist() == [truth.first + truth.p.argmax() for truth in truths]
    assert_close(mixture.entropy(), [truth.entropy for truth in truths], 1e-7)
    y = torch.tensor(np.stack([truth.quantile(QUANTILES) for truth in truths], 1), dtype=torch.float64)
    assert mixture.icdf(torch.from_numpy(QUANTILES).unsqueeze(1)).tolist() == y.tolist()
    cdf, crps = mixture.cdf(y), mixture.crps(y)
    for i, (row, truth) in enumerate(zip(rows, truths, strict=True)):
        assert_close(cdf[:, i], truth.cdf(y[:, i].numpy()), 2e-6, name=str(row))
        assert_close(crps[:, i], [truth.crps(v) for v in y[:, i].tolist()], 1e-6, name=str(row))


# Shapes, and mixtures that are something simpler ------------------------------------------------------------------


def collect_answers(dist, y: torch.Tensor) -> dict[str, torch.Tensor]:
    """Collect the answer of every method, at counts y of the batch shape."""
    q = torch.full_like(y, 0.37)
    low, high = dist.interval(0.8)
    return {
        "log_prob": dist.log_prob(y),
        "cdf": dist.cdf(y),
        "survival": dist.survival(y),
        "icdf": dist.icdf(q),
        "mode": dist.mode,
        "mean": dist.mean,
        "variance": dist.variance,
        "crps": dist.crps(y),
        "entropy": dist.entropy(),
        "low": low,
        "high": high,
    }


def assert_same(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], relative: float = 1e-9) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=relative, atol=1e-13, msg=lambda m, name=name: f"{name}: {m}")


DISTRIBUTIONS = {
    "dp": DoublePoisson(torch.tensor([[0.3, 9.0, 700.0], [4.0, 50.0, 3e4]], dtype=torch.float64), torch.tensor(0.8)),
    "poisson": Poisson(torch.tensor([[0.3, 9.0, 700.0], [4.0, 50.0, 3e4]], dtype=torch.float64)),
    "nb": NegativeBinomial(torch.tensor([[0.3, 9.0, 70.0], [4.0, 50.0, 3e3]], dtype=torch.float64), torch.tensor(0.2)),
    "normal": Normal(
        torch.tensor([[0.3, 9.0, -70.0], [4.0, 50.0, 3e3]], dtype=torch.float64), torch.tensor(2.5).double()
    ),
}
each_kind = pytest.mark.parametrize("kind", DISTRIBUTIONS)


def repeat_parameters(dist, shape: tuple[int, ...], size: int):
    """Repeat parameters along a new last axis, to make identical components."""
    parameters = (getattr(dist, name).unsqueeze(-1).expand(*shape, size) for name in dist.arg_constraints)
    return type(dist)(*parameters)


@each_kind
@pytest.mark.parametrize("size", [1, 5])
def test_identical_components_make_the_component(kind, size):
    dist = DISTRIBUTIONS[kind]
    mixture = Mixture(repeat_parameters(dist, (2, 3), size))
    assert (mixture.size, mixture.batch_shape, mixture.event_shape) == (size, (2, 3), ())
    torch.testing.assert_close(mixture.epistemic, torch.zeros(2, 3).double(), rtol=0, atol=1e-9)
    y = dist.mean.round()
    if kind == "normal":
        q = torch.tensor(0.37).double()
        names = {"log_prob": y, "cdf": y, "icdf": q}
        expected = {name: getattr(dist, name)(x) for name, x in names.items()}
        results = {name: getattr(mixture, name)(x) for name, x in names.items()}
        expected |= {"mean": dist.mean, "variance": dist.variance}
        results |= {"mean": mixture.mean, "variance": mixture.variance}
    else:
        torch.testing.assert_close(mixture.mutual_information, torch.zeros(2, 3).double(), rtol=0, atol=1e-6)
        results, expected = collect_answers(mixture, y), collect_answers(dist, y)
    # A sum of twice as many terms is rounded twice as often.
    assert_same(results, expected, 1e-7)


@pytest.mark.parametrize("kind", ["dp", "poisson", "nb"])
def test_mixtures_of_mixtures_are_flat(kind):
    dist = DISTRIBUTIONS[kind]
    parameters = [getattr(dist, name).reshape(3, 2) for name in dist.arg_constraints]
    nested = Mixture(Mixture(type(dist)(*parameters)))
    flat = Mixture(type(dist)(*(p.reshape(6) for p in parameters)))
    assert (nested.batch_shape, nested.size) == ((), 3)
    y = torch.tensor([0.0, 4.0, 40.0, 800.0], dtype=torch.float64)
    for method in ("log_prob", "cdf", "survival", "crps"):
        torch.testing.assert_close(getattr(nested, method)(y), getattr(flat, method)(y), rtol=1e-8, atol=1e-14)
    assert_same(collect_answers(nested, y[2]), collect_answers(flat, y[2]), 1e-8)


# Samples, gradients, bad input ----------------------------------------------------------------------------------------


def test_gradients_stay_finite_where_components_underflow():
    log_mu = torch.tensor([[0.0, 12.0, -10.0]], dtype=torch.float64, requires_grad=True)
    mixture = Mixture(DoublePoisson(log_mu.exp(), torch.tensor(40.0).double()))
    mixture.log_prob(torch.tensor([0.0, 1.0, 1e3, 1e7], dtype=torch.float64)).sum().backward()
    assert torch.isfinite(log_mu.grad).all()


@pytest.mark.parametrize(
    "components", [DoublePoisson(2.0, 1.0), Poisson(2.0), NegativeBinomial(2.0, 1.0), Normal(0.0, 1.0)]
)
def test_components_without_an_axis_are_refused(components):
    with pytest.raises(InputError, match="components must have a last axis"):
        Mixture(components)


@pytest.mark.parametrize(
    "components", [Laplace(torch.zeros(2), 1.0), torch.distributions.Poisson(torch.ones(2)), Poisson(torch.ones(2)).mu]
)
def test_other_components_are_refused(components):
    with pytest.raises(InputError, match=r"components must be count distributions .* or Normals, got \w+\.$"):
        Mixture(components)


# Everything at once -----------------------------------------------------------------------------------------------


def test_a_summary_is_what_the_methods_return():
    rng = np.random.default_rng(5)
    mu = torch.from_numpy(np.exp(rng.uniform(0, 8, (60, 1)) + rng.normal(0, 0.2, (60, 4))))
    gamma, alpha = torch.from_numpy(np.exp(rng.normal(-1, 1, (2, 60, 4))))
    weights = torch.from_numpy(rng.dirichlet(np.ones(8), 60))
    mixture = Mixture.concatenate([DoublePoisson(mu, gamma), NegativeBinomial(mu.flip(1), alpha)], weights)
    levels = torch.tensor([0.05, 0.5, 0.9, 1 - 1e-9], dtype=torch.float64)
    entropy, mode = mixture.entropy(), mixture.mode
    y = torch.from_numpy(rng.poisson(mu[:, 0].numpy()).astype(float))
    summary = mixture.summary(levels, y, entropy=True)
    assert torch.equal(summary.quantiles, mixture.icdf(levels.unsqueeze(1)).T)
    assert torch.equal(summary.mode, mode)
    for name, expected in (("entropy", entropy), ("crps", mixture.crps(y))):
        torch.testing.assert_close(getattr(summary, name), expected, rtol=1e-12, atol=0.0)
    for name in ("mean", "variance", "aleatoric", "epistemic"):
        torch.testing.assert_close(getattr(summary, name), getattr(mixture, name), rtol=1e-9, atol=0.0)


def test_a_component_of_weight_zero_does_not_widen_the_bracket():
    """The window of a mixture bounds the sums of all other results."""
    mixture = Mixture(Poisson(torch.tensor([[3.0, 500.0]], dtype=torch.float64)), torch.tensor([1.0, 0.0]))
    ends, alone = mixture.bracket(20.0), Poisson(torch.tensor([3.0], dtype=torch.float64)).bracket(20.0)
    assert [float(end) for end in ends] == [float(end) for end in alone]


def test_a_mixture_is_shown_by_its_components():
    mixture = Mixture.concatenate([Poisson(torch.ones(3, 2)), DoublePoisson(torch.ones(3, 1), 2.0)])
    assert repr(mixture) == "Mixture(2 Poisson, 1 DoublePoisson, batch_shape=(3,))"
