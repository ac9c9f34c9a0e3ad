"""What every score of a distribution and an observation has in common: one value per row, and what it refuses."""

import math

import pytest
import torch
from torch.distributions import Laplace, Normal

from ddpn.distributions import Mixture, Poisson
from ddpn.metrics import (
    absolute_error,
    covered,
    crps,
    dawid_sebastiani,
    evaluate,
    nll,
    pit,
    pit_bounds,
    pit_histogram,
    ranked_probability,
    squared_error,
)
from ddpn.runtime.errors import InputError

ONE_VALUE = (crps, nll, ranked_probability, dawid_sebastiani, absolute_error, squared_error, covered, pit)
#: Those that refuse a value which is no count, if the distribution is one of counts.
OF_COUNTS = (crps, nll, ranked_probability, pit, pit_bounds, pit_histogram, evaluate)
ALL = tuple(dict.fromkeys((*ONE_VALUE, *OF_COUNTS)))
named = {"ids": lambda score: score.__name__}


@pytest.mark.parametrize("score", [s for s in ONE_VALUE if s is not pit], **named)  # which draws at random
def test_one_value_per_row(dist, y, score):
    """Never reduced: the shape is that of y and the batch together."""
    each, table = score(dist, y), score(dist, y.double().unsqueeze(-1))
    assert (each.shape, table.shape) == ((3,), (3, 3))
    torch.testing.assert_close(table.diagonal(), each, rtol=1e-12, atol=0)
    assert score(dist, torch.tensor(2)).shape == (3,)


@pytest.mark.parametrize("score", ONE_VALUE, **named)
@pytest.mark.parametrize("one", [Poisson(2.0), Normal(2.0, 1.0), Mixture(Poisson(torch.ones(2)))], ids=type)
def test_scalar_distributions_give_scalars(one, score):
    assert score(one, torch.tensor(2.0)).shape == ()


@pytest.mark.parametrize("score", ALL, **named)
def test_bad_observations_are_refused(dist, score):
    for y, message in (
        (torch.zeros(4), r"shapes must broadcast, got y \(4,\) and dist \(3,\)"),
        (torch.tensor([1.0, math.nan, 2.0]), "y must be finite, got nan at row 1"),
        (torch.tensor([1.0, 2.0, -math.inf]), "y must be finite, got -inf at row 2"),
    ):
        with pytest.raises(InputError, match=message):
            score(dist, y)


@pytest.mark.parametrize("score", OF_COUNTS, **named)
def test_what_is_no_count_is_refused(count_dist, score):
    for bad in (-1.0, 0.5):
        with pytest.raises(InputError, match="y must hold non-negative integers"):
            score(count_dist, torch.tensor([1.0, 2.0, bad]))


@pytest.mark.parametrize("score", ALL, **named)
def test_what_is_no_distribution_is_refused(score):
    with pytest.raises(InputError, match="got float"):
        score(3.0, torch.tensor([1]))
    if score is not nll:  # which takes any distribution of torch
        with pytest.raises(InputError, match="got Laplace"):
            score(Laplace(0.0, 1.0), torch.tensor([1]))
