"""Test data on which trainings break down: every fit ends with finite predictions, intervals and scores."""

from collections.abc import Callable

import numpy as np
import pytest

from ddpn import DDPNRegressor

Data = tuple[np.ndarray, np.ndarray]


def draw_numbers(rows: int = 60, columns: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns))


def draw_poisson(X: np.ndarray, mean: float, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).poisson(mean * np.exp(0.5 * X[:, 0])).astype(float)


def make_outlier() -> Data:
    X = draw_numbers()
    y = draw_poisson(X, 4.0)
    y[7] = 1e7
    return X, y


def make_all_but_one_zero() -> Data:
    """Make counts with a mean of 1e-4: one count of 1 among 10,000 rows."""
    y = np.zeros(10_000)
    y[1234] = 1.0
    return draw_numbers(10_000), y


#: Hard counts, for every likelihood.
COUNTS: dict[str, Callable[[], Data]] = {
    "all zero": lambda: (draw_numbers(), np.zeros(60)),
    "all equal": lambda: (draw_numbers(), np.full(60, 3.0)),
    "all equal and large": lambda: (draw_numbers(), np.full(60, 123_456.0)),
    "one outlier of 1e7": make_outlier,
    "mean 1e-4": make_all_but_one_zero,
    "mean 1e6": lambda: (draw_numbers(), draw_poisson(draw_numbers(), 1e6)),
    "5 rows": lambda: (draw_numbers(5), draw_poisson(draw_numbers(5), 4.0)),
    "1 row": lambda: (draw_numbers(1), np.array([3.0])),
}


def assert_all_finite(model: DDPNRegressor, X: np.ndarray, y: np.ndarray) -> None:
    for statistic in ("mean", "median", "mode"):
        assert np.isfinite(model.predict(X, statistic=statistic)).all(), statistic
    low, high = model.predict_interval(X, coverage=0.9).T
    assert (low >= 0).all()
    assert (high >= low).all()
    assert (high < 1e12).all()
    prediction = model.predict_distribution(X)
    variances = prediction.aleatoric, prediction.epistemic, prediction.variance
    assert all(np.isfinite(part).all() and (part >= 0).all() for part in variances)
    assert np.isfinite([model.score(X, y), model.crps(X, y), model.nll(X, y)]).all()


def take_some_rows(case: str) -> Data:
    """Take some rows of a case, and add two that are far from all rows of the fit."""
    X, y = COUNTS[case]()
    far = 1e3 * np.abs(X).max() * np.ones_like(X[:2])
    return np.r_[X[:9], far], np.r_[y[:9], y[: len(far)]]


@pytest.mark.parametrize("case", COUNTS)
def test_hard_counts_leave_finite_results(quick, likelihood, case):
    many = case == "mean 1e-4"
    training = {"batch_size": 1000} if many else {}
    X, y = COUNTS[case]()
    model = quick(epochs=1 if many else 2, training_options=training, **likelihood).fit(X, y)
    assert_all_finite(model, *take_some_rows(case))
    if case == "all zero":
        assert model.predict(X) == pytest.approx(0.0, abs=0.05)


#: A learning rate ten times too high, and other encodings.
HARDER = [
    {"epochs": 20, "training_options": {"lr": 0.04, "ema": 0.0}},
    {"epochs": 2, "numeric": "piecewise"},
    {"epochs": 2, "numeric": "steps"},
]


@pytest.mark.parametrize("options", HARDER, ids=str)
@pytest.mark.parametrize("case", ["one outlier of 1e7", "5 rows"])
def test_hard_trainings_leave_finite_results(quick, case, options):
    assert_all_finite(quick(likelihood="mixed", **options).fit(*COUNTS[case]()), *take_some_rows(case))


def test_means_of_equal_counts_are_these_counts(quick):
    X, y = COUNTS["all equal"]()
    model = quick(likelihood="mixed", n_networks=1, epochs=200).fit(X, y)
    assert model.predict(X) == pytest.approx(3.0, abs=0.05)
    assert (model.predict_interval(X, coverage=0.9) == 3).all()


def test_members_that_cannot_be_fitted_to_zeros_are_left_out(quick):
    X, y = draw_numbers(250), np.zeros(250)
    with pytest.warns(UserWarning, match="The mixture is fitted without .*, because it has no count above 0"):
        model = quick(mix_with=["glm", "trees"], epochs=1).fit(X, y)
    assert list(model.predictor_.members) == ["networks"]
