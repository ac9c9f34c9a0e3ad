"""A table that is read already: members take it as they take a data frame."""

import numpy as np
import polars as pl
import pytest

from ddpn import DDPNRegressor
from ddpn.tables.encoding.table import PreparedTable, read_table


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    age = [None if rng.random() < 0.1 else float(v) for v in rng.normal(50, 9, 90)]
    columns = {"age": age, "ward": rng.choice(["A", "B"], 90), "urgent": rng.random(90) < 0.5}
    return pl.DataFrame(columns)


def test_predictions_are_those_of_the_data_frame(frame):
    counts = np.random.default_rng(1).poisson(np.where(frame["ward"] == "A", 9.0, 2.0))
    options = {"members": 2, "hidden": (8,), "numeric": "standard", "epochs": 2, "device": "cpu"}
    model = DDPNRegressor(**options, mix_with=("glm", "trees"), random_state=0).fit(frame, counts)
    prepared = PreparedTable(read_table(model, frame, reset=False))
    assert prepared.shape == (90, 3)
    found, expected = (model.predictor_.distribution(X).mean for X in (prepared, frame))
    assert found.tolist() == expected.tolist()
    some = prepared.rows(np.array([3, 1]))
    assert model.predictor_.distribution(some).mean.tolist() == pytest.approx(expected[[3, 1]].tolist())
