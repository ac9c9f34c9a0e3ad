from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from ddpn.workflow.plan import Plan
from ddpn.workflow.preparing import prepare
from ddpn.workflow.tuning import folds as module
from ddpn.workflow.tuning.folds import folds_of, folds_text, trial_plan


@pytest.fixture(scope="module")
def larger():
    rng = np.random.default_rng(1)
    x = rng.normal(size=600)
    part = np.where(np.arange(600) % 5 == 0, "test", np.where(np.arange(600) % 5 == 1, "validation", "train"))
    return pl.DataFrame({"x": x, "hour": np.arange(600.0)[::-1], "part": part, "visits": rng.poisson(np.exp(1 + x))})


def check_parts(prepared, folds):
    """No test row is used, and no row of a fold twice."""
    test = set(prepared.split.rows.test.tolist())
    for fold in folds:
        rows = np.concatenate(fold.split.rows)
        assert len(set(rows.tolist())) == len(rows)
        assert not test & set(rows.tolist())


def test_every_known_row_is_scored_once(prepared, larger):
    for each in (prepared, prepare(larger.drop("hour", "part"), Plan(target="visits"))):
        folds = folds_of(each)
        check_parts(each, folds)
        scored = np.sort(np.concatenate([fold.split.rows.test for fold in folds]))
        known = np.sort(np.concatenate([each.split.rows.train, each.split.rows.validation]))
        np.testing.assert_array_equal(scored, known)
        assert folds_text(each, 3) == "3 folds of the training and validation rows"
        assert folds_text(each, 1) == "1 of 3 folds of the training and validation rows"
    assert all(len(fold.split.rows.validation) == round(320 / 8) for fold in folds)
    assert not len(folds_of(prepared)[0].split.rows.validation)


def test_by_time_scored_rows_are_later(larger):
    prepared = prepare(larger.drop("part"), Plan(target="visits", time="hour"))
    folds = folds_of(prepared)
    check_parts(prepared, folds)
    assert len(folds) == 3
    hours = larger["hour"].to_numpy()
    for fold in folds:
        rows = fold.split.rows
        assert hours[rows.train].max() < hours[rows.validation].min() < hours[rows.test].min()
    np.testing.assert_array_equal(folds[0].split.rows.test, np.sort(prepared.split.rows.validation))


@pytest.mark.parametrize("reason", ["by the user", "many rows"])
def test_validation_rows_are_scored(larger, reason, monkeypatch):
    options = {"split_column": "part"} if reason == "by the user" else {"drop": ("part",)}
    monkeypatch.setattr(module, "CROSSED_ROWS", 5000 if reason == "by the user" else 400)
    prepared = prepare(larger, Plan(target="visits", **options))
    (fold,) = folds_of(prepared)
    check_parts(prepared, [fold])
    np.testing.assert_array_equal(fold.split.rows.test, np.sort(prepared.split.rows.validation))
    assert folds_text(prepared, 1) == "the validation rows"


def test_large_tables_are_scored_on_some_rows(larger, monkeypatch):
    monkeypatch.setattr(module, "SCORED_ROWS", 90)
    prepared = prepare(larger.drop("part"), Plan(target="visits"))
    folds = folds_of(prepared)
    check_parts(prepared, folds)
    assert [len(fold.split.rows.test) for fold in folds] == [30, 30, 30]


def test_a_trial_has_few_networks_and_nothing_to_compare_with():
    plan = Plan(target="y", model={"members": 9})
    assert (trial_plan(plan).model["members"], trial_plan(plan).compare_with) == (2, ())
    assert trial_plan(replace(plan, model={"members": 1})).model["members"] == 1
    assert trial_plan(Plan(target="y")).members == "auto", "a portfolio stays one"


@pytest.mark.parametrize("how", ["at random", "by time", "many rows"])
def test_groups_are_not_divided(larger, how, monkeypatch):
    monkeypatch.setattr(module, "CROSSED_ROWS", 400 if how == "many rows" else 5000)
    person = np.arange(600) // 4
    plan = Plan(target="visits", group=("person",), time="hour" if how == "by time" else None)
    prepared = prepare(larger.drop("part").with_columns(person=person), plan)
    folds = folds_of(prepared)
    check_parts(prepared, folds)
    assert len(folds) == (3 if how == "at random" else 1)
    for fold in folds:
        parts = [set(person[part].tolist()) for part in fold.split.rows]
        assert len(set().union(*parts)) == sum(map(len, parts))
