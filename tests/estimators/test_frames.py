"""Tables of results are data frames of the library that the user's table is from, and of polars for arrays."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ddpn import CountGLM, CountRegressor
from ddpn.analysis.explanations import Inputs, contributions, explain
from ddpn.runtime.errors import InputError

RNG = np.random.default_rng(0)
COLUMNS = {"age": RNG.uniform(0.0, 1.0, 300), "visits": RNG.poisson(3.0, 300).astype(float)}
Y = RNG.poisson(np.exp(0.5 + COLUMNS["age"]))
TABLES = {
    "pandas": (pd.DataFrame(COLUMNS), pd.DataFrame),
    "polars": (pl.DataFrame(COLUMNS), pl.DataFrame),
    "array": (np.column_stack(list(COLUMNS.values())), pl.DataFrame),
}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", params=TABLES)
def case(request):
    X, frame = TABLES[request.param]
    return CountGLM("poisson").fit(X, Y), X, frame


def test_predictions_scores_and_explanations_follow_the_table(case):
    model, X, frame = case
    explanation = explain(model, X, Y)
    results = {
        "prediction": model.predict_distribution(X),
        "leaderboard": model.leaderboard(X, Y),
        "coefficients": model.coefficient_table(),
        "explanation": explanation,
        "effects": explanation.effects,
        "importance": explanation.importance,
        "contributions": contributions(Inputs(model, X[:2])),
    }
    assert {name: type(result.to_frame()) for name, result in results.items()} == dict.fromkeys(results, frame)


def test_coefficients_of_a_loaded_model_follow_the_table_of_fit(case, tmp_path):
    model, _, frame = case
    model.save(tmp_path / "model")
    again = CountGLM.load(tmp_path / "model").coefficient_table().to_frame()
    assert isinstance(again, frame)
    np.testing.assert_array_equal(again["estimate"], model.coefficient_table().estimate)


def test_out_of_fold_scores_follow_the_table_of_fit(case):
    _, X, frame = case
    model = CountRegressor(members=["glm"], random_state=0).fit(X, Y)
    assert isinstance(model.leaderboard().to_frame(), frame)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ({"age": 0.5, "visits": 2.0}, r"got a dict\. Pass pandas\.DataFrame\(\[X\]\) instead\."),
        ({"age": [0.5], "visits": [2.0]}, r"got a dict\. Pass pandas\.DataFrame\(X\) instead\."),
        ([{"age": 0.5, "visits": 2.0}], r"got a list of dicts\. Pass pandas\.DataFrame\(X\) instead\."),
    ],
)
def test_dicts_are_refused_with_the_frame_to_make_of_them(case, X, words):
    model, _, _ = case
    for call in (model.predict, model.predict_distribution, model.predict_interval):
        with pytest.raises(InputError, match=words):
            call(X)
    with pytest.raises(InputError, match=words):
        CountGLM("poisson").fit(X, Y)
