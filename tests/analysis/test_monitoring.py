"""Checks of columns: false alarms are rare, shifts are found, and differences that do not matter are no drift."""

import numpy as np
import pytest

from ddpn.analysis.monitoring import Check, column_checks, decided
from ddpn.calibration.columns import fit_column
from ddpn.tables.encoding.table import Column


def numbers(values) -> Column:
    return Column("x", "number", np.asarray(values, dtype=float))


def levels(values) -> Column:
    names, codes = np.unique(values, return_inverse=True)
    return Column("x", "category", codes, tuple(map(str, names)))


def compared(before: Column, now: Column) -> dict[str, Check]:
    return {check.kind: check for check in column_checks(fit_column(before), now)[0]}


SOURCES = {
    "continuous": lambda rng, n: numbers(rng.normal(size=n)),
    "skewed": lambda rng, n: numbers(rng.exponential(size=n) ** 3),
    "few values": lambda rng, n: numbers(rng.poisson(2.0, n)),
    "many values": lambda rng, n: numbers(rng.poisson(300.0, n)),
    "levels": lambda rng, n: levels(rng.choice(list("abcd"), n, p=[0.6, 0.25, 0.1, 0.05])),
    "rare levels": lambda rng, n: levels(rng.zipf(1.6, n) % 500),
    "missing": lambda rng, n: numbers(np.where(rng.random(n) < 0.05, np.nan, rng.normal(size=n))),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("size", [60, 1500])
def test_rows_like_the_training_rows_rarely_look_different(source, size):
    rng, small = np.random.default_rng(1), {"values": 0, "missing": 0}
    for _ in range(100):
        for kind, check in compared(SOURCES[source](rng, 400), SOURCES[source](rng, size)).items():
            small[kind] += check.p_value < 0.05
    # 100 draws with probability 0.05 are above 13 in one of two thousand cases.
    assert max(small.values()) <= 13


def test_shifts_are_found_with_their_size():
    rng = np.random.default_rng(2)
    found = compared(numbers(rng.normal(size=800)), numbers(rng.normal(1.0, 1.0, 400)))["values"]
    # The Kolmogorov distance of Normals one standard deviation apart is 0.38.
    assert found.effect == pytest.approx(0.38, abs=0.08)
    assert found.p_value < 1e-9
    found = compared(levels(rng.choice(list("ab"), 500)), levels(rng.choice(list("abz"), 500)))["values"]
    assert found.effect == pytest.approx(1 / 3, abs=0.05)
    assert found.p_value < 1e-9
    assert found.now.endswith("unseen")
    found = compared(levels(["a"] * 300), levels(["a"] * 200 + ["b"] * 100))["values"]  # a column that was constant
    assert found.effect == pytest.approx(1 / 3)
    assert found.p_value < 1e-9
    found = compared(numbers(rng.normal(size=500)), numbers([*rng.normal(size=400), *[np.nan] * 100]))["missing"]
    assert found.effect == pytest.approx(0.2)
    assert found.p_value < 1e-9


def test_many_rows_make_small_differences_significant_but_not_drift():
    rng = np.random.default_rng(3)
    found = compared(numbers(rng.normal(size=100_000)), numbers(rng.normal(0.05, 1.0, 100_000)))["values"]
    (check,) = decided([found], 0.01, 0.1)
    assert check.adjusted < 1e-6
    assert not check.drift
    (check,) = decided([found], 0.01, 0.01)
    assert check.drift


def test_columns_that_cannot_be_compared_are_named():
    profile = fit_column(numbers(np.arange(50.0)))
    checks, note = column_checks(profile, numbers([np.nan] * 30))
    assert [check.kind for check in checks] == ["missing"]
    assert note == "Values of 'x': all are missing now."
