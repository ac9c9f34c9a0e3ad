"""From a table and a plan to three samples; the digests that a fit is known by."""

import numpy as np
import polars as pl
import pytest

from ddpn.runtime.errors import InputError
from ddpn.sample import Sample
from ddpn.workflow.preparing import fingerprint, identity, prepare


def test_samples_are_the_rows_of_the_split(prepared, table):
    assert prepared.counts == {"train": 210, "validation": 30, "test": 60}
    for part in ("train", "validation", "test"):
        sample, rows = getattr(prepared, part), getattr(prepared.split.rows, part)
        assert sample.y.tolist() == table["visits"].to_numpy()[rows].tolist()
        assert sample.labels.tolist() == (rows + 1).tolist()
    assert prepared.sample.X.columns == [
        "severity", "ward", "smokes", "age", "admitted day", "admitted month", "admitted weekday"
    ]  # fmt: skip


def test_a_date_in_a_random_split_is_warned_about(prepared, table, plan):
    (warning,) = prepared.warnings
    assert "Column admitted is a date" in warning
    assert warning.endswith("--time admitted.")
    assert prepare(table, plan(time="admitted")).warnings == ()


def test_rows_of_weight_zero_are_left_out_with_a_warning(table, plan):
    found = prepare(table.with_columns(weight=pl.Series(np.arange(300) % 3)), plan())
    assert len(found.sample) == 200
    assert found.sample.labels[:4].tolist() == [2, 3, 5, 6]
    assert found.warnings[0] == "100 rows of weight 0 are left out."


def test_rows_without_a_target_are_left_out_with_a_warning(table, plan):
    missing = pl.int_range(pl.len()) % 25 == 3
    found = prepare(table.with_columns(visits=pl.when(~missing).then("visits")), plan())
    assert found.warnings[0] == "12 rows without a value of 'visits' were left out."
    kept = table.filter(~missing)
    assert found.sample.y.tolist() == kept["visits"].to_list()
    assert found.sample.X["severity"].to_list() == kept["severity"].to_list()
    assert 4 not in found.sample.labels
    assert sum(found.counts.values()) == 288
    with pytest.raises(InputError, match="target 'visits' must have values"):
        prepare(table.with_columns(visits=pl.lit(None)), plan())


def test_row_numbers_are_those_of_the_file_even_after_rows_are_left_out(table, plan):
    parts = ["train"] * 199 + ["tset"] + ["test"] * 100
    some = table.with_columns(weight=pl.Series(np.arange(300) % 2), part=pl.Series(parts))
    with pytest.raises(InputError, match="'tset' at row 200"):
        prepare(some, plan(split_column="part"))
    times = pl.Series([None if row == 249 else float(row) for row in range(300)])
    with pytest.raises(InputError, match="missing at row 250"):
        prepare(some.with_columns(when=times), plan(time="when"))


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({"weight": pl.lit(0)}, {}, ["weight 'weight'", "zero weights only"]),
        ({"visits": pl.lit(0)}, {}, ["target 'visits'", "above 0 in some training row"]),
        ({"visits": pl.col("visits") + 0.25}, {}, ["non-negative integers", "at rows 1, 2, 3, 4, 5 and 295 more"]),
        ({}, {"split_column": "part"}, ["No column named 'part' (split_column)"]),
    ],
)
def test_tables_that_cannot_be_fitted(table, plan, change, options, words):
    with pytest.raises(InputError) as error:
        prepare(table.with_columns(**change), plan(**options))
    assert [word for word in words if word not in str(error.value)] == []


def test_fractions_are_rounded_on_request(table, plan):
    halves = table.with_columns(visits=pl.col("visits") + 0.25)
    assert prepare(halves, plan(model={"fractional": "round"})).sample.y.tolist() == table["visits"].to_list()


def test_members_to_mix_need_validation_rows(table, plan):
    few = plan(model={"mix_with": ("glm", "trees")})
    (warning,) = prepare(table.head(60).drop("admitted"), few).warnings
    assert "no validation rows" in warning
    assert "glm, trees" in warning


# Digests -------------------------------------------------------------------------------------------------------------

ONE = Sample(pl.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"]}), np.arange(3.0), np.array([1.0, 0.0, 2.0]))


def test_a_fingerprint_follows_names_and_values():
    same = Sample(ONE.X.clone(), ONE.y.copy(), ONE.weight.copy(), labels=np.array([7, 8, 9]))
    assert fingerprint(same) == fingerprint(ONE)
    others = [
        ONE.replace(y=ONE.y + 1),
        ONE.replace(weight=None),
        ONE.replace(exposure=np.ones(3)),
        ONE.replace(X=ONE.X.rename({"a": "c"})),
        ONE.rows(np.array([0, 2, 1])),
    ]
    assert len({fingerprint(sample) for sample in (ONE, *others)}) == 6


def test_another_plan_or_table_has_another_identity(prepared, table, plan):
    others = [
        prepare(table, plan(seed=1)),
        prepare(table, plan(model={"members": 3})),
        prepare(table, plan(model={"training_options": {"lr": 0.1}})),
        prepare(table.with_columns(age=pl.lit(1.0)), plan(use=("age",))),
    ]
    assert len({identity(each) for each in (prepared, *others)}) == 5
    assert identity(prepare(table, plan())) == identity(prepared)


def test_columns_that_follow_time_are_known_where_rows_are_split_by_it(table, plan):
    years = table.with_columns(year=pl.col("admitted").rank("ordinal") // 60)
    found = prepare(years, plan(time="admitted"))
    assert "year" in found.time_columns
    assert not {"days", "visits"} & set(found.time_columns)
    assert prepare(years, plan()).time_columns == ()
