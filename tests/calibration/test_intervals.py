"""Intervals by calibration rows: they hold what is asked, of any law, and stay with the model."""

import json
import pickle

import numpy as np
import pytest
import torch
from safetensors.numpy import save as save_arrays
from scipy import stats
from sklearn.base import clone
from torch.distributions import Normal

from ddpn import ConfigError, CountGLM, CountRegressor, InputError, Poisson
from ddpn.calibration.intervals import Levels, level_expected, level_needed
from ddpn.estimators import saving


@pytest.fixture
def calibrated(fitted, counts) -> CountRegressor:
    return pickle.loads(pickle.dumps(fitted)).fit_intervals(*counts)


# The level a count needs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.05, 0.7, 3.0, 40.0, 1e5])
def test_a_count_is_inside_just_above_the_level_it_needs_and_outside_just_below(mu):
    y = torch.from_numpy(np.unique(stats.poisson.ppf([1e-4, 0.02, 0.3, 0.5, 0.7, 0.99, 1 - 1e-6], mu)))
    law = Poisson(torch.tensor(mu, dtype=torch.float64))
    for count, level in zip(y, level_needed(law, y), strict=True):
        low, high = law.interval(float(level) + 1e-9)
        assert low <= count <= high
        if level > 1e-6:
            low, high = law.interval(float(level) - 1e-9)
            assert not low <= count <= high


def test_levels_by_scipy():
    y = np.arange(12.0)
    law = stats.poisson(3.0)
    expected = np.maximum(np.maximum(1 - 2 * law.cdf(y), 2 * law.cdf(y - 1) - 1), 0)
    assert level_needed(Poisson(torch.tensor(3.0).double()), torch.from_numpy(y)).numpy() == pytest.approx(expected)


def test_a_law_on_the_line_counts_as_the_integers_it_rounds_to():
    found = level_needed(Normal(torch.tensor(3.0).double(), torch.tensor(1.0).double()), torch.tensor([5]))
    assert found.item() == pytest.approx(2 * stats.norm.cdf(4.5, 3.0, 1.0) - 1, abs=1e-6)


# The promise -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0.5, 1.0, 2.0], ids=["too low", "right", "too high"])
def test_new_rows_are_inside_as_often_as_asked_whatever_the_law(wrong):
    rng = np.random.default_rng(4)
    held = []
    for _ in range(120):
        mu = rng.gamma(2.0, 1.0, 160)
        y, law = torch.from_numpy(rng.poisson(mu)), Poisson(torch.from_numpy(wrong * mu))
        needed = level_needed(law, y).numpy()
        low, high = law.interval(Levels.of(needed[:80]).at(0.8))
        held.append(((low <= y) & (y <= high))[80:].double().mean().item())
    # Means of 120 draws of a share of about 0.8 among 80 rows with 80 for calibration: four deviations.
    assert np.mean(held) == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / 80 * 2 / 120))


def test_the_laws_own_word_is_the_level_that_true_laws_need():
    mu = torch.from_numpy(np.random.default_rng(6).gamma(2.0, 1.0, 500))
    law = Poisson(mu)
    drawn = torch.poisson(mu.expand(400, -1), generator=torch.Generator().manual_seed(1))
    exact, expected = level_needed(law, drawn).numpy().ravel(), level_expected(law, 500).numpy().ravel()
    assert len(expected) == 2000
    for share in (0.5, 0.8, 0.9, 0.95):
        assert np.quantile(expected, share) == pytest.approx(np.quantile(exact, share), abs=0.01)


def test_the_laws_word_steadies_that_of_few_rows():
    """Of true laws: intervals by 40 rows hold now more and now less, and less so where the laws count as 100 more."""
    rng = np.random.default_rng(8)
    held = {0.0: [], 100.0: []}
    for _ in range(150):
        mu = rng.gamma(2.0, 1.0, 2040)
        y, law = torch.from_numpy(rng.poisson(mu)), Poisson(torch.from_numpy(mu))
        needed, some = level_needed(law, y).numpy(), Poisson(torch.from_numpy(mu[:40]))
        expected = level_expected(some, 40).numpy()
        for law_rows, shares in held.items():
            level = Levels.of(needed[:40], None, expected, law_rows).at(0.9)
            shares.append((needed[40:] < level).mean())
    assert np.std(held[100.0]) < 0.5 * np.std(held[0.0])
    assert np.mean(held[100.0]) == pytest.approx(0.9, abs=0.01)


def test_more_rows_outweigh_the_laws_word():
    needed, expected = np.linspace(0, 0.5, 10_000), np.full((10_000, 1), 0.99)
    assert Levels.of(needed, None, expected, 100.0).at(0.9) == pytest.approx(Levels.of(needed).at(0.9), abs=0.01)
    assert Levels.of(needed, None, expected, 1e6).at(0.9) == pytest.approx(0.99, abs=1e-6)


def test_the_smallest_level_that_holds_enough_rows_by_counting():
    rng = np.random.default_rng(2)
    needed = rng.permutation(99) / 100
    level = Levels.of(needed).at(0.9)
    assert (needed < level).sum() == 90  # 0.9 times 99 + 1
    assert (needed < level - 2e-9).sum() == 89


def test_a_weight_is_a_row_given_so_often():
    rng = np.random.default_rng(3)
    needed, weight = rng.random(400), rng.integers(1, 4, 400).astype(float)
    once = Levels.of(needed, weight).at(0.8)
    often = Levels.of(np.repeat(needed, weight.astype(int))).at(0.8)
    # They differ by what the one new row counts among 400 and among 800.
    assert once == pytest.approx(often, abs=0.01)
    assert Levels.of(needed, 7.0 * weight).at(0.8) == once


@pytest.mark.parametrize(("needed", "level"), [([], 0.9), ([0.1] * 8, 0.9), ([0.97, 0.1], 0.97), ([1.0] * 20, 1.0)])
def test_where_rows_are_too_few_to_tell_the_asked_level_stays_or_more(needed, level):
    found = Levels.of(np.array(needed, dtype=float)).at(0.9)
    assert found == pytest.approx(level, abs=2e-9)
    assert 0.0 < found < 1.0


def test_levels_grow_with_what_is_asked():
    levels = Levels.of(np.random.default_rng(1).random(50))
    found = [levels.at(coverage) for coverage in np.linspace(0.01, 0.99, 99)]
    assert found == sorted(found)
    with pytest.raises(InputError, match="coverage must"):
        levels.at(1.0)


# In an estimator -------------------------------------------------------------------------------------------------


def test_calibration_rows_are_inside_as_often_as_asked(calibrated, counts):
    X, y = counts
    for coverage in (0.5, 0.9):
        low, high = calibrated.predict_interval(X, coverage, kind="calibrated").T
        inside = int(((low <= y) & (y <= high)).sum())
        assert np.ceil(coverage * 91) <= inside
        level = calibrated.interval_level(coverage) - 3e-9
        less = calibrated.predict_interval(X, level)
        assert ((less[:, 0] <= y) & (y <= less[:, 1])).sum() < np.ceil(coverage * 91)


def test_central_intervals_are_as_before(calibrated, fitted, counts):
    assert (calibrated.predict_interval(counts[0]) == fitted.predict_interval(counts[0])).all()


def test_exposure_and_weights_reach_the_levels(quick, counts, exposures):
    X, y = counts
    model = quick().fit(X, y, exposure=exposures)
    law = model.predict_distribution(X, exposures)
    needed = level_needed(law, torch.from_numpy(y)).numpy()
    weight = np.where(np.arange(90) < 40, 2.0, 0.0)
    levels = model.fit_intervals(X, y, weight, exposures).interval_levels_
    assert levels.needed == pytest.approx(np.sort(needed[:40]))
    assert (levels.weight == 1.0).all()


def test_gaussians_have_counts_for_ends(quick, counts):
    model = quick(likelihood="gaussian").fit(*counts).fit_intervals(*counts)
    low, high = model.predict_interval(counts[0], 0.8, kind="calibrated").T
    assert ((low <= counts[1]) & (counts[1] <= high)).sum() >= np.ceil(0.8 * 91)
    assert low.min() >= 0


def test_before_calibration_the_level_is_what_is_asked(fitted, counts):
    assert fitted.interval_level(0.8) == 0.8
    with pytest.raises(InputError, match='kind must be "central" or "highest" before fit_intervals, got "calibrated"'):
        fitted.predict_interval(counts[0], kind="calibrated")


def test_rows_that_are_no_counts_are_refused(fitted, counts):
    with pytest.raises(InputError, match="y must hold"):
        pickle.loads(pickle.dumps(fitted)).fit_intervals(counts[0], counts[1] + 0.5)


# Staying with the model -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CountRegressor, CountGLM])
def test_a_saved_model_keeps_its_levels_and_a_new_fit_forgets_them(quick, counts, tmp_path, kind):
    model = quick(epochs=1) if kind is CountRegressor else CountGLM(likelihood="poisson")
    model.fit(*counts).fit_intervals(*counts)
    model.save(tmp_path / "model")
    again = kind.load(tmp_path / "model")
    X = 2.0 * counts[0]
    found = [each.predict_interval(X, 0.7, kind="calibrated") for each in (model, again)]
    assert (found[0] == found[1]).all()
    assert not hasattr(model.fit(*counts), "interval_levels_")
    assert not hasattr(clone(again), "interval_levels_")


def test_a_model_without_levels_is_saved_and_loaded_without(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    assert not (tmp_path / "model" / "intervals.safetensors").exists()
    assert CountRegressor.load(tmp_path / "model").interval_level(0.9) == 0.9


def test_damaged_levels_are_refused(calibrated, tmp_path):
    calibrated.save(tmp_path / "model")
    file = tmp_path / "model" / "intervals.safetensors"
    file.write_bytes(save_arrays({"other": np.zeros(3)}))
    manifest = json.loads((tmp_path / "model" / "model.json").read_text())
    manifest["files"][file.name] = saving.hashlib.sha256(file.read_bytes()).hexdigest()
    manifest["checksum"] = saving._checksum(manifest)
    (tmp_path / "model" / "model.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"intervals\.safetensors must hold levels, got .*Save the model again"):
        CountRegressor.load(tmp_path / "model")


@pytest.mark.parametrize("law_rows", [-1.0, float("inf"), float("nan")])
def test_a_word_of_no_size_is_told(fitted, counts, law_rows):
    with pytest.raises(ConfigError, match="law_rows must be finite and at least 0, got"):
        fitted.fit_intervals(*counts, law_rows=law_rows)


@pytest.mark.parametrize("likelihood", ["double_poisson", "gaussian"])
def test_the_laws_word_is_kept_with_the_model(quick, counts, tmp_path, likelihood):
    model = quick(likelihood=likelihood).fit(*counts).fit_intervals(*counts, law_rows=50.0)
    assert model.interval_levels_.rows.tolist() == [90]
    assert model.interval_levels_.weight.sum() == pytest.approx(140)
    model.save(tmp_path / "model")
    again = CountRegressor.load(tmp_path / "model")
    assert again.interval_level(0.9) == model.interval_level(0.9)
