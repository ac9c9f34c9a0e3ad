"""Later tables are read as the first one."""

import pandas as pd
import pytest

from ddpn.members.member import TableReader

FRAME = pd.DataFrame({"age": [31.0, 67.0], "ward": ["B", "A"], "smokes": [True, False]})


@pytest.fixture(params=[False, True], ids=["fitted", "restored"])
def reader(request) -> TableReader:
    fitted = TableReader()
    fitted.fit(FRAME)
    return TableReader.from_dict(fitted.as_dict()) if request.param else fitted


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
