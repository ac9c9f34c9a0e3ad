"""Checks of columns: false alarms are rare, shifts are found, and differences that do not matter are no drift."""

import numpy as np
import pytest

from ddpn.analysis.monitoring import Check, column_check, decided
from ddpn.calibration.columns import fit_column
from ddpn.tables.encoding.table import Column, Levels


def numbers(values) -> Column:
    return Column("x", "number", np.asarray(values, dtype=float))


def levels(values) -> Column:
    names, codes = np.unique(values, return_inverse=True)
    return Column("x", "category", codes, Levels(map(str, names)))


def compared(before: Column, now: Column) -> Check:
    return column_check(fit_column(before), now)


SOURCES = {
    "continuous": lambda rng, n: numbers(rng.normal(size=n)),
    "skewed": lambda rng, n: numbers(rng.exponential(size=n) ** 3),
    "few values": lambda rng, n: numbers(rng.poisson(2.0, n)),
    "many values": lambda rng, n: numbers(rng.poisson(300.0, n)),
    "levels": lambda rng, n: levels(rng.choice(list("abcd"), n, p=[0.6, 0.25, 0.1, 0.05])),
    "rare levels": lambda rng, n: levels(rng.zipf(1.6, n) % 500),
    "missing": lambda rng, n: numbers(np.where(rng.random(n) < 0.05, np.nan, rng.normal(size=n))),
    "missing levels": lambda rng, n: numbers(np.where(rng.random(n) < 0.3, np.nan, rng.poisson(2.0, n))),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("size", [60, pytest.param(1500, marks=pytest.mark.slow)])
def test_rows_like_the_training_rows_rarely_look_different(source, size):
    rng, draw = np.random.default_rng(1), SOURCES[source]
    small = sum(compared(draw(rng, 400), draw(rng, size)).p_value < 0.05 for _ in range(100))
    # 100 draws with probability 0.05 are above 13 in one of two thousand cases.
    assert small <= 13


def test_shifts_are_found_with_their_size():
    rng = np.random.default_rng(2)
    found = compared(numbers(rng.normal(size=800)), numbers(rng.normal(1.0, 1.0, 400)))
    # The Kolmogorov distance of Normals one standard deviation apart is 0.38.
    assert found.effect == pytest.approx(0.38, abs=0.08)
    assert found.p_value < 1e-9
    found = compared(levels(rng.choice(list("ab"), 500)), levels(rng.choice(list("abz"), 500)))
    assert found.effect == pytest.approx(1 / 3, abs=0.05)
    assert found.p_value < 1e-9
    assert found.now.endswith("unseen")
    found = compared(levels(["a"] * 300), levels(["a"] * 200 + ["b"] * 100))  # a column that was constant
    assert found.effect == pytest.approx(1 / 3)
    assert found.p_value < 1e-9
    for draw in (rng.normal, lambda size: rng.poisson(2.0, size)):
        found = compared(numbers(draw(size=500)), numbers([*draw(size=400), *[np.nan] * 100]))
        assert found.effect == pytest.approx(0.2, abs=0.06)
        assert found.p_value < 1e-6
        assert "20.0%" in found.now


@pytest.mark.parametrize(
    ("values", "new"),
    [
        (["a"] * 5000, [None] * 100),
        (["a"] * 500, ["b"] * 50),
        (["a", "b"] * 2500, [*"ab" * 40, *[None] * 20]),
        (["a", "b"] * 2500, [*"ab" * 17, *"a", *[None] * 15]),
        (np.linspace(0.0, 1.0, 5000), [*np.linspace(0.0, 1.0, 85), *[np.nan] * 15]),
        (np.ones(5000), [np.nan] * 100),
    ],
    ids=["one level, all missing", "one level, another", "two levels, 20%", "two levels, 30%", "number", "constant"],
)
def test_the_first_missing_and_unseen_values_are_found_among_few_rows(values, new):
    if isinstance(values, list):
        known = [value or "" for value in new]
        codes = {name: code for code, name in enumerate(sorted(set(filter(None, known))))}
        column = Column("x", "category", np.array([codes.get(value, -1) for value in known]), Levels(codes))
        found = compared(levels(values), column)
    else:
        found = compared(numbers(values), numbers(new))
    assert found.p_value < 1e-9


def test_many_rows_make_small_differences_significant_but_not_drift():
    rng = np.random.default_rng(3)
    found = compared(numbers(rng.normal(size=100_000)), numbers(rng.normal(0.05, 1.0, 100_000)))
    (check,) = decided([found], 0.01, 0.1)
    assert check.adjusted_p_value < 1e-6
    assert not check.drift
    (check,) = decided([found], 0.01, 0.01)
    assert check.drift


@pytest.mark.parametrize("values", [np.arange(50.0), np.arange(50) % 2])
def test_columns_of_which_all_values_are_missing_are_compared(values):
    whole, empty = numbers(values), numbers([np.nan] * 50)
    for found in (compared(whole, empty), compared(empty, whole)):
        assert found.effect == 1.0
        assert found.p_value < 1e-9
    assert compared(empty, empty).p_value == 1.0
    assert compared(levels(["a", "b"] * 40), Column("x", "category", np.full(50, -1), Levels())).now == "missing 100.0%"
