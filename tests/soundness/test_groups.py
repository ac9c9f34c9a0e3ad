"""Test rows that belong together: scores with `group` hold for new persons, and a warning says where it is missing.

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


def simulate_persons(number: int, rows: int, seed: int, spread: float = 0.7) -> pl.DataFrame:
    """Simulate persons with a level of their own, two inputs of the person, and one of the row."""
    rng = np.random.default_rng(seed)
    one = np.repeat(np.arange(number), rows)
    age, size = (rng.normal(size=number)[one] for _ in range(2))
    x, level = rng.normal(size=len(one)), rng.normal(0.0, spread, number)[one]
    y = rng.poisson(np.exp(1.0 + 0.3 * age + 0.3 * x + level))
    return pl.DataFrame({"person": one, "age": age, "size": size, "x": x, "visits": y})


def get_mixture_scores(entries: list[dict]) -> dict:
    return next(entry for entry in entries if entry["weight"] is None)


@pytest.fixture(scope="module")
def scores_with_groups():
    """The scores that a fit with groups reports, and those of the same model on 600 new persons."""
    plan = FitConfig(
        target="visits", group=("person",), compare_with=("constant",),
        likelihood="negative_binomial", n_networks="auto", device="cpu",
    )  # fmt: skip
    fitted = fit(prepare(simulate_persons(400, 5, seed=0), plan), {})
    new = fitted.folder.roles.read_rows(simulate_persons(600, 5, seed=1))
    return fitted.folder.task["scores"], leaderboard(fitted.folder.model.predictor_, new).to_dict()


def test_reported_scores_are_those_of_new_persons(scores_with_groups):
    reported, new = (get_mixture_scores(scores["entries"]) for scores in scores_with_groups)
    assert reported["crps"] == pytest.approx(new["crps"], rel=0.05)


def test_intervals_cover_new_persons(scores_with_groups):
    _, new = (get_mixture_scores(scores["entries"]) for scores in scores_with_groups)
    assert 0.87 <= new["coverage"] <= 0.94


def test_the_verdict_says_that_groups_were_left_out(scores_with_groups):
    reported, _ = scores_with_groups
    assert any(
        "every row was predicted by models that had seen no other row of its group" in sentence
        for sentence in reported["verdict"]["sentences"]
    )


def test_rows_to_predict_need_no_group_column():
    plan = FitConfig(target="visits", group=("person",))
    roles = Roles.from_dict(prepare(simulate_persons(60, 5, seed=0), plan).roles.as_dict())
    new = simulate_persons(20, 5, seed=1).drop("person")
    assert roles.parse(new).names == ["age", "size", "x"]
    assert roles.read_rows(new).group is None


@pytest.mark.parametrize(("number", "rows"), [(80, 10), (400, 5)])
def test_persons_are_found_without_the_option(number, rows):
    """Persons are identified by their numbers as text, or by inputs that do not differ within a person."""
    frame = simulate_persons(number, rows, seed=2)
    text = frame.with_columns(person=pl.format("p{}", "person"))
    for variant, group in ((text, "person"), (frame.drop("person", "x"), "equal-inputs")):
        warnings = prepare(variant, FitConfig(target="visits")).warnings
        assert any(f'`group=["{group}"]`' in sentence for sentence in warnings), warnings
        named = prepare(variant, FitConfig(target="visits", group=(group,))).warnings
        assert not any("`group" in sentence for sentence in named)
