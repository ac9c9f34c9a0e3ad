"""Test effects of levels: credibility against its formula and simulated effects, weights, exposures, and no leaks."""

import numpy as np
import polars as pl
import pytest

from ddpn.runtime.errors import InputError
from ddpn.tables.encoding import FeatureEncoder
from ddpn.tables.encoding.categories import Targets, estimate_credible_effects, make_targets
from ddpn.tables.encoding.out_of_fold import OutOfFoldEffects, assign_folds_by_content, has_effects

LEVELS, ROWS = 300, 1800


def simulate_levels(seed: int, spread: float = 0.8) -> tuple[pl.DataFrame, np.ndarray, np.ndarray]:
    """Simulate a table with a column of many levels, its counts, and the true effect of a row's level."""
    rng = np.random.default_rng(seed)
    effects = rng.normal(0.0, spread, LEVELS)
    level = rng.integers(0, LEVELS, ROWS)
    x = rng.normal(size=ROWS)
    names = [None if i % 50 == 0 else f"z{code}" for i, code in enumerate(level)]
    return pl.DataFrame({"x": x, "zip": names}), rng.poisson(np.exp(1.0 + effects[level])), effects[level]


def look_up_effect(encoder: FeatureEncoder, inputs: np.ndarray) -> np.ndarray:
    return inputs[:, encoder.get_feature_names_out().tolist().index("zip effect")]


def test_credibility_is_that_of_buhlmann_and_straub():
    rng = np.random.default_rng(3)
    index, volume = rng.integers(0, 6, 90), rng.uniform(0.5, 2.0, 90)
    rate = rng.poisson(volume * (2.0 + index)) / volume
    result = estimate_credible_effects(index, 6, Targets(rate, volume, np.ones(90)))
    m = np.average(rate, weights=volume)
    w = np.array([volume[index == j].sum() for j in range(6)])
    level_means = np.array([np.average(rate[index == j], weights=volume[index == j]) for j in range(6)])
    within = (volume * (rate - level_means[index]) ** 2).sum() / (90 - 6)
    between = ((w * (level_means - m) ** 2).sum() - 5 * within) / (w.sum() - (w**2).sum() / w.sum())
    z = w / (w + within / between)
    np.testing.assert_allclose(result, np.log((z * level_means + (1 - z) * m) / m), rtol=1e-10)


def test_blocks_of_training_rows_are_those_of_all_rows():
    X, y, _ = simulate_levels(3)
    fold = np.arange(ROWS) % 5
    whole = FeatureEncoder(numeric="steps", categorical="auto").fit_transform(X, y, fold=fold)
    encoder = FeatureEncoder(numeric="steps", categorical="auto")
    blocks = list(encoder.fit_blocks(X, y, None, None, fold, size=97))
    assert {len(block) for block in blocks[:-1]} == {97}
    assert np.concatenate(blocks).tobytes() == whole.tobytes()
    # Inputs that are not numeric are 0 or 1 in every row.
    flags = np.setdiff1d(np.arange(encoder.n_inputs), encoder.numeric_inputs)
    assert whole.shape[1] == encoder.n_inputs
    assert np.isin(whole[:, flags], (0.0, 1.0)).all()
    assert not np.isin(whole[:, encoder.numeric_inputs], (0.0, 1.0)).all(0).any()


def test_effects_follow_the_true_ones_and_rare_levels_are_shrunk():
    X, y, true = simulate_levels(0)
    encoder = FeatureEncoder(categorical="auto").fit(X, y)
    has_level = X["zip"].is_not_null().to_numpy()
    assert np.corrcoef(look_up_effect(encoder, encoder.transform(X))[has_level], true[has_level])[0, 1] > 0.85
    effects = encoder.columns_[1].effects
    assert effects is not None
    assert len(effects.values) == X["zip"].drop_nulls().n_unique()
    rows = X["zip"].value_counts()
    once = rows.filter(pl.col("count") <= 2)["zip"].drop_nulls().to_list()
    often = rows.filter(pl.col("count") >= 8)["zip"].drop_nulls().to_list()
    spread = [np.std([effects.values[level] for level in levels]) for levels in (once, often)]
    assert 0.0 < spread[0] < spread[1]


def test_a_row_does_not_see_its_own_count():
    X, y, _ = simulate_levels(1)
    changed = y.copy()
    changed[7] += 500
    fold = np.arange(ROWS) % 5
    encoders = [FeatureEncoder(categorical="auto") for _ in range(2)]
    before, after = (
        look_up_effect(fitted, fitted.fit_transform(X, counts, fold=fold)) * fitted.columns_[1].effects.scale
        for fitted, counts in zip(encoders, (y, changed), strict=True)
    )
    np.testing.assert_allclose(before[fold == 2], after[fold == 2], rtol=1e-5, atol=1e-6)
    same = (X["zip"] == X["zip"][7]).fill_null(False).to_numpy() & (fold != 2)
    assert same.any()
    assert (after[same] > before[same]).all()
    # Pure noise: the mean of a level that holds the row's own count explains it, that of other folds does not.
    rng = np.random.default_rng(2)
    noise = rng.poisson(rng.gamma(1.0, 5.0, ROWS))
    encoder = FeatureEncoder(categorical="effects")
    encoder.fit(X, y)
    crossed = OutOfFoldEffects(encoder, X, noise.astype(float), None, None, fold).encode(X, fold)
    assert abs(np.corrcoef(look_up_effect(encoder, crossed), noise)[0, 1]) < 0.08


def test_levels_that_do_not_differ_have_no_effects():
    rng = np.random.default_rng(5)
    constant = pl.DataFrame({"zip": [f"z{i % 60}" for i in range(240)]})
    assert not has_effects(FeatureEncoder(categorical="auto").fit(constant, np.arange(240) // 60 + 1))
    assert not has_effects(FeatureEncoder(categorical="auto").fit(constant, np.zeros(240)))
    identifiers = pl.DataFrame({"id": [f"i{i}" for i in range(240)]})
    assert not has_effects(FeatureEncoder(categorical="auto").fit(identifiers, rng.poisson(3.0, 240)))
    few = pl.DataFrame({"ward": rng.choice(["A", "B", "C"], 240)})
    y = np.where(few["ward"] == "A", 9, 1) + rng.poisson(1.0, 240)
    assert not has_effects(FeatureEncoder(categorical="auto").fit(few, y))
    assert has_effects(FeatureEncoder(categorical="effects").fit(few, y))


def test_weights_are_repeated_rows_and_their_unit_does_not_matter():
    X, y, _ = simulate_levels(2)
    weight = np.random.default_rng(0).integers(0, 4, ROWS)
    rows = np.repeat(np.arange(ROWS), weight)
    weighted = FeatureEncoder(categorical="auto").fit(X, y, weight)
    repeated = FeatureEncoder(categorical="auto").fit(X[rows], y[rows])
    assert has_effects(weighted)
    assert weighted.transform(X).tobytes() == repeated.transform(X).tobytes()
    tiny = make_targets(y.astype(float), np.full(ROWS, 1e-4), None)
    np.testing.assert_allclose(tiny.weight, 1.0)


def test_effects_are_those_of_rates():
    X, _, true = simulate_levels(4)
    days = np.random.default_rng(1).uniform(0.1, 10.0, ROWS)
    counts = np.random.default_rng(2).poisson(days * np.exp(1.0 + true))
    encoder = FeatureEncoder(categorical="auto").fit(X, counts, exposure=days)
    other = FeatureEncoder(categorical="auto").fit(X, counts, exposure=100.0 * days)
    assert np.corrcoef(look_up_effect(encoder, encoder.transform(X)), true)[0, 1] > 0.85
    np.testing.assert_allclose(encoder.transform(X), other.transform(X), rtol=1e-5, atol=1e-6)


def test_folds_by_content_know_a_row_again():
    X, y, _ = simulate_levels(8)
    encoder = FeatureEncoder(categorical="auto").fit(X, y)
    fold = assign_folds_by_content(encoder, X)
    assert np.bincount(fold).min() > ROWS / 5 - 4 * np.sqrt(ROWS / 5)
    some = np.random.default_rng(0).permutation(ROWS)[:40]
    assert assign_folds_by_content(encoder, X[some]).tolist() == fold[some].tolist()
    crossed = OutOfFoldEffects(encoder, X, y.astype(float), None, None, fold)
    assert not crossed.weak_columns
    some_fold = assign_folds_by_content(encoder, X[some])
    assert crossed.encode(X[some], some_fold).tobytes() == crossed.encode(X, fold)[some].tobytes()
    # A table of nothing but levels: all rows of a level are in one fold, whose effects do not know it.
    alone = FeatureEncoder(categorical="auto").fit(X.select("zip"), y)
    crossed = OutOfFoldEffects(
        alone, X.select("zip"), y.astype(float), None, None, assign_folds_by_content(alone, X.select("zip"))
    )
    assert crossed.weak_columns == {0}


def test_rounding_errors_are_no_effects():
    X, _, _ = simulate_levels(10)
    rng = np.random.default_rng(0)
    days, weight = rng.uniform(0.1, 3.0, (2, ROWS))
    assert not has_effects(FeatureEncoder(categorical="auto").fit(X, 2.0 * days, exposure=days))
    assert not has_effects(FeatureEncoder(categorical="auto").fit(X, np.full(ROWS, 3.0), weight))


def test_rows_of_a_fold_without_rows_have_the_effects_of_all():
    X, y, _ = simulate_levels(12)
    encoder = FeatureEncoder(categorical="auto").fit(X, y)
    crossed = OutOfFoldEffects(encoder, X, y.astype(float), None, None, np.arange(ROWS) % 3)
    result = look_up_effect(encoder, crossed.encode(X, np.full(ROWS, 4)))
    np.testing.assert_allclose(result, look_up_effect(encoder, encoder.transform(X)), rtol=1e-6)


@pytest.mark.parametrize("fold", [np.arange(3), np.zeros(ROWS), np.full(ROWS, -1)])
def test_bad_folds_are_refused(fold):
    X, y, _ = simulate_levels(13)
    with pytest.raises(InputError, match="fold must be"):
        FeatureEncoder(categorical="auto").fit_transform(X, y, fold=fold)
