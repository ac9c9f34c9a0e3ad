"""Trends are found where later counts leave what earlier rows show, and nowhere else."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from ddpn.workflow.plan import Plan
from ddpn.workflow.preparing import prepare


def series(slope: float, seed: int, rows: int = 600, dates: bool = False) -> pl.DataFrame:
    """Counts whose mean grows by so many times over the table."""
    rng = np.random.default_rng(seed)
    x, when = rng.normal(size=rows), np.arange(rows) / rows
    y = rng.poisson(np.exp(1.5 + 0.5 * x + slope * when) * rng.gamma(5, 0.2, rows))
    days = [date(2020, 1, 1) + timedelta(days=int(day)) for day in range(rows)]
    order = rng.permutation(rows)
    return pl.DataFrame({"x": x, "when": days if dates else when, "y": y})[order.tolist()]


def trends(frame: pl.DataFrame, **options) -> list[str]:
    return [each for each in prepare(frame, Plan(target="y", time="when", **options)).warnings if "trend" in each]


@pytest.mark.parametrize("slope", [1.5, -1.5])
@pytest.mark.parametrize("dates", [False, True])
def test_a_trend_is_reported(slope, dates):
    (found,) = trends(series(slope, seed=0, dates=dates))
    assert ("higher" if slope > 0 else "lower") in found
    assert "--use when" in found


def test_no_trend_is_not_reported():
    assert not [seed for seed in range(10) if trends(series(0.0, seed))]


def test_inputs_may_explain_a_trend():
    frame = series(0.0, seed=0)
    rising = frame["when"].to_numpy()
    y = np.random.default_rng(0).poisson(np.exp(1 + 3 * np.abs(np.sin(40 * rising))))
    explained = frame.with_columns(season=np.abs(np.sin(40 * rising)), y=pl.Series(y))
    assert not trends(explained)


@pytest.mark.parametrize("dates", [False, True])
def test_the_time_is_an_input_only_if_asked(dates):
    frame = series(1.5, seed=0, dates=dates)
    names = {"when day", "when"}
    assert not names & set(prepare(frame, Plan(target="y", time="when")).sample.X.columns)
    kept = prepare(frame, Plan(target="y", time="when", use=("when",)))
    assert names & set(kept.sample.X.columns)
    assert not any("--use when" in sentence for sentence in kept.warnings)
