"""Test how a table and a plan become columns of known kinds, three samples, and digests that identify a fit."""

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import InputError
from ddpn.tables.columns import Kind
from ddpn.tables.files import read_file
from ddpn.workflow.column_roles import find_roles
from ddpn.workflow.config import FitConfig
from ddpn.workflow.preparing import compute_fingerprint, compute_identity, prepare


def test_samples_are_the_rows_of_the_split(patients, table):
    assert patients.counts == {"train": 210, "validation": 30, "test": 60}
    for part in ("train", "validation", "test"):
        sample, rows = getattr(patients, part), getattr(patients.split.rows, part)
        assert sample.y.tolist() == table["visits"].to_numpy()[rows].tolist()
        assert sample.labels.tolist() == (rows + 1).tolist()
    assert patients.sample.X.names == [
        "severity", "ward", "smokes", "age", "admitted day", "admitted month", "admitted weekday"
    ]  # fmt: skip


def test_a_date_in_a_random_split_is_warned_about(patients, table, plan):
    (warning,) = patients.warnings
    assert "Column admitted is a date" in warning
    assert warning.endswith('`time="admitted"`.')
    assert prepare(table, plan(time="admitted")).warnings == ()


def test_rows_of_weight_zero_are_left_out_with_a_warning(table, plan):
    prepared = prepare(table.with_columns(weight=pl.Series(np.arange(300) % 3)), plan())
    assert len(prepared.sample) == 200
    assert prepared.sample.labels[:4].tolist() == [2, 3, 5, 6]
    assert prepared.warnings[0] == "Left out: 100 rows of weight 0."


def test_rows_without_a_target_are_left_out_with_a_warning(table, plan):
    missing = pl.int_range(pl.len()) % 25 == 3
    prepared = prepare(table.with_columns(visits=pl.when(~missing).then("visits")), plan())
    assert prepared.warnings[0] == "12 rows without a value of 'visits' were left out."
    assert 4 not in prepared.sample.labels
    assert sum(prepared.counts.values()) == 288
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
        ({}, {"split_column": "part"}, ["No column named 'part' (`split_column`)"]),
    ],
)
def test_tables_that_cannot_be_fitted_are_refused(table, plan, change, options, words):
    with pytest.raises(InputError) as error:
        prepare(table.with_columns(**change), plan(**options))
    assert [word for word in words if word not in str(error.value)] == []


def test_members_to_mix_need_validation_rows(table, plan):
    few = plan(model={"mix_with": ("glm", "trees")})
    (warning,) = prepare(table.head(60).drop("admitted"), few).warnings
    assert "no validation rows" in warning
    assert "glm, trees" in warning


# Digests -------------------------------------------------------------------------------------------------------------

ONE = CountRows(pl.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"]}), np.arange(3.0), np.array([1.0, 0.0, 2.0]))


def test_a_fingerprint_follows_names_and_values():
    same = CountRows(ONE.X.clone(), ONE.y.copy(), ONE.weight.copy(), labels=np.array([7, 8, 9]))
    assert compute_fingerprint(same) == compute_fingerprint(ONE)
    others = [
        ONE.replace(y=ONE.y + 1),
        ONE.replace(weight=None),
        ONE.replace(exposure=np.ones(3)),
        ONE.replace(X=ONE.X.rename({"a": "c"})),
        ONE.rows(np.array([0, 2, 1])),
    ]
    assert len({compute_fingerprint(sample) for sample in (ONE, *others)}) == 6


def test_another_plan_or_table_has_another_identity(patients, table, plan):
    others = [
        prepare(table, plan(seed=1)),
        prepare(table, plan(model={"n_networks": 3})),
        prepare(table, plan(model={"training_options": {"lr": 0.1}})),
        prepare(table.with_columns(age=pl.lit(1.0)), plan(use=("age",))),
    ]
    assert len({compute_identity(variant) for variant in (patients, *others)}) == 5
    assert compute_identity(prepare(table, plan())) == compute_identity(patients)


def test_columns_that_follow_time_are_known_where_rows_are_split_by_it(table, plan):
    years = table.with_columns(year=pl.col("admitted").rank("ordinal") // 60)
    prepared = prepare(years, plan(time="admitted"))
    assert "year" in prepared.time_columns
    assert not {"days", "visits"} & set(prepared.time_columns)
    assert prepare(years, plan()).time_columns == ()


# What each column is --------------------------------------------------------------------------------------------------

N = 60
RNG = np.random.default_rng(1)
FRAME = pl.DataFrame(
    {
        "number": RNG.normal(size=N),
        "holes": [None, float("nan")] + [1.0, 2.0] * ((N - 2) // 2),
        "code": RNG.integers(0, 3, N),
        "word": RNG.choice(["a", "b"], N),
        "level": pl.Series(RNG.choice(["a", "b"], N).tolist(), dtype=pl.Categorical),
        "yes": RNG.random(N) < 0.5,
        "id": [f"p{row}" for row in range(N)],
        "row": RNG.permutation(N) + 5,
        "same": [3] * N,
        "empty": pl.Series([None] * N, dtype=pl.String),
        "list": [[1, 2]] * (N - 1) + [[3]],
        "day": [datetime(2024, 1, 1) + timedelta(days=row) for row in range(N)],
        "moment": [datetime(2024, 1, 1) + timedelta(hours=row) for row in range(N)],
        "y": RNG.poisson(3, N),
    }
)


def find_columns(**options):
    return {column.name: column for column in find_roles(FRAME, FitConfig(target="y", **options)).columns}


def test_the_kind_of_a_column_follows_its_values():
    columns = find_columns()
    kinds = {name: columns[name].kind for name in ("number", "code", "word", "level", "yes", "day")}
    assert kinds == {
        "number": "number", "code": "number", "word": "category", "level": "category", "yes": "boolean", "day": "date"
    }  # fmt: skip
    assert columns["day"].parts == ("day", "month", "weekday")
    assert columns["moment"].parts == ("day", "month", "weekday", "hour")
    assert (columns["holes"].missing, columns["number"].missing, columns["number"].distinct) == (2, 0, N)


def test_useless_columns_are_left_out_with_a_reason():
    assert {name: column.left_out for name, column in find_columns().items() if column.left_out} == {
        "id": "nearly every value is different (60 of 60), like names or ids",
        "row": "row numbers",
        "same": "the same value in every row",
        "empty": "no values",
        "list": "unsupported type List(Int64)",
    }


def find_reason_to_leave_out(name: str, values: np.ndarray) -> str:
    frame = pl.DataFrame({name: values, "x": np.arange(len(values)) % 7, "y": np.arange(len(values)) % 5})
    return find_roles(frame, FitConfig(target="y")).columns[0].left_out


@pytest.mark.parametrize("rows", [60, 300, 5000])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_row_numbers_of_a_table_that_was_filtered_are_recognised(rows, share):
    reasons = []
    for seed in range(20):
        kept = np.flatnonzero(np.random.default_rng(seed).random(int(3 * rows / share)) < share)[:rows]
        reasons.append(find_reason_to_leave_out("id", kept))
    # At 5% of the rows, 60 of them have three steps of 1 on average.
    assert sum("like row numbers" in reason for reason in reasons) >= (16 if rows * share < 10 else 20)


INCREASING = {
    "years": ("y1", np.delete(np.arange(1900, 2020), [3, 50])),
    "periods": ("day", np.delete(np.arange(300), [3, 50])),
    "days": ("d", np.delete(np.arange(18_000, 18_500), [3, 50])),
    "seconds": ("d", np.cumsum(np.random.default_rng(0).integers(1, 4000, 200))),
    "doses": ("dose", np.arange(0, 500, 5)),
    "sizes": ("size", np.unique(np.exp(np.random.default_rng(0).normal(4, 1.5, 200)).astype(int))),
    "fractions": ("v", np.sort(np.random.default_rng(0).random(100))),
    "not sorted": ("v", np.random.default_rng(0).permutation(np.delete(np.arange(200), [3, 50]))),
    "repeated": ("v", np.sort(np.random.default_rng(0).integers(0, 300, 200))),
}


@pytest.mark.parametrize(("name", "values"), INCREASING.values(), ids=INCREASING.keys())
def test_other_increasing_columns_are_kept(name, values):
    assert find_reason_to_leave_out(name, values) == ""


def test_drop_use_and_category_take_precedence():
    columns = find_columns(drop=("number",), use=("id", "row"), category=("code",))
    assert columns["number"].left_out == "dropped as requested"
    assert not columns["id"].left_out
    assert not columns["row"].left_out
    assert columns["code"].kind == "category of numbers"


def test_of_the_time_column_only_the_calendar_is_an_input():
    assert find_columns(time="day")["day"].parts == ("month", "weekday")
    assert find_columns(time="number")["number"].left_out == "used for the split by time"


# Text that is read as something else ---------------------------------------------------------------------------------


def read_column(cells: list, **options):
    """Read the column x of a table with these cells."""
    frame = pl.DataFrame({"x": pl.Series(cells), "ok": [0.5, 1.5] * (len(cells) // 2), "y": [1] * len(cells)})
    return find_roles(frame, FitConfig(target="y", **options)).columns[0]


NUMBERS = [f"{value:.3f}" for value in RNG.normal(50, 9, 600)]


def test_numbers_with_a_few_other_cells_are_numbers():
    column = read_column(["n/a", *NUMBERS[:296], "n/a", *NUMBERS[296:596], "-", " 5 "])
    assert (column.kind, column.left_out, column.missing) == ("number", "", 3)
    sentence = "Column x: 597 of 600 values are numbers; 3 ('n/a', '-') are treated as missing."
    assert column.notes == (sentence,)


def test_words_for_missing_values_may_be_many():
    assert read_column(["unknown"] * 500 + NUMBERS[:100]).kind == "number"
    assert read_column(["-999"] * 100 + NUMBERS[:500], missing=("-999",)).missing == 100
    assert read_column([-999.0, -999.0, *map(float, NUMBERS[:598])], missing=("-999",)).missing == 2
    column = read_column(["refused"] * 100 + NUMBERS[:500])
    assert column.kind == "category of numbers"
    assert "500 of 600 values are numbers, but the others ('refused') are too many" in column.notes[0]
    assert read_column(["refused"] * 100 + NUMBERS[:500], missing=("refused",)).kind == "number"


@pytest.mark.parametrize(
    ("cells", "kind", "words"),
    [
        (["1,234", "2,000"] * 20, "number", "the comma in values such as '1,234' is read as a thousands separator"),
        (["0", "1", "2", "5+"] * 10, "number", "values such as '5+' are read as 5"),
        (["5 kg", "7 kg"] * 20, "number", "values with 'kg' are read as numbers without it"),
        (["1", "2"] * 20, "number", '`category=["x"]` keeps it categorical'),
        (["31.01.2021", "01.02.2021"] * 20, "date", None),
        (["03/04/2021", "05/06/2021"] * 20, "date", "dates such as '03/04/2021' are read with the month first"),
        (["31.01.2021", "01.02.2021"] * 20 + ["soon", "-"], "date", "40 of 42 values are dates; 2 ('-', 'soon') are"),
        (["True", "FALSE"] * 20, "boolean", None),
        (["True", "FALSE"] * 20 + ["n/a", "n/a"], "boolean", "40 of 42 values are booleans; 2 ('n/a') are treated"),
        (["007", "012"] * 20, "category", None),
        (["yes", "no"] * 20, "category", None),
        (["a", "b", "c", "1"] * 20, "category of numbers", None),
        ([1.0, float("inf")] * 20, "number", "20 infinite values are treated as missing"),
    ],
)
def test_text_that_holds_numbers_or_dates_is_recognised(cells, kind, words):
    column = read_column(cells)
    assert column.kind == kind
    assert bool(column.notes) == (words is not None)
    assert words is None or words in column.notes[0]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([1, 2], Kind.NUMBER_CATEGORY),
        ([1.0, 2.0], Kind.NUMBER_CATEGORY),
        (["1.0", "2"], Kind.NUMBER_CATEGORY),
        (["1", "2", "n/a", "-"], Kind.NUMBER_CATEGORY),
        (["007", "012"], Kind.CATEGORY),
        ([True, False], Kind.BOOLEAN_CATEGORY),
        (["True", "False"], Kind.BOOLEAN_CATEGORY),
        (["a", "b"], Kind.CATEGORY),
    ],
)
def test_a_category_that_is_asked_for_keeps_the_type_of_its_levels(cells, kind):
    column = read_column(cells * 20, category=("x",))
    assert column.kind == kind


def test_a_category_of_floats_is_the_same_in_parquet_and_csv(tmp_path):
    """Zones such as 1.0, 2.5, 10.0 or missing, also where a file of short floats writes them."""
    frame = FRAME.select("number", "y", zone=pl.Series([1.0, 2.5, 10.0, None] * (N // 4)))
    roles = find_roles(frame, FitConfig(target="y", category=("zone",)))
    for dtype in (pl.Float64, pl.Float32):
        frame.with_columns(pl.col("zone").cast(dtype)).write_csv(tmp_path / "zones.csv")
        later = read_file(str(tmp_path / "zones.csv"), roles.as_text)
        assert roles.parse(later).to_polars()["zone"].to_list() == roles.parse(frame).to_polars()["zone"].to_list()
    assert roles.parse(frame).to_polars()["zone"].n_unique() == 4


def test_columns_with_a_role_are_not_inputs():
    assert not {"y", "number", "code", "word"} & set(
        find_columns(exposure="number", weight="code", split_column="word")
    )


LISTS, SINGLE = ("drop", "use", "category", "group"), ("target", "exposure", "weight", "split_column", "time")


@pytest.mark.parametrize("role", [*SINGLE, "interval_groups", *LISTS])
def test_an_unknown_column_of_any_role_is_named(role):
    options = {"target": "y", role: ("nmber",) if role in LISTS else "nmber"}
    with pytest.raises(InputError, match=rf"No column named 'nmber' \(`{role}`\)\. Did you mean 'number'\?"):
        find_roles(FRAME, FitConfig(**options))


def test_a_table_with_nothing_to_predict_from_is_refused():
    with pytest.raises(InputError, match=r"No column is left to predict from \(id: nearly every"):
        find_roles(FRAME.select("id", "y"), FitConfig(target="y"))


def test_few_levels_with_a_word_among_them_stay_a_category():
    """A word in 5% of the rows is a level; among hundreds of different numbers it stands for a missing one."""
    assert read_column(["1", "2", "3", "4"] * 19 + ["many"] * 4).kind == "category of numbers"
    assert read_column([str(number) for number in range(100, 195)] + ["many"] * 5).kind == "number"
