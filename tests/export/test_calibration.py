"""Test recalibrated distributions, calibrated intervals and their groups in an exported file."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ddpn.calibration.calibrate import fit_intervals, fit_recalibration
from ddpn.calibration.intervals import IntervalLevels, attach_group_labels
from ddpn.members.held_out import HeldOutPredictions
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.count_rows import CountRows


@pytest.fixture
def predictor(make_linear_member) -> Predictor:
    return Predictor(
        {"glm": make_linear_member("double_poisson", 0.5), "poisson_glm": make_linear_member("poisson", 0.5, seed=4)}
    )


@pytest.fixture
def sample(predictor, draw_rows) -> CountRows:
    """Counts that spread more than the predictions."""
    X = draw_rows(80, seed=5)
    drawn = predictor.distribution(X).sample(generator=torch.Generator().manual_seed(0)).numpy()
    return CountRows(X, np.floor(drawn * np.random.default_rng(0).gamma(0.3, 4.0, 80)))


def predict_held_out(predictor: Predictor, sample: CountRows, groups=None) -> HeldOutPredictions:
    return predictor.predict_held_out(sample.replace(interval_groups=groups))


def calibrate_intervals(predictor: Predictor, rows: HeldOutPredictions, groups: str | None = None) -> None:
    predictor.calibration = fit_intervals(predictor.calibration, rows, groups=groups)


def set_levels(predictor: Predictor, scores: np.ndarray) -> None:
    intervals = {MIXTURE: IntervalLevels.from_scores(scores)}
    predictor.calibration = replace(predictor.calibration, intervals=intervals)


def test_calibrated_intervals_are_exported_also_beyond_the_highest_quantile(predictor, draw_rows, assert_parity):
    set_levels(predictor, np.linspace(0.0, 1.0, 80) ** 0.2)
    assert 0.9 < predictor.calibration.interval_level(0.8) < 1.0
    assert_parity(predictor, draw_rows(20), coverage=0.8)
    set_levels(predictor, np.full(30, 1.7))
    assert predictor.calibration.interval_level(0.9) > 1.0
    assert_parity(predictor, draw_rows(20))


def test_central_intervals_of_censored_counts_are_exported(predictor, sample, draw_rows, assert_parity):
    limited = sample.replace(y=np.minimum(sample.y, 5.0), limit=np.full(len(sample), 5.0))
    calibrate_intervals(predictor, predict_held_out(predictor, limited))
    assert predictor.interval_kind == "central"
    assert_parity(predictor, draw_rows(20))


def test_recalibrated_distributions_are_exported(predictor, sample, draw_rows, assert_parity):
    rows = predict_held_out(predictor, sample)
    predictor.calibration = fit_recalibration(predictor.calibration, rows, always=True)
    calibrate_intervals(predictor, rows)
    assert predictor.calibration.is_recalibrated()
    assert np.abs(np.diff(predictor.calibration.recalibration.value)).max() > 0.05
    assert_parity(predictor, draw_rows(20))


def test_groups_by_labels_are_exported(predictor, sample, draw_rows, assert_parity):
    """Labels are the same number, have blanks around them, are unknown or missing."""
    calibration_labels = np.random.default_rng(1).choice(["1", "2", "B 7"], 80)
    calibrate_intervals(predictor, predict_held_out(predictor, sample, calibration_labels), groups="group")
    labels = np.array(["1", "2.0", "B 7", " 1 ", "unknown"] * 4, dtype=object)
    assert_parity(predictor, draw_rows(20), groups={"group": labels})


def test_groups_by_a_column_of_numbers_are_exported(predictor, draw_rows, assert_parity):
    rng = np.random.default_rng(0)
    X = draw_rows(80).with_columns(b=rng.integers(0, 3, 80).astype(float))
    y = rng.poisson(1.0 + 6.0 * (X["b"].to_numpy() == 1.0)).astype(float)
    rows, name = attach_group_labels(CountRows(X, y), "b")
    calibrate_intervals(predictor, predictor.predict_held_out(rows), groups=name)
    new = draw_rows(20).with_columns(b=rng.integers(0, 4, 20).astype(float))
    assert_parity(predictor, new, groups={"b": new["b"].to_numpy()})
