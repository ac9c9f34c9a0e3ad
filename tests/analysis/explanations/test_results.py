"""What all results share: a table, the first rows of it as text, columns by name, their order, and figures."""

import numpy as np
import pytest

from ddpn import explain
from ddpn.analysis.explanations import Importance, Importances, Inputs, contributions
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


def test_every_kind_of_column_is_drawn(formula, frame):
    model = formula(lambda c: c["x"] * np.where(c["ward"] == "b", 1.0, 0.1) + np.where(np.isnan(c["age"]), 1, 0))
    found = explain(model, frame[:120], np.ones(120))
    assert set(found.to_dict()) == {"rows", "effects", "importance"}
    figure = found.effects.plot(["x", "age", "ward", "flag"])
    assert len(figure.axes) == 8
    said = {words for ax in figure.axes for words in (ax.get_xlabel(), ax.get_ylabel())}
    assert {"predicted mean", "predicted variance / mean"} <= said
    labels = [text.get_text() for ax in figure.axes for text in ax.get_yticklabels()]
    assert {"a", "b", "c", "missing", "no", "yes"} <= set(labels)
    first, *others = found.importance.plot(most=3).axes
    assert (len(first.get_yticklabels()), len(others)) == (3, 2)
    rows = contributions(Inputs(model, frame[:3]), Inputs(model, frame))
    drawn = rows.plot(row=1, most=2).axes[0]
    assert [text.get_text() for text in drawn.get_yticklabels()][-1] == "5 others"
    ends = [bar.get_x() + bar.get_width() for bar in drawn.patches]
    assert ends[-1] == pytest.approx(rows.prediction[1])
