"""Test that columns made of the target are found however they are made, and that honest predictors are accepted."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from ddpn.tables.checks.findings import FindingKind
from ddpn.tables.checks.leaks import find_leaks
from ddpn.workflow.config import FitConfig
from ddpn.workflow.fitting import fit
from ddpn.workflow.preparing import prepare
from ddpn.workflow.table_warnings import describe_finding

SEEDS = range(4)
ROWS = 500


def simulate_predictor_and_counts(
    mean: float, seed: int, rows: int = ROWS
) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    """Simulate a predictor, and counts that follow it log-linearly, over-dispersed for odd seeds."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    spread = rng.gamma(4.0, 0.25, rows) if seed % 2 else 1.0
    return rng, x, rng.poisson(mean * np.exp(0.6 * x) * spread).astype(float)


def drop_some(rng, values, share=0.4):
    return [None if gap else value for gap, value in zip(rng.random(len(values)) < share, values, strict=True)]


#: Ways in which a column is made of the counts, with words of the sentence about it.
LEAKS = {
    "copy": (lambda rng, y: y, "itself"),
    "shift": (lambda rng, y: y + 17, "times a factor plus a constant"),
    "line": (lambda rng, y: 4.2 - 0.3 * y, "times a factor plus a constant"),
    "root": (lambda rng, y: np.sqrt(y), "a function of"),
    "logarithm": (lambda rng, y: np.log1p(y), "a function of"),
    "codes": (lambda rng, y: [f"code {value:g}" for value in y], "a function of"),
    "copy with gaps": (lambda rng, y: drop_some(rng, y), "itself, with missing values"),
    "line with many gaps": (lambda rng, y: drop_some(rng, 2.5 * y + 1, 0.8), "plus a constant, with missing values"),
    "part": (rng_part := lambda rng, y: rng.binomial(y.astype(int), 0.6), "a part of"),
    "part with gaps": (lambda rng, y: drop_some(rng, rng_part(rng, y).tolist(), 0.3), "a part of"),
    "flag of zeros": (lambda rng, y: (y == 0).astype(int), "whether the target is 0"),
    "flag in words": (lambda rng, y: np.where(y > 0, "some", "none"), "whether the target is 0"),
    "flag as a boolean": (lambda rng, y: y > 0, "whether the target is 0"),
    "missing for zeros": (lambda rng, y: [None if v == 0 else float(rng.normal()) for v in y], "missing just where"),
    "known for some": (
        lambda rng, y: [v or None for v in (rng.random(len(y)) < 0.8) * (y > 0) * 1.5],
        "known only where",
    ),
}
#: Those that need zeros, or counts so small that a part is all of them.
SMALL = (
    "part",
    "part with gaps",
    "flag of zeros",
    "flag in words",
    "flag as a boolean",
    "missing for zeros",
    "known for some",
)


CASES = [(2.0, kind) for kind in LEAKS] + [(30.0, kind) for kind in LEAKS if kind not in SMALL]
#: Of large counts hardly any is repeated, so that codes of them are not distinguished from names.
CASES += [(3000.0, kind) for kind in LEAKS if kind not in (*SMALL, "codes")]


@pytest.mark.parametrize(("mean", "kind"), CASES)
def test_columns_made_of_the_target_are_certain_leaks(kind, mean):
    make, words = LEAKS[kind]
    for seed in SEEDS:
        rng, x, y = simulate_predictor_and_counts(mean, seed)
        X = pl.DataFrame({"x": x, "noise": rng.normal(size=ROWS), "made": make(rng, y)}, strict=False)
        (finding,) = find_leaks(X, y)
        assert (finding.kind, finding.columns) == (FindingKind.LEAK, ("made",)), seed
        assert words in finding.statement, seed
        assert describe_finding(finding).endswith(
            'Leave it out with `drop=["made"]`; if it is known before the count, keep it with `use=["made"]`.'
        )


def test_parts_that_sum_to_the_target_and_dates_that_end_with_it_are_leaks():
    for seed in SEEDS:
        rng, x, y = simulate_predictor_and_counts(30.0, seed)
        part = rng.binomial(y.astype(int), 0.4)
        (leak,) = find_leaks(pl.DataFrame({"x": x, "one": part, "two": y - part}), y)
        assert leak.kind == FindingKind.LEAK
        assert "together determine the target" in leak.statement
        first = [date(2020, 1, 1) + timedelta(days=int(day)) for day in rng.integers(0, 900, ROWS)]
        last = [start if count else None for start, count in zip(first, rng.poisson(1.0, ROWS), strict=True)]
        visits = np.array([0 if day is None else 1 + rng.poisson(1.0) for day in last])
        prepared = prepare(pl.DataFrame({"x": x, "last": last, "visits": visits}), FitConfig(target="visits"))
        assert [leak.split(".")[0] for leak in prepared.leaks] == ["Column last is missing just where the target is 0"]


# Honest predictors ---------------------------------------------------------------------------------------------------


def draw_near_means(rng, mean):
    """Draw counts that are nearly their mean."""
    return np.round(np.maximum(mean + rng.normal(scale=0.4, size=len(mean)), 0.0))


#: Columns that are known before the count, from its mean and the counts.
HONEST = {
    "the mean itself": lambda rng, mean, y: mean,
    "its logarithm": lambda rng, mean, y: np.log(mean),
    "the rounded mean": lambda rng, mean, y: np.round(mean),
    "half of it": lambda rng, mean, y: np.floor(0.5 * mean),
    "a noisy copy": lambda rng, mean, y: mean * np.exp(rng.normal(scale=0.05, size=len(mean))),
    "whether it is large": lambda rng, mean, y: mean > np.median(mean),
    "groups of it": lambda rng, mean, y: [
        f"g{group}" for group in np.searchsorted(np.quantile(mean, [0.3, 0.6]), mean)
    ],
    "known at random": lambda rng, mean, y: drop_some(rng, mean),
    "a small number": lambda rng, mean, y: rng.integers(0, 3, len(mean)),
}


@pytest.mark.parametrize("kind", HONEST)
@pytest.mark.parametrize("mean", [1.0, 12.0, 400.0, 200_000.0])
@pytest.mark.parametrize(
    "draw", [lambda rng, mean: rng.poisson(mean), draw_near_means], ids=["Poisson", "under-dispersed"]
)
def test_honest_predictors_are_at_most_asked_about(kind, mean, draw):
    for seed in SEEDS:
        rng, x, _ = simulate_predictor_and_counts(mean, seed)
        means = mean * np.exp(0.8 * x)
        y = draw(rng, means).astype(float)
        frame = pl.DataFrame({"column": HONEST[kind](rng, means, y), "noise": rng.normal(size=ROWS)}, strict=False)
        findings = find_leaks(frame, y)
        assert all(finding.kind == FindingKind.QUESTION for finding in findings), seed
        assert all(finding.columns == ("column",) for finding in findings), seed


def test_the_mean_of_poisson_counts_is_not_even_asked_about():
    for seed in SEEDS:
        rng, x, _ = simulate_predictor_and_counts(1.0, seed)
        for mean in (0.5, 3.0, 40.0, 5000.0):
            means = mean * np.exp(0.8 * x)
            assert find_leaks(pl.DataFrame({"mean": means}), rng.poisson(means).astype(float)) == []


def test_a_question_leaves_the_verdict_usable_and_a_leak_does_not():
    rng, x, _ = simulate_predictor_and_counts(12.0, 0)
    y = draw_near_means(rng, 12.0 * np.exp(0.8 * x)).astype(int)
    model = {"n_networks": 1, "hidden": (8,), "epochs": 3, "device": "cpu"}
    frame = pl.DataFrame({"x": x, "y": y, "flag": x > 1})
    asked = fit(prepare(frame, FitConfig(target="y", compare_with=("constant",), **model)), {}).folder.task
    assert asked["leaks"] == []
    assert "Is it known before the count?" in asked["warnings"][0]
    assert asked["scores"]["verdict"]["level"] == "better"
    leaking = fit(
        prepare(frame.with_columns(copy=2 * y + 1), FitConfig(target="y", compare_with=("constant",), **model)), {}
    )
    assert leaking.folder.task["scores"]["verdict"]["level"] == "unusable"
