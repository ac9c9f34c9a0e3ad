"""Lookups in sums of weights, against products with all inputs."""

import numpy as np
import pytest

from ddpn.features import FeatureEncoder
from ddpn.features.cross_fitted import has_effects
from ddpn.features.kinds import read_as_fitted
from ddpn.features.lookups import LookupPlan

ROWS = 400


def frame(rng: np.random.Generator, rows: int) -> list[list[object]]:
    number = rng.normal(size=rows)
    number[::9] = np.nan
    far = rng.standard_t(2, rows) * 50.0
    columns = (number, far, rng.integers(0, 12, rows), rng.choice(["A", "B", "C", "D"], rows), rng.random(rows) < 0.5)
    texts = [None if i % 17 == 0 else value for i, value in enumerate(columns[3])]
    return [list(row) for row in zip(columns[0], columns[1], columns[2], texts, columns[4].tolist(), strict=True)]


@pytest.mark.parametrize("numeric", ["piecewise", "steps", "standard"])
@pytest.mark.parametrize("categorical", ["one-hot", "effects"])
def test_lookups_give_the_products_of_all_inputs(numeric, categorical):
    rng = np.random.default_rng(2)
    X = frame(rng, ROWS)
    y = rng.poisson(3.0, ROWS) + 4 * np.array([row[3] == "B" for row in X])
    encoder = FeatureEncoder(numeric=numeric, categorical=categorical).fit(X, y)
    assert has_effects(encoder) == (categorical == "effects")
    new = frame(rng, 150)
    new[0][3], new[1][0], new[2][1], new[3][2] = "unseen", 1e9, -1e300, 77
    plan = LookupPlan(encoder.columns_, encoder.limit)
    inputs = encoder.transform(new).astype(np.float64)
    assert plan.inputs == inputs.shape[1]
    weight, bias = rng.normal(size=(plan.inputs, 3)), rng.normal(size=3)
    own, sums = plan.sums(weight, bias)
    table = read_as_fitted(encoder, new)
    for rows in (slice(0, 150), slice(40, 90)):
        values, places, shares = plan.of(table, rows)
        found = values @ own + np.einsum("rm,rmh->rh", shares, sums[places])
        np.testing.assert_allclose(found, inputs[rows] @ weight + bias, rtol=1e-12, atol=1e-12)
