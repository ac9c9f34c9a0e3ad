"""Later tables are read as the first one."""

import pandas as pd
import pytest

from ddpn.members.member import TableReader
from ddpn.runtime.errors import InputError

FRAME = pd.DataFrame({"age": [31.0, 67.0], "ward": ["B", "A"], "smokes": [True, False]})


@pytest.fixture(params=[False, True], ids=["fitted", "restored"])
def reader(request) -> TableReader:
    fitted = TableReader()
    fitted.fit(FRAME)
    return TableReader.from_dict(fitted.as_dict()) if request.param else fitted


def test_columns_are_found_by_name(reader):
    table = reader.read(FRAME[["smokes", "ward", "age"]])
    assert [(column.name, column.kind) for column in table] == [
        ("age", "number"),
        ("ward", "category"),
        ("smokes", "flag"),
    ]


def test_a_column_of_another_kind_is_refused(reader):
    with pytest.raises(InputError, match="'age' must hold numbers as in fit, got '"):
        reader.read(FRAME.assign(age="old"))
    with pytest.raises(InputError, match="'smokes' must hold booleans"):
        reader.read(FRAME.assign(smokes=0.5))
    with pytest.raises(InputError, match="'ward'"):
        reader.read(FRAME.drop(columns="ward"))


def test_a_column_without_values_keeps_its_kind(reader):
    table = reader.read(FRAME.assign(age=None, ward=float("nan")))
    assert [column.kind for column in table] == ["number", "category", "flag"]
    assert (table[1].values == -1).all()


def test_arrays_have_a_number_of_columns_only():
    fitted = TableReader()
    fitted.fit([[1.0, 2.0]])
    again = TableReader.from_dict(fitted.as_dict())
    assert [column.name for column in again.read([[3.0, 4.0]])] == ["x0", "x1"]
    with pytest.raises(ValueError, match="expecting 2 features"):
        again.read([[3.0]])
