"""Test that a split divides all rows into three parts, each row once."""

import warnings
from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from ddpn.runtime.errors import InputError
from ddpn.workflow.config import FitConfig
from ddpn.workflow.fitting import fit
from ddpn.workflow.preparing import prepare
from ddpn.workflow.splitting import split_rows

N = 1000


def split_all_rows(frame: pl.DataFrame, **options):
    split = split_rows(frame, FitConfig(target="y", **options))
    assert sorted(np.concatenate(list(split.rows)).tolist()) == list(range(frame.height)), "not every row once"
    return split


def make_frame(**columns) -> pl.DataFrame:
    n = len(next(iter(columns.values()))) if columns else N
    return pl.DataFrame({"y": [1] * n, **columns})


def test_the_seed_decides_the_random_split():
    one, again, other = (split_all_rows(make_frame(), seed=seed, test_size=0.2) for seed in (0, 0, 1))
    assert [len(part) for part in one.rows] == [700, 100, 200]
    assert one.rows.test.tolist() == again.rows.test.tolist() != other.rows.test.tolist()
    assert one.description == "at random by seed 0"


def test_up_to_5000_rows_are_all_fitted_unless_test_rows_are_asked_for():
    few, many = make_frame(x=[0] * 5000), make_frame(x=[0] * 5001)
    sizes = lambda rows, **options: [len(part) for part in split_all_rows(rows, **options).rows]
    assert sizes(few) == [5000, 0, 0]
    assert sizes(many) == [3501, 500, 1000]
    assert sizes(few, test_size=0.4) == [2625, 375, 2000]
    assert sizes(few, shares=(0.5, 0.25, 0.25)) == [2500, 1250, 1250]
    assert sizes(few, n_networks=3) == [3500, 500, 1000], "networks alone are not cross-fitted"
    assert sizes(few.with_columns(when=pl.int_range(pl.len())), time="when", test_size=0.4) == [2625, 375, 2000]
    grouped = split_rows(few, FitConfig(target="y", group=("person",)), group=draw_labels(50, 5000))
    assert grouped.meaning == (
        "Scores are for new groups: every row was predicted by models that had seen no other row of its group."
    )


@pytest.mark.parametrize("rows", [100, 240])
def test_few_rows_are_not_kept_for_validation(rows):
    split = split_all_rows(make_frame(x=[0] * rows), test_size=0.2)
    assert len(split.rows.test) == rows // 5
    assert [len(part) for part in split.rows] == [rows - len(split.rows.test), 0, len(split.rows.test)]


def test_too_few_rows_are_refused():
    with pytest.raises(InputError, match="at least 20 rows, got 19"):
        split_all_rows(make_frame(x=[0] * 19))


def test_a_column_may_name_the_parts():
    words = ["train", "Val", " test ", "TRAINING", "validation", "holdout"] * 50
    split = split_all_rows(make_frame(fold=words), split_column="fold")
    assert split.rows.train.tolist() == [row for row in range(300) if row % 3 == 0]
    assert split.rows.validation.tolist() == [row for row in range(300) if row % 3 == 1]
    assert split.description == "by column fold"


def test_validation_rows_are_drawn_where_the_column_names_none():
    split = split_all_rows(make_frame(fold=["train"] * 800 + ["test"] * 200), split_column="fold")
    assert split.rows.test.tolist() == list(range(800, 1000))
    assert len(split.rows.validation) == 100
    few = split_all_rows(make_frame(fold=["train"] * 100 + ["test"] * 20), split_column="fold")
    assert len(few.rows.validation) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"] * 20 + ["tset", None], "train, validation or test in every row, got 'tset' at rows 21, 22"),
        (["train"] * 30, "both train and test rows, got train only"),
    ],
)
def test_columns_that_name_no_parts_are_refused(words, message):
    with pytest.raises(InputError, match=message):
        split_all_rows(make_frame(fold=words), split_column="fold")


@pytest.mark.parametrize("kind", ["dates", "numbers"])
def test_by_time_the_last_rows_are_the_test(kind):
    order = np.random.default_rng(0).permutation(N)
    first = date(2024, 1, 1)
    times = [first + timedelta(days=int(k)) for k in order] if kind == "dates" else (order * 0.5).tolist()
    split = split_all_rows(make_frame(when=times), time="when")
    ranks = [set(order[part].tolist()) for part in split.rows]
    assert ranks == [set(range(700)), set(range(700, 800)), set(range(800, 1000))]
    start = first + timedelta(days=800) if kind == "dates" else 400.0
    assert split.description == f"by time: the test rows begin at when = {start}"


def test_rows_of_one_time_stay_together():
    years = np.repeat([2019, 2020, 2021, 2022], [300, 280, 220, 200])
    split = split_all_rows(make_frame(year=years), time="year", shares=(0.6, 0.2, 0.2))
    assert [sorted(set(years[part].tolist())) for part in split.rows] == [[2019, 2020], [2021], [2022]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a"] * 30, "time 'when' must hold numbers or dates .*, got text such as 'a'"),
        ([None] * 30, "time 'when' must hold numbers or dates .*, got no value"),
        ([1.0, None, float("nan")] + [2.0] * 27, "time 'when' is missing at rows 2, 3"),
        ([1] * 30, "distinct values for three parts, got 1 different times in 30 rows"),
    ],
)
def test_times_that_do_not_split_are_refused(values, message):
    with pytest.raises(InputError, match=message):
        split_all_rows(
            make_frame(when=pl.Series(values, dtype=pl.String) if values[0] is None else values), time="when"
        )


# Groups --------------------------------------------------------------------------------------------------------------


def draw_labels(groups: int, rows: int, seed: int = 0) -> np.ndarray:
    """Draw a group label per row, of groups of different sizes in random order."""
    return np.random.default_rng(seed).integers(0, groups, rows).astype(np.uint64)


def are_apart(rows, group: np.ndarray) -> bool:
    """Return True if no group is in two of the parts."""
    seen = [set(group[part].tolist()) for part in rows]
    return len(set().union(*seen)) == sum(map(len, seen))


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_in_one_part_each(seed):
    group = draw_labels(200, N, seed)
    split = split_rows(make_frame(), FitConfig(target="y", group=("person",), seed=seed, test_size=0.2), group=group)
    assert sorted(np.concatenate(list(split.rows)).tolist()) == list(range(N))
    assert are_apart(split.rows, group)
    for part, share in zip(split.rows, (0.7, 0.1, 0.2), strict=True):
        assert abs(len(part) - share * N) <= 20  # the largest group at most
    assert "person" in split.description
    assert "person" in split.meaning


def test_too_few_groups_are_refused():
    with pytest.raises(InputError, match=r"group 'person' must have at least 5 different values, got 4\."):
        split_rows(make_frame(), FitConfig(target="y", group=("person",)), group=draw_labels(4, N))


def test_a_split_column_must_not_divide_groups():
    plan = FitConfig(target="y", group=("person",), split_column="fold")
    words, group = ["train"] * 800 + ["test"] * 200, np.arange(N) // 10
    split = split_rows(make_frame(fold=words), plan, group=group)
    assert are_apart(split.rows, group)
    assert len(split.rows.validation) == 100
    with pytest.raises(InputError, match=r"must not divide groups, got 1 groups in several parts.* at rows 791, 792"):
        split_rows(make_frame(fold=words), plan, group=np.where(np.arange(N) >= 995, 79, group))


def test_by_time_test_groups_begin_last_and_training_rows_are_earlier():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(250), 4)
    when = np.repeat(rng.uniform(0, 100, 250), 4) + np.tile([0.0, 1.0, 3.0, 9.0], 250)
    split = split_rows(make_frame(when=when), FitConfig(target="y", group=("person",), time="when"), group=group)
    train, validation, test = split.rows
    assert are_apart(split.rows, group)
    assert when[train].max() < when[validation].min() <= when[validation].max() < when[test].min()
    assert len(test) == 200, "all rows of the test groups are tested"
    left = N - len(train) - len(validation) - len(test)
    assert left > 0
    assert f"{left:,} later rows" in split.description
    assert "begin later" in split.meaning


@pytest.mark.parametrize("late", [0.0, 0.1])
def test_in_a_panel_the_last_rows_of_random_groups_are_tested(late):
    """A hundred groups over ten times; a tenth may begin later, which is too few for a split by their begin."""
    group, when = np.repeat(np.arange(100), 10), np.tile(np.arange(10), 100)
    when = np.where(group < 100 * late, when + 2, when)
    plan = FitConfig(target="y", group=("person",), time="when", test_size=0.3)
    split = split_rows(make_frame(when=when), plan, group=group)
    train, validation, test = split.rows
    assert are_apart(split.rows, group)
    first = when[test].min()
    assert max(when[train].max(), when[validation].max()) < first
    assert len(np.unique(group[test])) == pytest.approx(30, abs=1)
    tested = np.isin(group, group[test])
    assert np.array_equal(np.sort(test), np.flatnonzero(tested & (when >= first))), "all of their later rows"
    assert np.array_equal(np.sort([*train, *validation]), np.flatnonzero(~tested & (when < first)))
    assert f"from when = {first} on of {len(np.unique(group[test]))} of 100 groups" in split.description
    assert f"{N - len(train) - len(validation) - len(test)} later rows of other groups" in split.description
    assert split.meaning.startswith("Scores are for later rows of new groups: no value of person")
    other = split_rows(make_frame(when=when), plan.replace(seed=1), group=group).rows.test
    assert not np.array_equal(np.sort(other), np.sort(test))


def test_one_time_and_too_few_rows_of_a_panel_are_refused_with_what_to_do():
    group = np.repeat(np.arange(100), 10)
    plan = FitConfig(target="y", group=("person",), time="when")
    with pytest.raises(InputError, match="enough distinct values for three parts, got 1 different times"):
        split_rows(make_frame(when=np.full(N, 3)), plan, group=group)
    when = np.where(group < 20, 0, 1)  # most groups have no earlier row, and begin with the others
    split = split_rows(make_frame(when=when), plan, group=group)
    assert (when[split.rows.train].max(), when[split.rows.test].min()) == (0, 1)


def test_scores_of_a_panel_are_those_of_new_units_in_later_months():
    """Units have levels of their own, and counts rise: a random split is optimistic by far, this one is not."""
    rng = np.random.default_rng(0)
    units, months = 150, 24

    def draw(number: int) -> pl.DataFrame:
        unit = np.repeat(np.arange(number), months)
        month, size = np.tile(np.arange(months), number), rng.normal(size=number)[unit]
        level = rng.normal(0.0, 0.6, number)[unit]
        y = rng.poisson(np.exp(1.0 + 0.3 * size + level + 0.02 * month))
        return pl.DataFrame(
            {"y": y, "size": size, "noise": rng.normal(size=number)[unit], "month": month, "unit": unit}
        )

    scores = {}
    table, new = draw(units), draw(600).filter(pl.col("month") >= 19)
    for name, options in (("panel", {"time": "month", "group": ("unit",)}), ("random", {"drop": ("unit",)})):
        plan = FitConfig(target="y", only="trees", compare_with=(), test_size=0.2, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prepared = prepare(table, plan)
            model = fit(prepared, {}).folder.model
        X = prepared.roles.parse(new, report=lambda sentence: None)
        truth = np.abs(new["y"].to_numpy() - model.predict(X)).mean()
        test = prepared.test
        scores[name] = np.abs(test.y - model.predict(test.X)).mean() / truth
    assert scores["panel"] == pytest.approx(1.0, abs=0.25)
    assert scores["random"] < 0.75


def test_with_groups_the_printed_beginning_is_that_of_the_earliest_test_row():
    order = np.random.default_rng(1).permutation(N)
    group = (order // 10).astype(np.uint64)  # every group has ten successive times, and the table is not sorted
    plan = FitConfig(target="y", time="when", group=("person",))
    split = split_rows(make_frame(when=order), plan, group=group)
    assert f"begin at when = {order[split.rows.test].min()} " in split.description
