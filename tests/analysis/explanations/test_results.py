"""Test what all results share: a table, its first rows as text, columns by name, their order, and figures."""

import numpy as np
import pytest

from ddpn import explain
from ddpn.analysis.explanations import Importance, Importances, Inputs, contributions, effects, importance
from ddpn.runtime.errors import ConfigError, InputError


@pytest.fixture
def importances() -> Importances:
    """Twelve columns, of which a later one is worth more than an earlier one."""
    columns = [Importance(f"x{i}", *np.full((3, 3), i / 10.0)) for i in range(12)]
    return Importances(columns, 100, 12, 100, 100)


def test_the_text_has_the_first_rows_of_the_table(importances):
    title, header, *lines = repr(importances).splitlines()
    assert title == "Importances"
    assert header.split() == list(importances.table())
    assert [line.split()[0] for line in lines[:-1]] == [f"x{i}" for i in range(11, 1, -1)]
    assert lines[-1] == "... and 2 more rows"
    assert importances.to_dict() == importances.table() == importances.to_frame().to_dict(as_series=False)
    assert importances["x3"] is importances[3]
    assert len(importances) == len(list(importances)) == 12
    assert importances.by("spread")[0].name == "x11"


def test_every_kind_of_column_is_drawn(formula, frame):
    model = formula(lambda c: c["x"] * np.where(c["ward"] == "b", 1.0, 0.1) + np.where(np.isnan(c["age"]), 1, 0))
    explanation = explain(model, frame[:60], np.ones(60))
    assert set(explanation.to_dict()) == {"rows", "effects", "importance", "draw"}
    labels = [
        text.get_text() for ax in explanation.effects.plot(["ward", "flag"]).axes for text in ax.get_yticklabels()
    ]
    assert {"a", "b", "c", "missing", "no", "yes"} <= set(labels)
    rows = contributions(Inputs(model, frame[:3]), Inputs(model, frame))
    table = rows.to_frame()
    assert table["contribution"].to_list() == rows.values.ravel().tolist()
    assert (table["column"][:7].to_list(), set(map(type, table["value"].to_list()))) == (rows.columns, {str})
    drawn = rows.plot(row=1, max_columns=2).axes[0]
    assert [text.get_text() for text in drawn.get_yticklabels()][-1] == "5 others"
    ends = [bar.get_x() + bar.get_width() for bar in drawn.patches]
    assert ends[-1] == pytest.approx(rows.prediction[1])


#: Calls with a model, one that needs an exposure, and a table; the error, and words of its message.
REFUSALS = [
    (lambda m, e, X: effects(Inputs(m, X), columns=["agee"]), InputError, r"'agee'\. Did you mean 'age'\?"),
    (lambda m, e, X: effects(Inputs(m, X), columns=["ward"])["wards"], InputError, r"Did you mean 'ward'\?"),
    (lambda m, e, X: effects(Inputs(m, X), bins=0), ConfigError, "bins must be an integer"),
    (lambda m, e, X: effects(Inputs(m, X[:0])), InputError, "at least one row"),
    (lambda m, e, X: effects(Inputs(e, X)), InputError, "exposure is missing"),
    (lambda m, e, X: effects(Inputs(m, X, upper=X["few"])), InputError, "upper must not be given"),
    (lambda m, e, X: effects(Inputs(m, X), columns=["x"]).by("variance"), ConfigError, "of must be"),
    (lambda m, e, X: importance(Inputs(m, X)), InputError, "inputs must have counts"),
    (lambda m, e, X: contributions(Inputs(m, X[:1])), InputError, "background is needed"),
    (lambda m, e, X: contributions(Inputs(m, X), max_predictions=600), InputError, "X must have at most 12 rows"),
    (lambda m, e, X: contributions(Inputs(m, X), Inputs(m, X[["x", "z"]])), InputError, "the same columns as X"),
    (lambda m, e, X: contributions(Inputs(m, X), Inputs(m, X.assign(x="a"))), InputError, "same kind .* column 'x'"),
    (lambda m, e, X: contributions(Inputs(e, X, X["same"]), Inputs(e, X)), InputError, "background_exposure"),
    (lambda m, e, X: contributions(Inputs(m, X), of="variance"), ConfigError, "of must be 'mean' or 'spread'"),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSALS)
def test_bad_arguments_are_refused(formula, frame, call, error, words):
    model, with_exposure = formula(lambda c: c["x"]), formula(lambda c: c["x"], needs_exposure=True)
    with pytest.raises(error, match=words):
        call(model, with_exposure, frame)
