"""Test warnings of `CountRegressor` about a table, in the words of Python; dates become numbers."""

import copy
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ddpn
from ddpn import CountRegressor, DataWarning
from ddpn.workflow.examining import evaluate
from ddpn.workflow.model_folder import load

RNG = np.random.default_rng(0)
ROWS = 200
X, Y = RNG.normal(size=ROWS), RNG.poisson(3.0, ROWS)
WHEN = pd.date_range("2023-01-02", periods=ROWS, freq="D")


def make_glm_regressor() -> CountRegressor:
    return CountRegressor(members=["glm"], random_state=0)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (2 * Y + 1, "is the target times a factor plus a constant. Leave it out of X"),
        (np.arange(ROWS), "identify rows: row numbers. Leave it out of X"),
        ([f"p{row}" for row in range(ROWS)], "like names or ids. Leave it out of X"),
        (np.where(RNG.random(ROWS) < 0.1, -999.0, RNG.normal(size=ROWS)), "Then replace it by NaN"),
    ],
)
def test_columns_that_are_not_what_they_seem_are_reported(column, words):
    with pytest.warns(DataWarning, match=words):
        make_glm_regressor().fit(pd.DataFrame({"x": X, "Unnamed: 0": column}), Y)


def test_a_leak_makes_every_verdict_unusable(tmp_path):
    frame, y = pd.DataFrame({"x": X, "casual": 2 * Y + 1}), Y
    with pytest.warns(DataWarning, match="Column casual is the target times"):
        model = make_glm_regressor().fit(frame, y)
    model.save(tmp_path / "model")
    loaded = CountRegressor.load(tmp_path / "model")
    board = evaluate(load(tmp_path / "model", target="y"), pl.from_pandas(frame.assign(y=y)))
    for fitted in (model, loaded, copy.copy(model)):
        verdict = fitted.verdict(frame, y)
        assert verdict.level == "unusable"
        assert "a column contains the target" in str(verdict)
        assert "Column casual is the target times" in str(verdict)
    assert model.verdict().level == "unusable", "out of fold"
    assert board["verdict"]["level"] == "unusable"
    page = loaded.report(frame, y, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "These scores cannot be trusted" in page
    assert model.fit(frame[["x"]], y).leaks_ == ()
    assert model.verdict().level != "unusable"


def test_warnings_can_be_filtered_by_their_category():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ddpn.DataWarning)
        make_glm_regressor().fit(np.column_stack([X, Y]), Y)


def test_columns_of_arrays_are_selected_by_position():
    store = np.repeat(np.arange(60), 10)
    y = RNG.poisson(np.exp(1 + RNG.normal(0, 0.8, 60)[RNG.permutation(60)][store]))
    table = np.column_stack([RNG.normal(size=600), RNG.permutation(1000)[:60][store]])
    with pytest.warns(DataWarning, match=r"groups=X\[:, 1\], and leave X\[:, 1\] out of X"):
        make_glm_regressor().fit(table, y)
    make_glm_regressor().fit(table, y, groups=table[:, 1])  # without a warning


@pytest.mark.parametrize("kind", ["datetime", "text", "objects", "polars"])
def test_dates_become_numbers_in_fit_and_in_predictions(kind, tmp_path):
    weekend = np.where(WHEN.dayofweek >= 5, 2.0, 0.0)
    y = np.random.default_rng(1).poisson(np.exp(0.5 + weekend))
    dates = {"datetime": WHEN, "text": WHEN.strftime("%Y-%m-%d"), "objects": [day.date() for day in WHEN]}
    frame = pl.DataFrame({"x": X, "when": WHEN.to_numpy()}) if kind == "polars" else None
    frame = pd.DataFrame({"x": X, "when": dates[kind]}) if frame is None else frame
    model = CountRegressor(members=["trees"], random_state=0).fit(frame, y)
    assert list(model.feature_names_in_) == ["x", "when day", "when month", "when weekday"]
    later = pd.DataFrame({"x": [0.0, 0.0], "when": ["2023-08-05", "2023-08-08"]})  # a Saturday and a Tuesday
    saturday, tuesday = model.predict(later)
    assert saturday > 2 * tuesday
    model.save(tmp_path / "model")
    assert (CountRegressor.load(tmp_path / "model").predict(later) == [saturday, tuesday]).all()
    roles = load(tmp_path / "model").roles
    assert [(column.name, column.kind) for column in roles.columns] == [("x", "number"), ("when", "date")]
    assert roles.parse(pl.from_pandas(later)).names == list(model.feature_names_in_)


def test_cells_that_are_no_dates_are_reported():
    text = WHEN.strftime("%Y-%m-%d").to_numpy(dtype=object)
    text[3] = "soon"
    with pytest.warns(DataWarning, match="Column when: 1 of 200 values are not dates"):
        model = make_glm_regressor().fit(pd.DataFrame({"x": X, "when": text}), Y)
    with pytest.warns(DataWarning, match="Column when: 1 of 1 values are not dates"):
        model.predict(pd.DataFrame({"x": [0.0], "when": ["never"]}))


def test_text_that_is_not_dates_stays_text():
    model = make_glm_regressor().fit(pd.DataFrame({"x": X, "ward": np.where(X > 0, "A-1", "B-2")}), Y)
    assert model.feature_kinds_ == ["number", "category"]
