"""`CountRegressor`: the model of `ddpn fit` in Python."""

import numpy as np
import pytest

from ddpn import CountRegressor
from ddpn.members.glm import GLM
from ddpn.runtime.errors import ConfigError, InputError


@pytest.fixture(scope="module")
def line() -> tuple[np.ndarray, np.ndarray]:
    """300 rows whose log mean is a line: nothing that networks could add."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3))
    return X, rng.poisson(np.exp(0.5 + 0.6 * X[:, 0])).astype(float)


def test_the_default_model_says_what_it_is_fitted_without(line, monkeypatch):
    monkeypatch.setattr(GLM, "max_columns", 2)
    words = "^The mixture is fitted without GLM: 3 inputs, more than the 2"
    with pytest.warns(UserWarning, match=words) as caught:
        model = CountRegressor(members=["glm", "constant"], random_state=0).fit(*line)
    assert caught[0].filename == __file__, "the warning should point to the user's call of fit"
    assert model.predictor_.weights == {"constant": 1.0}
    assert list(model.left_out_) == ["glm"]
    assert not hasattr(model, "history_"), "it has no networks"


@pytest.mark.parametrize(
    ("rows", "groups", "words"),
    [(1, None, "two different rows"), (20, None, "two different rows"), (20, "a", "groups must have at least two")],
    ids=["one row", "equal rows", "one group"],
)
def test_rows_that_cannot_be_divided_are_refused(rows, groups, words):
    X = np.zeros((rows, 1)) if groups is None else np.arange(rows).reshape(-1, 1)
    given = {} if groups is None else {"groups": [groups] * rows}
    with pytest.raises(InputError, match=words):
        CountRegressor(random_state=0).fit(X, np.full(rows, 3), **given)


@pytest.mark.filterwarnings("ignore:The mixture is fitted without")
def test_two_rows_are_enough_to_predict():
    model = CountRegressor(random_state=0).fit([[0.0], [1.0]], [3, 5])
    assert 1.0 < model.predict([[0.0]])[0] < 10.0


@pytest.mark.parametrize("members", [5, "all", ["tree"], {"glm"}], ids=str)
def test_members_are_names(members):
    with pytest.raises(ConfigError, match="members"):
        CountRegressor(members=members).fit([[0.0], [1.0]], [3, 5])
