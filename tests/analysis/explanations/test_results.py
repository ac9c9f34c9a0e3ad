"""What all results share: a table, the first rows of it as text, columns by name, and their order."""

import numpy as np
import pytest

from ddpn.analysis.explanations import Importance, Importances
from ddpn.runtime.errors import ConfigError, InputError


@pytest.fixture
def found() -> Importances:
    """Twelve columns, each worth more than the one before."""
    each = [Importance(f"x{i}", *np.full((3, 3), i / 10.0)) for i in range(12)]
    return Importances(each, 100, 12)


def test_the_text_has_the_first_rows_of_the_table(found):
    title, header, *lines = repr(found).splitlines()
    assert title == "Importances"
    assert header.split() == list(found.table())
    assert [line.split()[0] for line in lines[:-1]] == [f"x{i}" for i in range(11, 1, -1)]
    assert lines[-1] == "... and 2 more rows"
    assert found.to_dict() == found.table()


def test_columns_by_name_and_by_position(found):
    assert found["x3"] is found[3]
    assert len(found) == len(list(found)) == 12
    with pytest.raises(InputError, match="x33"):
        found["x33"]


def test_columns_in_the_order_of_a_measure(found):
    assert [one.name for one in found.by()] == [one.name for one in found.by("spread")]
    assert found.by()[0].name == "x11"
    with pytest.raises(ConfigError, match="of must be one of"):
        found.by("variance")
