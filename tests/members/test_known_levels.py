"""Levels that fitted members know by name, also those of single copies."""

import numpy as np
import pandas as pd
import pytest

from ddpn import CountRegressor
from ddpn.members.folds import CrossFitted, known_levels


@pytest.mark.parametrize("member", ["glm", "trees"])
def test_levels_are_those_of_all_copies_of_a_cross_fitted_member(member):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"ward": rng.choice(["A", "B"], 200), "age": rng.uniform(20, 80, 200)})
    rows.loc[7, "ward"] = "Z"  # most copies have it, and one has not
    model = CountRegressor(members=[member], random_state=0).fit(rows, rng.poisson(3.0, 200))
    fitted = model.predictor_.mixed
    assert isinstance(fitted[member], CrossFitted)
    ward, age = known_levels(fitted.values(), 2)
    assert (set(ward), age) == ({"A", "B", "Z"}, ())
