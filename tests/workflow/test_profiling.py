"""What is found out about columns before training: kinds and useless ones."""

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from ddpn.errors import InputError
from ddpn.workflow.plan import Plan
from ddpn.workflow.profiling import roles_of

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


def columns(**options):
    return {column.name: column for column in roles_of(FRAME, Plan(target="y", **options)).columns}


def test_kinds():
    found = columns()
    kinds = {name: found[name].kind for name in ("number", "code", "word", "level", "yes", "day")}
    assert kinds == {
        "number": "number", "code": "number", "word": "category", "level": "category", "yes": "boolean", "day": "date"
    }  # fmt: skip
    assert found["day"].parts == ("day", "month", "weekday")
    assert found["moment"].parts == ("day", "month", "weekday", "hour")
    assert (found["holes"].missing, found["number"].missing, found["number"].distinct) == (2, 0, N)


def test_useless_columns_are_left_out_with_a_reason():
    assert {name: column.left_out for name, column in columns().items() if column.left_out} == {
        "id": "nearly every value is different (60 of 60), like names or ids",
        "row": "row numbers",
        "same": "the same value in every row",
        "empty": "no values",
        "list": "unsupported type List(Int64)",
    }


def test_drop_use_and_category_take_precedence():
    found = columns(drop=("number",), use=("id", "row"), category=("code",))
    assert found["number"].left_out == "dropped as asked"
    assert not found["id"].left_out
    assert not found["row"].left_out
    assert found["code"].kind == "category"


def test_of_the_time_column_only_the_calendar_is_an_input():
    assert columns(time="day")["day"].parts == ("month", "weekday")
    assert columns(time="number")["number"].left_out == "used for the split by time"


def test_columns_with_a_role_are_not_inputs():
    assert not {"y", "number", "code", "word"} & set(columns(exposure="number", weight="code", split_column="word"))


@pytest.mark.parametrize("role", ["target", "exposure", "weight", "split_column", "time", "drop", "use", "category"])
def test_every_name_is_checked(role):
    given = {"target": "y", role: ("nmber",) if role in ("drop", "use", "category") else "nmber"}
    with pytest.raises(InputError, match=rf"No column named 'nmber' \({role}\)\. Did you mean 'number'\?"):
        roles_of(FRAME, Plan(**given))


def test_a_table_with_nothing_to_predict_from():
    with pytest.raises(InputError, match=r"No column is left to predict from \(id: nearly every"):
        roles_of(FRAME.select("id", "y"), Plan(target="y"))
