"""The table of predictions against the distributions that it is made of."""

import numpy as np
import polars as pl
import pytest
import torch

from ddpn.distributions import discretized
from ddpn.members.constant import Constant
from ddpn.predictor import Predictor
from ddpn.sample import RowError, Sample, rows_named
from ddpn.workflow.prediction import COUNTS, NUMBERS, predict_rows, prediction_table
from ddpn.workflow.prediction_request import Request


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    """A constant distribution of counts per unit of exposure."""
    rng = np.random.default_rng(0)
    sample = Sample(np.zeros((300, 1)), rng.negative_binomial(3, 0.3, 300).astype(float), exposure=np.ones(300))
    return Predictor({"constant": Constant().fit(sample, None, seed=0)}, needs_exposure=True)


def test_columns_are_those_of_the_distribution(predictor):
    exposure, X = np.array([0.5, 1.0, 40.0]), np.zeros((3, 1))
    found = prediction_table(predictor, X, Request(coverage=0.8, quantiles=(0.1, 0.99), pmf=2), exposure)
    assert list(found) == [
        "mean", "median", "mode", "lower", "upper", "aleatoric", "epistemic", "stddev",
        "q0.1", "q0.99", "p0", "p1", "p2",
    ]  # fmt: skip
    assert {name for name, values in found.items() if values.dtype == np.int64} == {*COUNTS, "q0.1", "q0.99"}
    assert {*COUNTS, *NUMBERS} <= set(found)
    dist = discretized(predictor.distribution(X, exposure))
    pmf = dist.log_prob(torch.arange(20_000.0, dtype=torch.float64)[:, None]).exp().numpy()
    cdf, counts = pmf.cumsum(0), np.arange(20_000.0)
    np.testing.assert_allclose(found["mean"], counts @ pmf, rtol=1e-8)
    np.testing.assert_allclose(found["stddev"] ** 2, counts**2 @ pmf - (counts @ pmf) ** 2, rtol=1e-6)
    np.testing.assert_array_equal(found["mode"], pmf.argmax(0))
    for name, level in {"median": 0.5, "lower": 0.1, "upper": 0.9, "q0.1": 0.1, "q0.99": 0.99}.items():
        np.testing.assert_array_equal(found[name], (cdf < level).sum(0), err_msg=name)
    np.testing.assert_allclose([found[f"p{count}"] for count in range(3)], pmf[:3], rtol=1e-10)


def test_a_part_of_the_rows_has_the_same_table(predictor):
    exposure, request = np.linspace(0.1, 9.0, 7), Request(quantiles=(0.3,))
    whole = predict_rows(predictor, np.zeros((7, 1)), exposure)
    part, all_rows = whole.rows(slice(2, 5)).table(request), whole.table(request)
    for name, values in part.items():
        np.testing.assert_array_equal(values, all_rows[name][2:5], err_msg=name)


@pytest.mark.parametrize("exposure", [1e16, 1e100, 1.7e308])
def test_a_count_that_no_float_can_hold_is_refused_with_its_row(predictor, exposure):
    with pytest.raises(RowError) as caught, rows_named(np.array([11, 12, 13])):
        prediction_table(predictor, np.zeros((3, 1)), Request(), np.array([1.0, exposure, 2.0]))
    assert caught.value.bad.tolist() == [False, True, False]
    assert "row 12" in str(caught.value)


def test_reasons_show_days_as_dates():
    from ddpn.calibration.profile import FeatureProfile

    days = pl.DataFrame({"seen day": np.arange(19_000.0, 19_400.0)})
    sample = Sample(days, np.ones(400))
    model = Predictor({"constant": Constant().fit(sample, None, seed=0)})
    model.profile = FeatureProfile.fit(days)
    late = pl.DataFrame({"seen day": [20_000.0]})
    assert model.ood_reasons(late, days={"seen day"}) == [
        ["'seen day' above the training range: 2024-10-04 > 2023-02-11"]
    ]
    assert model.ood_reasons(late) == [["'seen day' above the training range: 20000 > 19399"]]
