"""Tables in float32: what they are sure of is what exact tables give, and results of many rows are those of few."""

import numpy as np
import pytest
import torch
from scipy.special import ndtri

from ddpn.distributions import DoublePoisson, Mixture, NegativeBinomial
from ddpn.distributions.mixture_tables import MANY, Components, MixtureTables
from ddpn.distributions.monotone import MonotoneMap
from ddpn.distributions.recalibrated import Recalibrated
from ddpn.distributions.single_tables import single_quantiles

ROWS = 2 * MANY


def components(rng: np.random.Generator, scale: float, narrow: float, rows: int = ROWS) -> Components:
    base = scale * np.exp(rng.normal(0.0, 0.6, (rows, 1)))
    weight = rng.uniform(0.05, 1.0, (rows, 9))
    weight /= weight.sum(1, keepdims=True)
    return Components(
        base * np.exp(rng.normal(0.0, 0.4, (rows, 6))),
        np.exp(rng.normal(narrow, 0.6, (rows, 6))),
        weight[:, :6],
        base * np.exp(rng.normal(0.0, 0.4, (rows, 3))),
        np.exp(rng.normal(-1.0, 1.0, (rows, 3))),
        weight[:, 6:],
    )


def mixture(parts: Components) -> Mixture:
    mu, gamma, weight, mean, alpha, share = (torch.from_numpy(x) for x in parts)
    stacks = [DoublePoisson(mu, gamma), NegativeBinomial(mean, alpha)]
    return Mixture.trusted(stacks, torch.cat([weight, share], dim=1))


@pytest.fixture(scope="module")
def rng() -> np.random.Generator:
    return np.random.default_rng(8)


@pytest.mark.parametrize(("scale", "narrow"), [(0.1, 0.0), (3.0, -0.7), (8.0, 0.4), (15.0, -0.5)])
def test_sure_counts_are_exact(rng, scale, narrow):
    parts = components(rng, scale, narrow)
    tables, q = MixtureTables(parts), rng.uniform(0.01, 0.99, (ROWS, 4))
    found = single_quantiles(parts, tables._shared, q, ndtri(q.max()))
    exact = tables._exact_quantiles(q)
    assert found.sure.mean() > 0.6
    np.testing.assert_array_equal(found.counts[found.sure], exact.counts[found.sure])
    np.testing.assert_array_equal(found.mode[found.sure], exact.mode[found.sure])
    for of_many, of_few in zip(tables.quantiles(q), exact, strict=True):
        np.testing.assert_array_equal(of_many, of_few)


@pytest.mark.parametrize("distance", [0.0, 1e-12, 1e-7, -1e-7, 1e-6, -1e-6, 1e-5, -1e-5])
def test_levels_close_to_the_cdf_of_a_count(rng, distance):
    """Float32 rounds by more than these distances: wrong neighbours would be found if bounds were too small."""
    parts = components(rng, 6.0, 0.0)
    tables = MixtureTables(parts)
    cdf = np.zeros((ROWS, 200))
    for place, pmf in tables.whole():
        upto = pmf.cumsum(1)[:, :200]
        cdf[place, : upto.shape[1]] = upto
        cdf[place, upto.shape[1] :] = 1.0
    counts = rng.integers(0, 12, ROWS)
    level = cdf[np.arange(ROWS), counts] + distance
    usable = (level > 0.01) & (level < 0.99)
    assert usable.sum() > 0.7 * ROWS
    q = np.where(usable, level, 0.5)[:, None]
    found = single_quantiles(parts, tables._shared, q, ndtri(q.max()))
    exact = tables._exact_quantiles(q)
    np.testing.assert_array_equal(found.counts[found.sure], exact.counts[found.sure])
    assert not (found.sure & usable).any() or abs(distance) >= 1e-6
    assert (exact.counts[usable, 0] == counts[usable] + (distance > 0)).all() or distance == 0.0


def test_many_rows_are_those_of_few(rng):
    parts, levels = components(rng, 5.0, 0.2), torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    whole = mixture(parts)
    found, moments = whole.summary(levels), (whole.mean, whole.aleatoric, whole.epistemic)
    for start in range(0, ROWS, 512):
        rows = slice(start, start + 512)
        part = mixture(parts.rows(rows))
        expected = part.summary(levels)
        assert torch.equal(found.quantiles[rows], expected.quantiles)
        assert torch.equal(found.mode[rows], expected.mode)
        for value, own in zip(moments, (part.mean, part.aleatoric, part.epistemic), strict=True):
            torch.testing.assert_close(value[rows], own, rtol=1e-10, atol=0.0)
        torch.testing.assert_close(moments[0][rows], part.mean, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize(("scale", "narrow"), [(0.1, 0.0), (5.0, 0.2), (80.0, -1.0)])
def test_mixtures_in_float32_have_the_quantiles_of_their_parameters(rng, scale, narrow):
    """Moments are those of float32; quantiles and modes are exact, also of rows that tables do not reach."""
    given = Components(*(np.asfortranarray(x, dtype=np.float32) for x in components(rng, scale, narrow)))
    parts, levels = given.double(), torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    stacks = [DoublePoisson(*map(torch.from_numpy, given[:2])), NegativeBinomial(*map(torch.from_numpy, given[3:5]))]
    whole = Mixture.trusted(stacks, torch.cat([torch.from_numpy(parts.weight), torch.from_numpy(parts.share)], dim=1))
    exact = mixture(parts)
    assert whole._flat().from_zero.given.mu.dtype == np.float32
    found, expected = whole.summary(levels), exact.summary(levels)
    assert torch.equal(found.quantiles.double(), expected.quantiles)
    assert torch.equal(found.mode.double(), expected.mode)
    pairs = [(whole.mean, exact.mean), (whole.aleatoric, exact.aleatoric), (whole.variance, exact.variance)]
    for value, own in pairs:
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), own, rtol=1e-6, atol=0.0)
    assert ((whole.epistemic - exact.epistemic).abs() <= 1e-6 * exact.variance).all()


def test_recalibrated_rows_have_the_same_results_among_many(rng):
    parts = components(rng, 4.0, 0.0, 60)
    parts.mean[7], parts.mu[9] = 4000.0, 900.0  # beyond tables
    change = MonotoneMap.of([0.0, 0.1, 0.45, 0.9, 1.0], [0.0, 0.2, 0.5, 0.8, 1.0])
    whole, levels = Recalibrated(mixture(parts), change), torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    y = torch.arange(60, dtype=torch.float64) % 9.0
    found, crps, entropy = whole.summary(levels), whole.crps(y), whole.entropy()
    for row in (0, 7, 9, 31):
        rows = slice(row, row + 1)
        alone = Recalibrated(mixture(parts.rows(rows)), change)
        expected = alone.summary(levels)
        assert torch.equal(found.quantiles[rows], expected.quantiles)
        assert torch.equal(found.quantiles[rows, 1], alone.icdf(torch.full((1,), 0.5).double()))
        assert torch.equal(found.mode[rows], expected.mode)
        pairs = [(whole.mean, alone.mean), (whole.variance, alone.variance), (whole.epistemic, alone.epistemic)]
        pairs += [(crps, alone.crps(y[rows])), (entropy, expected.entropy), (found.entropy, alone.entropy())]
        for value, own in pairs:
            torch.testing.assert_close(value[rows], own, rtol=1e-9, atol=0.0)
