"""Rows that belong together: what is reported with `group` holds for new persons, and a warning where it is missing.

Counts have a random intercept per person, so that nothing that is known about one person helps with another one.
"""

import numpy as np
import polars as pl
import pytest

from ddpn.analysis.leaderboard import leaderboard
from ddpn.tables.roles import Roles
from ddpn.workflow.config import FitConfig
from ddpn.workflow.fitting import fit
from ddpn.workflow.preparing import prepare


def persons(number: int, rows: int, seed: int, spread: float = 0.7) -> pl.DataFrame:
    """Persons with an own level; two inputs of the person, one of the row."""
    rng = np.random.default_rng(seed)
    one = np.repeat(np.arange(number), rows)
    age, size = (rng.normal(size=number)[one] for _ in range(2))
    x, level = rng.normal(size=len(one)), rng.normal(0.0, spread, number)[one]
    y = rng.poisson(np.exp(1.0 + 0.3 * age + 0.3 * x + level))
    return pl.DataFrame({"person": one, "age": age, "size": size, "x": x, "visits": y})


def mixture_scores(entries: list[dict]) -> dict:
    return next(entry for entry in entries if entry["weight"] is None)


@pytest.fixture(scope="module")
def grouped():
    """The scores that a fit with groups reports, and those of the same model on 600 new persons."""
    plan = FitConfig(
        target="visits", group=("person",), compare_with=("constant",),
        likelihood="negative_binomial", n_networks="auto", device="cpu",
    )  # fmt: skip
    found = fit(prepare(persons(400, 5, seed=0), plan), {})
    new = found.folder.roles.read_rows(persons(600, 5, seed=1))
    return found.folder.task["scores"], leaderboard(found.folder.model.predictor_, new).to_dict()


def test_reported_scores_are_those_of_new_persons(grouped):
    reported, new = (mixture_scores(found["entries"]) for found in grouped)
    assert reported["crps"] == pytest.approx(new["crps"], rel=0.05)


def test_intervals_cover_new_persons(grouped):
    _, new = (mixture_scores(found["entries"]) for found in grouped)
    assert 0.87 <= new["coverage"] <= 0.94


def test_the_verdict_says_what_scores_mean(grouped):
    reported, _ = grouped
    assert any(
        "every row was predicted by models that had seen no other row of its group" in sentence
        for sentence in reported["verdict"]["sentences"]
    )


def test_predictions_do_not_need_the_group():
    plan = FitConfig(target="visits", group=("person",))
    roles = Roles.from_dict(prepare(persons(60, 5, seed=0), plan).roles.as_dict())
    new = persons(20, 5, seed=1).drop("person")
    assert roles.parse(new).names == ["age", "size", "x"]
    assert roles.read_rows(new).group is None


@pytest.mark.parametrize(("number", "rows"), [(80, 10), (400, 5)])
def test_persons_are_found_without_the_option(number, rows):
    """Inputs that identify the persons: their numbers as text, or inputs that do not differ within a person."""
    frame = persons(number, rows, seed=2)
    text = frame.with_columns(person=pl.format("p{}", "person"))
    for each, group in ((text, "person"), (frame.drop("person", "x"), "equal-inputs")):
        warnings = prepare(each, FitConfig(target="visits")).warnings
        assert any(f'`group=["{group}"]`' in sentence for sentence in warnings), warnings
        named = prepare(each, FitConfig(target="visits", group=(group,))).warnings
        assert not any("`group" in sentence for sentence in named)
