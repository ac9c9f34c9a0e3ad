"""Test what every count distribution offers, whatever its family and modifiers, against sums of its own pmf.

The pmfs themselves are compared with scipy, statsmodels and direct sums in the file of their family; those of three
families with golden rows and R are compared in this file.
"""

import math
import pickle
import re
from functools import cache

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.distributions import Normal
from torch.func import grad, jacrev, vmap

from ddpn.distributions import (
    Censored,
    ConwayMaxwellPoisson,
    CountDistribution,
    DoubleBinomial,
    DoublePoisson,
    GeneralizedPoisson,
    Hurdle,
    MeanDoublePoisson,
    Mixture,
    MonotoneMap,
    NegativeBinomial,
    Poisson,
    Recalibrated,
    Truncated,
    ZeroInflated,
    discretize,
)
from ddpn.runtime.errors import DDPNError, InputError


def make_float64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


#: Means, second parameters and counts of four rows.
MU, OTHER, COUNTS = make_float64(0.01, 3.3, 45.2, 420.7), make_float64(0.3, 0.8, 0.1, 0.9), make_float64(0, 2, 61, 390)
PI, LOW, HIGH, TOTAL = (
    make_float64(0.0, 0.4, 1e-9, 0.95),
    make_float64(0, 2, 60, 100),
    make_float64(5, math.inf, 70, 2000),
    make_float64(1, 9, 90, 3000),
)
CHANGE = MonotoneMap.from_knots([0.0, 0.03, 0.2, 0.5, 0.9, 1.0], [0.0, 0.06, 0.3, 0.45, 0.95, 1.0])


def convert_like(mu: Tensor, values: Tensor) -> Tensor:
    """Return values with the precision of results for these means: half precision is promoted."""
    return values.to(torch.promote_types(mu.dtype, torch.float32))


FAMILIES = {
    "Poisson": lambda mu, other: Poisson(mu),
    "DoublePoisson": DoublePoisson,
    "NegativeBinomial": NegativeBinomial,
    "GeneralizedPoisson": GeneralizedPoisson,
    "ConwayMaxwellPoisson": ConwayMaxwellPoisson,
    "MeanDoublePoisson": MeanDoublePoisson,
    "DoubleBinomial": lambda mu, other: DoubleBinomial(convert_like(mu, TOTAL), mu, other),
}


def make_blend(mu: Tensor, other: Tensor) -> Mixture:
    return Mixture([DoublePoisson(mu, other), NegativeBinomial(mu, other)], [0.3, 0.7])


MAKERS = FAMILIES | {
    "Mixture": make_blend,
    "Mixture of a stack": lambda mu, other: Mixture(DoublePoisson(torch.stack([mu, 2 * mu], -1), other.unsqueeze(-1))),
    "Mixture of modifiers": lambda mu, other: Mixture(
        [
            Truncated(Poisson(mu), LOW, HIGH),
            ZeroInflated(DoublePoisson(mu, other), 0.3),
            Hurdle(Poisson(mu), convert_like(mu, PI)),
        ]
    ),
    "Mixture of hurdles": lambda mu, other: Mixture(
        [Hurdle(NegativeBinomial(mu, other), convert_like(mu, PI)), Hurdle(NegativeBinomial(mu / 2, other), 0.1)],
        [0.2, 0.8],
    ),
    "Truncated above zero": lambda mu, other: Truncated(NegativeBinomial(mu, other), low=1),
    "Truncated per row": lambda mu, other: Truncated(DoublePoisson(mu, other), LOW, HIGH),
    "Truncated far from its base": lambda mu, other: Truncated(Poisson(mu), 900),
    "Truncated mixture": lambda mu, other: Truncated(make_blend(mu, other), LOW, HIGH),
    "ZeroInflated": lambda mu, other: ZeroInflated(NegativeBinomial(mu, other), convert_like(mu, PI)),
    "ZeroInflated mixture": lambda mu, other: ZeroInflated(
        make_blend(mu, other), logits=convert_like(mu, make_float64(-2, 0, 3, -40))
    ),
    "Truncated ZeroInflated": lambda mu, other: Truncated(ZeroInflated(NegativeBinomial(mu, other), 0.4), 0, HIGH),
    "Hurdle": lambda mu, other: Hurdle(Poisson(mu), convert_like(mu, PI)),
    "Hurdle of a Truncated": lambda mu, other: Hurdle(Truncated(NegativeBinomial(mu, other), high=HIGH), 0.2),
    "Censored": lambda mu, other: Censored(DoublePoisson(mu, other), make_float64(2, 4, 60, 400)),
    "Censored mixture": lambda mu, other: Censored(make_blend(mu, other), make_float64(2, 4, 60, math.inf)),
    "Recalibrated": lambda mu, other: Recalibrated(Poisson(mu), CHANGE),
    "Recalibrated mixture": lambda mu, other: Recalibrated(make_blend(mu, other), CHANGE),
    "Discretized": lambda mu, other: discretize(Normal(mu, 4.0 * other)),
    "Discretized mixture": lambda mu, other: discretize(Mixture(Normal(torch.stack([mu, -mu, 2 * mu], -1), 9.0))),
}
#: Families whose `log_prob` comes from kernels alone.
WITHOUT_FORMULA = ("ConwayMaxwellPoisson", "MeanDoublePoisson", "DoubleBinomial")
each_family = pytest.mark.parametrize("name", FAMILIES)
each_maker = pytest.mark.parametrize("name", MAKERS)
AT_COUNTS = ("log_prob", "cdf", "survival", "crps")
Y = torch.arange(12000.0, dtype=torch.float64).unsqueeze(1)


@cache
def get_example(name: str) -> CountDistribution:
    return MAKERS[name](MU, OTHER)


@cache
def compute_pmf(name: str) -> Tensor:
    return get_example(name).log_prob(Y).exp()


def collect_results(dist: CountDistribution, y: Tensor) -> dict[str, Tensor]:
    """Collect everything that a distribution answers, except samples."""
    answers = {method: getattr(dist, method)(y) for method in AT_COUNTS}
    answers |= {"mean": dist.mean, "variance": dist.variance, "stddev": dist.stddev, "mode": dist.mode}
    answers |= {"entropy": dist.entropy(), "icdf": dist.icdf(torch.tensor(0.3))}
    return answers | dict(zip(("low", "high"), dist.interval(0.8), strict=True))


# Everything follows from the pmf --------------------------------------------------------------------------------------


@each_maker
def test_moments_and_scores_are_sums(name):
    dist, p = get_example(name), compute_pmf(name)
    cdf, above = p.cumsum(0), p.flip(0).cumsum(0).flip(0) - p
    torch.testing.assert_close(cdf[-1], torch.ones_like(cdf[-1]), rtol=1e-8, atol=0.0)
    mean = (p * Y).sum(0)
    torch.testing.assert_close(dist.mean, mean, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(dist.variance, (p * (Y - mean) ** 2).sum(0), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(dist.entropy(), torch.special.entr(p).sum(0), rtol=1e-7, atol=1e-9)
    assert (p.gather(0, dist.mode.long().unsqueeze(0)) >= p.amax(0) * (1 - 1e-12)).all()
    y = torch.stack([torch.zeros(4), dist.mode, mean.round() + 3, torch.full((4,), 1000.0)]).double()
    torch.testing.assert_close(dist.cdf(y), cdf.gather(0, y.long()), rtol=1e-8, atol=1e-13)
    torch.testing.assert_close(dist.survival(y), above.gather(0, y.long()), rtol=1e-7, atol=1e-13)
    assert torch.equal(dist.cdf(make_float64(-1, -2, -7, -1)), torch.zeros(4, dtype=torch.float64))
    torch.testing.assert_close(
        dist.survival(make_float64(-1, -2, -7, -1)), torch.ones(4).double(), rtol=1e-15, atol=0.0
    )
    if not name.startswith("Censored"):  # whose CRPS compares cdfs below the limit only: test_limits.py
        score = torch.stack([((cdf - (level <= Y).double()) ** 2).sum(0) for level in y])
        torch.testing.assert_close(dist.crps(y), score, rtol=1e-6, atol=1e-9)


@each_maker
def test_quantiles_and_intervals_follow_the_cdf(name):
    dist, p = get_example(name), compute_pmf(name)
    cdf = p.cumsum(0)
    q = make_float64(0.003, 0.05, 0.5, 0.95, 0.97).unsqueeze(1)
    quantiles = dist.icdf(q)
    assert (cdf.gather(0, quantiles.long()) >= q - 1e-9).all()
    assert (cdf.gather(0, quantiles.long()) - p.gather(0, quantiles.long()) < q + 1e-9).all()
    assert [end.tolist() for end in dist.interval(0.9)] == [quantiles[1].tolist(), quantiles[3].tolist()]
    assert torch.equal(dist.icdf(make_float64(0.0)), torch.zeros(4, dtype=torch.float64))
    levels = torch.linspace(0.0, 1.0, 101, dtype=torch.float64).unsqueeze(1)
    assert (dist.icdf(levels).diff(dim=0) >= 0).all()


@each_maker
def test_samples_follow_the_pmf(name):
    dist, cdf = get_example(name), compute_pmf(name).cumsum(0).numpy()
    draws = dist.sample((2000,), generator=torch.Generator().manual_seed(1)).long().numpy()
    for row in range(4):
        edges = np.unique(np.searchsorted(cdf[:, row], [0.1, 0.25, 0.5, 0.75, 0.9]))
        expected = 2000 * np.diff([0.0, *cdf[edges, row], cdf[-1, row]])
        seen = np.bincount(np.searchsorted(edges, draws[:, row]), minlength=len(expected))
        keep = expected > 5
        assert seen[expected < 1e-6].sum() == 0
        if keep.sum() > 1:
            scaled = expected[keep] * seen[keep].sum() / expected[keep].sum()
            assert stats.chisquare(seen[keep], scaled).pvalue > 1e-4


# Shapes and dtypes ----------------------------------------------------------------------------------------------------


@each_maker
def test_rows_shapes_and_pickles_have_the_same_results(name):
    dist, index = get_example(name), torch.tensor([3, 1])
    expected, score = dist.log_prob(COUNTS), dist.crps(COUNTS)
    torch.testing.assert_close(dist.rows(index).log_prob(COUNTS[index]), expected[index], rtol=1e-12, atol=0.0)
    torch.testing.assert_close(dist.rows(index).crps(COUNTS[index]), score[index], rtol=1e-9, atol=1e-12)
    wide = dist.expand((3, 4))
    assert type(wide) is type(dist)
    assert (wide.batch_shape, wide.crps(COUNTS).shape, wide.sample((2,)).shape) == ((3, 4), (3, 4), (2, 3, 4))
    torch.testing.assert_close(wide.mean[1], dist.mean)
    assert dist.log_prob(torch.zeros(5, 1)).shape == (5, 4)
    torch.testing.assert_close(dist._reshape((2, 2)).log_prob(COUNTS.view(2, 2)).flatten(), expected)
    torch.testing.assert_close(pickle.loads(pickle.dumps(dist)).log_prob(COUNTS), expected)
    none = dist.rows(torch.zeros(0, dtype=torch.long))
    assert all(value.shape == (0,) for value in collect_results(none, torch.zeros(0)).values())


@pytest.mark.parametrize("name", [n for n in FAMILIES if n not in ("Poisson", "DoubleBinomial")])
def test_parameters_broadcast_and_numbers_make_scalars(name):
    dist, y = MAKERS[name](MU.unsqueeze(1), OTHER[:3]), torch.zeros(5, 1, 1)
    assert (dist.batch_shape, dist.event_shape, dist.mean.shape) == ((4, 3), (), (4, 3))
    one = MAKERS[name](MU[1].item(), OTHER[2].item())
    for method in AT_COUNTS:
        assert getattr(dist, method)(y).shape == (5, 4, 3)
        torch.testing.assert_close(getattr(dist, method)(2)[1, 2].float(), getattr(one, method)(2))
    assert (one.sample().shape, one.interval(0.9)[1].shape, one.entropy().shape) == ((), (), ())


@each_maker
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_float32_answers_are_float64_answers_rounded(name, dtype):
    """Half precision is promoted to float32."""
    mu, other = MU.to(dtype), OTHER.to(dtype)
    rounded, exact = (
        collect_results(MAKERS[name](mu, other), COUNTS),
        collect_results(MAKERS[name](mu.double(), other.double()), COUNTS),
    )
    for result, got in rounded.items():
        assert got.dtype == torch.float32, result
        torch.testing.assert_close(got.double(), exact[result], rtol=1e-5, atol=1e-5)


@each_maker
def test_memory_and_autocast_change_nothing(name):
    expected = collect_results(get_example(name), COUNTS)
    strided = MAKERS[name](MU.repeat_interleave(2)[::2], OTHER.repeat_interleave(3)[::3])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for result, got in collect_results(strided, COUNTS).items():
            assert torch.equal(got, expected[result]), result


@each_maker
def test_counts_may_be_integers_of_any_kind_lists_and_keywords(name):
    """Counts may be passed by name, as in torch.distributions."""
    dist, y = get_example(name), [0, 2, 61, 130]
    for method in AT_COUNTS:
        expected = getattr(dist, method)(make_float64(*y))
        for same in (y, torch.tensor(y), torch.tensor(y, dtype=torch.uint8), np.array(y)):
            assert torch.equal(getattr(dist, method)(same), expected)
        assert torch.equal(getattr(dist, method)(value=torch.tensor(y)), expected)
    assert torch.equal(dist.icdf(value=torch.tensor(0.5)), dist.icdf(0.5))


# Derivatives ----------------------------------------------------------------------------------------------------------


@each_family
def test_derivatives_of_families_are_numerical_ones(name):
    leaves = [MU.log().requires_grad_(), OTHER.log().requires_grad_()]

    def log_prob(log_mu: Tensor, log_other: Tensor) -> Tensor:
        return MAKERS[name](log_mu.exp(), log_other.exp()).log_prob(COUNTS)

    assert gradcheck(log_prob, leaves, eps=1e-6, atol=1e-5, rtol=1e-5)
    assert gradgradcheck(log_prob, leaves, eps=1e-6, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", [n for n in MAKERS if n not in FAMILIES and not n.startswith(("Recal", "Disc"))])
def test_derivatives_of_mixtures_and_modifiers_are_numerical_ones(name):
    leaves, y = [MU.clone().requires_grad_(), OTHER.clone().requires_grad_()], get_example(name).mode
    log_prob = lambda mu, other: MAKERS[name](mu, other).log_prob(y)
    assert gradcheck(log_prob, leaves, eps=1e-6, atol=1e-5, rtol=1e-5, fast_mode=True)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in WITHOUT_FORMULA])
def test_transforms_of_torch_func_agree_with_autograd(name):
    parameters = (MU,) if name == "Poisson" else (MU, OTHER)

    def log_prob(y: Tensor, *parameters_of_row: Tensor) -> Tensor:
        return MAKERS[name](parameters_of_row[0], parameters_of_row[-1]).log_prob(y)

    leaves = [x.clone().requires_grad_() for x in parameters]
    values = log_prob(COUNTS, *leaves)
    expected = torch.autograd.grad(values.sum(), leaves)
    torch.testing.assert_close(vmap(log_prob)(COUNTS, *parameters), values.detach())
    places = tuple(range(1, 1 + len(parameters)))
    torch.testing.assert_close(vmap(grad(log_prob, argnums=places))(COUNTS, *parameters), expected)
    assert torch.isfinite(vmap(jacrev(jacrev(log_prob, argnums=1), argnums=1))(COUNTS, *parameters)).all()


@pytest.mark.parametrize("name", WITHOUT_FORMULA)
def test_families_without_a_formula_name_what_to_use(name):
    with pytest.raises(DDPNError, match=rf"^{name} has no formula for torch\.func .* Use torch\.autograd instead\.$"):
        vmap(lambda mu, other: FAMILIES[name](mu, other).log_prob(COUNTS))(MU.expand(3, 4), OTHER.expand(3, 4))


# Bad arguments --------------------------------------------------------------------------------------------------------


def assert_one_sentence_and_a_remedy(pattern: str, error: pytest.ExceptionInfo) -> None:
    """Assert that the message is `pattern`, a full stop, and one more sentence."""
    assert re.fullmatch(pattern + r"\. [A-Z][^.\n]+\.", str(error.value)), str(error.value)


@each_maker
def test_bad_counts_are_named(name):
    for method in AT_COUNTS:
        call, signed = getattr(get_example(name), method), method in ("cdf", "survival")
        kind = "integers" if signed else "non-negative integers"
        for bad in (2.5, math.nan, math.inf, *(() if signed else (-1.0,))):
            with pytest.raises(InputError) as error:
                call(make_float64(0.0, 3.0, bad, 0.5))
            assert_one_sentence_and_a_remedy(rf"y must hold {kind}, got {bad:g} at 2", error)
        with pytest.raises(InputError) as error:
            call(torch.tensor([[0.0, 1.0, 2.0, 0.5]]))
        assert_one_sentence_and_a_remedy(rf"y must hold {kind}, got 0\.5 at \(0, 3\)", error)
        with pytest.raises(InputError) as error:
            call(torch.ones(3, 2))
        assert_one_sentence_and_a_remedy(r"shapes must broadcast, got y \(3, 2\) and batch_shape \(4,\)", error)


@each_maker
def test_bad_probabilities_are_named(name):
    dist = get_example(name)
    for bad in (-0.1, 1.5, 90.0, math.nan, math.inf):
        with pytest.raises(InputError) as error:
            dist.icdf(make_float64(0.0, 0.3, 1.0, bad))
        assert_one_sentence_and_a_remedy(rf"q must lie in \[0, 1\], got {bad:g} at 3", error)
    for bad in (0.0, 1.0, -0.5, 90.0, math.nan):
        with pytest.raises(InputError, match=rf"^coverage must lie strictly between 0 and 1, got {bad:g}\. Use 0\.9"):
            dist.interval(bad)
    with pytest.raises(InputError, match=r"^coverage must be one number .* such as 0\.9, got \[0\.5, 0\.9\]\.$"):
        dist.interval([0.5, 0.9])


@pytest.mark.parametrize(
    ("family", "names", "tolerances"),
    [
        (GeneralizedPoisson, ("mu", "dispersion"), {"mean": 1e-12, "variance": 1e-11, "log_pmf": 1e-10, "R": 1e-11}),
        (ConwayMaxwellPoisson, ("mu", "dispersion"), {"mean": 1e-14, "variance": 1e-8, "log_pmf": 2e-9}),
        (DoubleBinomial, ("total", "mu", "dispersion"), {"mean": 1e-9, "variance": 1e-8, "log_pmf": 2e-9, "R": 1e-9}),
    ],
)
def test_pmf_and_moments_are_those_of_40_digit_sums_and_of_r(
    family, names, tolerances, golden_families, r_families, assert_within
):
    key = re.sub(r"\B(?=[A-Z])", "_", family.__name__).lower()
    rows = golden_families(key)
    dist, at = family(*(make_float64(*rows[name]) for name in names)), {name: rows[name] for name in names}
    for name in ("mean", "variance"):
        assert_within(getattr(dist, name), rows[name], tolerances[name], **at)
    for i in "123":
        assert_within(
            dist.log_prob(make_float64(*rows[f"y{i}"])), rows[f"log_pmf{i}"], tolerances["log_pmf"], floor=1.0, **at
        )
    if "R" in tolerances:  # VGAM and rmutil
        rows = r_families(key)
        dist = family(*(make_float64(*rows[name]) for name in names))
        assert_within(dist.log_prob(make_float64(*rows["y"])), rows["log_pmf"], tolerances["R"], floor=1.0, **rows)
