"""Test the quick model: rates, weights, folds without the group of a row, and what it explains."""

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import d2_tweedie_score, mean_poisson_deviance

from ddpn.rows.count_rows import CountRows
from ddpn.rows.splits import split_folds
from ddpn.tables.checks.quick_model import QuickModel, count_quick_model_rows, estimate_effects

ROWS = 600


def draw_rows(seed: int = 0) -> CountRows:
    rng = np.random.default_rng(seed)
    x, level, group = rng.normal(size=ROWS), rng.integers(0, 4, ROWS), np.repeat(np.arange(ROWS // 4), 4)
    X = pl.DataFrame({"x": x, "level": [f"l{k}" for k in level], "flag": x > 1})
    mean = np.exp(0.5 + 0.6 * x + 0.5 * (level == 2)) * rng.gamma(3.0, 1 / 3, ROWS // 4)[group]
    exposure = rng.uniform(0.5, 3.0, ROWS)
    return CountRows(X, rng.poisson(exposure * mean).astype(float), rng.uniform(0.5, 2.0, ROWS), exposure, group=group)


SAMPLE = draw_rows()


def test_one_exposure_for_all_rows_changes_no_mean():
    plain = QuickModel(SAMPLE.replace(exposure=None))
    scaled = QuickModel(SAMPLE.replace(exposure=np.full(ROWS, 4.0)))
    np.testing.assert_allclose(plain.random_means, scaled.random_means, rtol=1e-5)
    np.testing.assert_allclose(plain.constant_means, scaled.constant_means)
    model = QuickModel(SAMPLE)
    np.testing.assert_allclose(model.constant_means / SAMPLE.exposure, model.constant_means[0] / SAMPLE.exposure[0])
    assert SAMPLE.weight @ model.constant_means == pytest.approx(SAMPLE.weight @ SAMPLE.y)


def test_means_of_rates_do_not_follow_a_column_that_tells_the_exposure():
    rng = np.random.default_rng(0)
    level = rng.integers(0, 4, ROWS)
    exposure = 4.0**level
    sample = CountRows(pl.DataFrame({"level": level}), rng.poisson(3.0 * exposure).astype(float), None, exposure)
    rate = QuickModel(sample).random_means / exposure
    assert [rate[level == k].mean() for k in range(4)] == pytest.approx([3.0] * 4, rel=0.1)


def test_rows_of_no_weight_are_not_learned_from():
    ignored = np.arange(ROWS) % 3 == 0
    weight = np.where(ignored, 0.0, 1.0)
    wrong = SAMPLE.replace(weight=weight, y=np.where(ignored, SAMPLE.y + 50.0, SAMPLE.y))
    one, other = (QuickModel(rows).random_means for rows in (SAMPLE.replace(weight=weight), wrong))
    np.testing.assert_allclose(one, other, rtol=1e-4)
    assert not np.allclose(one, QuickModel(wrong.replace(weight=None)).random_means, rtol=0.1)


def test_grouped_means_do_not_know_the_counts_of_the_group_and_random_ones_do():
    model = QuickModel(SAMPLE)
    pairs = split_folds(ROWS, 3, 0, SAMPLE.group)
    inside = pairs[0][1]
    poisoned = SAMPLE.y.copy()
    poisoned[inside] += 30.0
    other = QuickModel(SAMPLE.replace(y=poisoned))
    before, after = (one.predict_grouped_means(SAMPLE.group)[inside] for one in (model, other))
    smallest = 1e-4 * 40.0 * SAMPLE.exposure[inside]
    np.testing.assert_allclose(np.maximum(before, smallest), np.maximum(after, smallest))
    assert (other.random_means[inside] > model.random_means[inside] + 2.0).mean() > 0.6
    for inner, outer in model.random_pairs:
        assert not set(inner) & set(outer)
        assert len(inner) + len(outer) == ROWS


def test_explained_deviance_is_that_of_scikit_learn():
    model = QuickModel(SAMPLE.replace(exposure=None))
    means = model.random_means
    deviances = model.compute_deviances(means)
    assert deviances.mean() == pytest.approx(mean_poisson_deviance(SAMPLE.y, means))
    expected = d2_tweedie_score(SAMPLE.y, means, sample_weight=SAMPLE.weight, power=1)
    assert model.explain_share(deviances) == pytest.approx(expected)
    assert 0.1 < expected < 0.9
    assert model.explain_share(model.compute_deviances(model.constant_means)) == pytest.approx(0.0)


def test_rows_that_no_pair_predicts_have_no_mean_and_zeros_the_smallest_one():
    sample = SAMPLE.replace(y=np.where(np.arange(ROWS) < 300, 0.0, SAMPLE.y), exposure=None, weight=None)
    means = QuickModel(sample).predict_means([(np.arange(300), np.arange(300, 400))])
    assert np.isnan(means[:300]).all()
    assert np.isnan(means[400:]).all()
    assert means[300:400] == pytest.approx(np.full(100, 1e-4 * sample.y.mean()))


def test_missing_values_and_levels_are_told_apart():
    rng = np.random.default_rng(0)
    level = np.array(["a", "b", ""])[rng.integers(0, 3, ROWS)]
    number = np.where(rng.random(ROWS) < 0.5, np.nan, 1.0)
    y = rng.poisson(np.where(level == "", 9.0, 1.0) + np.where(np.isnan(number), 0.0, 20.0)).astype(float)
    X = pl.DataFrame({"level": [name or None for name in level.tolist()], "number": number})
    means = QuickModel(CountRows(X, y)).random_means
    for where, expected in (
        ((level == "a") & np.isnan(number), 1.0),
        ((level == "") & np.isnan(number), 9.0),
        ((level == "b") & ~np.isnan(number), 21.0),
    ):
        assert means[where].mean() == pytest.approx(expected, rel=0.1, abs=0.6)


@pytest.mark.parametrize(("columns", "rows"), [(0, 5000), (20, 5000), (25, 4000), (100, 1000), (5000, 1000)])
def test_wide_tables_are_checked_by_fewer_rows(columns, rows):
    assert count_quick_model_rows(columns) == rows


# Effects of groups ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [2.0, 10.0, np.inf])
def test_effects_of_groups_are_their_credibility_estimates(shape):
    """With Gamma(k) effects, the estimate is (k + counts) / (k + means) of the group's rows in other folds."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(2000), 6)
    effect = np.ones(2000) if np.isinf(shape) else rng.gamma(shape, 1.0 / shape, 2000)
    mean = rng.uniform(1.0, 5.0, len(codes))
    y = rng.poisson(mean * effect[codes] * rng.gamma(1.0, 1.0, len(codes))).astype(float)
    pairs = split_folds(len(y), 3, 0)
    actual = estimate_effects(y, mean, codes, pairs)
    expected = np.ones(len(y))
    for inner, outer in pairs:
        counts, means = (np.bincount(codes[inner], part[inner], minlength=2000) for part in (y, mean))
        if not np.isinf(shape):
            expected[outer] = ((shape + counts) / (shape + means))[codes[outer]]
    np.testing.assert_allclose(actual, expected, atol=0.35 if np.isinf(shape) else 0.45)
    assert np.abs(actual - expected).mean() < 0.06


def test_the_effect_of_a_row_does_not_follow_the_counts_of_its_fold():
    rng = np.random.default_rng(1)
    codes, mean = np.repeat(np.arange(50), 6), np.full(300, 4.0)
    y = rng.poisson(4.0 * rng.gamma(1.0, 1.0, 50)[codes]).astype(float)
    pairs = split_folds(300, 3, 0)
    products = lambda counts: np.sum(np.bincount(codes, counts - mean) ** 2) - np.sum((counts - mean) ** 2)
    sizes = np.sum(np.bincount(codes, mean) ** 2) - np.sum(mean**2)
    variance = products(y) / sizes
    assert variance > 0.3
    result = estimate_effects(y, mean, codes, pairs)
    for inner, outer in pairs:
        for row in outer[:5]:
            same = inner[codes[inner] == codes[row]]
            assert result[row] == pytest.approx((1 + variance * y[same].sum()) / (1 + variance * mean[same].sum()))
    assert (estimate_effects(np.full(300, 4.0), mean, codes, pairs) == 1.0).all()
    assert (estimate_effects(y, mean, np.arange(300), pairs) == 1.0).all()
