"""What metrics ask of distributions that answer in their own ways."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import stats
from torch.distributions import Exponential, Laplace, Normal

from ddpn import metrics
from ddpn.distributions import Mixture, Poisson
from ddpn.metrics.predictive import cdf_sides, interval, known, mass_between, observed, placed, quantile
from ddpn.runtime.errors import InputError


def test_every_distribution_is_known_and_others_are_named(dist):
    assert known(dist) is dist
    for other in (Laplace(0.0, 1.0), 3.0, "poisson"):
        with pytest.raises(InputError, match=f"got {type(other).__name__}"):
            known(other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_place_of_a_distribution(dtype):
    one = torch.ones(2, dtype=dtype)
    for dist in (Poisson(one), Normal(one, one), Mixture(Normal(one, one)), Mixture(Poisson(one))):
        assert placed(dist) == {"device": torch.device("cpu"), "dtype": dtype}
        assert quantile(dist, 0.5).dtype == dtype
    assert placed(Exponential(one)) == {"device": torch.device("cpu"), "dtype": dtype}


def test_observations_of_every_kind():
    dist = Poisson(torch.ones(2))
    for y in ([1, 2], (1, 2), torch.tensor([1, 2]).numpy(), torch.tensor([1.0, 2.0])):
        assert observed(y, dist).tolist() == [1, 2]
    assert observed(torch.tensor([True, False]), dist).dtype == torch.uint8


@pytest.mark.parametrize("column", [lambda y: pd.Series(y, index=[7, 3, 7]), pl.Series, list, np.array])
def test_every_metric_takes_columns_of_data_frames_by_position(column):
    dist, y, weight = Poisson(torch.tensor([1.0, 4.0, 9.0])), [0, 6, 9], [1.0, 0.0, 2.0]
    for metric in (metrics.crps, metrics.nll, metrics.covered, metrics.absolute_error, metrics.pit_bounds):
        assert torch.equal(torch.stack([*metric(dist, column(y))]), torch.stack([*metric(dist, torch.tensor(y))]))
    given, tensors = (column(y), column(weight)), (torch.tensor(y), torch.tensor(weight))
    for metric in (metrics.evaluate, metrics.pit_distance):
        assert metric(dist, given[0], weight=given[1]) == metric(dist, tensors[0], weight=tensors[1])


def test_a_missing_count_of_a_data_frame_is_named():
    with pytest.raises(InputError, match="y must be finite, got nan at row 1"):
        metrics.crps(Poisson(torch.ones(2)), pl.Series([1, None]))


def test_interval_of_a_normal_is_that_of_scipy():
    low, high = interval(Normal(torch.tensor(3.0, dtype=torch.float64), 2.0), 0.6)
    assert (low.item(), high.item()) == pytest.approx(stats.norm.interval(0.6, 3.0, 2.0), rel=1e-12)


def test_sides_and_masses():
    dist = Poisson(torch.tensor(4.0, dtype=torch.float64))
    below, upto = cdf_sides(dist, torch.tensor([0, 3]))
    assert below.tolist() == pytest.approx(stats.poisson.cdf([-1, 2], 4.0), rel=1e-12)
    assert upto.tolist() == pytest.approx(stats.poisson.cdf([0, 3], 4.0), rel=1e-12)
    mass = mass_between(dist, torch.tensor(2), torch.tensor(5)).item()
    assert mass == pytest.approx(stats.poisson.pmf([2, 3, 4, 5], 4.0).sum(), rel=1e-12)
    line = mass_between(Normal(0.0, 1.0), torch.tensor(-1.0), torch.tensor(1.0)).item()
    assert line == pytest.approx(0.6826895, rel=1e-6)
