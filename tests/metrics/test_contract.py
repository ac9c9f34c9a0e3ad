"""Test what all scores of a distribution and an observation have in common: one value per row, and refusals."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch.distributions import Laplace, Normal

from ddpn.distributions import Mixture, Poisson
from ddpn.metrics import (
    absolute_error,
    aupr,
    auroc,
    coverage_curve,
    crps,
    evaluate,
    expected_coverage,
    fpr80,
    is_covered,
    median_precision,
    nll,
    ood_score,
    pit_bounds,
    pit_distance,
    pit_histogram,
    point,
)
from ddpn.runtime.errors import ConfigError, InputError

ONE_VALUE = (crps, nll, absolute_error, is_covered)
#: Scores that refuse a value which is no count, if the distribution is one of counts.
OF_COUNTS = (crps, nll, pit_bounds, pit_histogram, evaluate)
ALL = tuple(dict.fromkeys((*ONE_VALUE, *OF_COUNTS)))
named = {"ids": lambda score: score.__name__}


@pytest.mark.parametrize("score", ONE_VALUE, **named)
def test_a_score_has_one_value_per_row(dist, y, score):
    """Scores are never reduced: their shape is that of y and the batch together."""
    row_scores, table = score(dist, y), score(dist, y.double().unsqueeze(-1))
    assert (row_scores.shape, table.shape) == ((3,), (3, 3))
    torch.testing.assert_close(table.diagonal(), row_scores, rtol=1e-12, atol=0)
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
def test_observations_that_are_no_counts_are_refused(count_dist, score):
    for bad in (-1.0, 0.5):
        with pytest.raises(InputError, match="y must hold non-negative integers"):
            score(count_dist, torch.tensor([1.0, 2.0, bad]))


@pytest.mark.parametrize("score", ALL, **named)
def test_objects_that_are_no_distribution_are_refused(score):
    with pytest.raises(InputError, match="got float"):
        score(3.0, torch.tensor([1]))
    if score is not nll:  # which takes any distribution of torch
        with pytest.raises(InputError, match="got Laplace"):
            score(Laplace(0.0, 1.0), torch.tensor([1]))


@pytest.mark.parametrize("column", [lambda y: pd.Series(y, index=[7, 3, 7]), pl.Series, list, np.array])
def test_columns_of_data_frames_are_read_by_position(column):
    dist, y, weight = Poisson(torch.tensor([1.0, 4.0, 9.0])), [0, 6, 9], [1.0, 0.0, 2.0]
    for metric in (crps, nll, is_covered, absolute_error, pit_bounds):
        assert torch.equal(torch.stack([*metric(dist, column(y))]), torch.stack([*metric(dist, torch.tensor(y))]))
    columns, tensors = (column(y), column(weight)), (torch.tensor(y), torch.tensor(weight))
    for metric in (evaluate, pit_distance):
        assert metric(dist, columns[0], weight=columns[1]) == metric(dist, tensors[0], weight=tensors[1])
    for metric in (auroc, aupr, fpr80):
        assert metric(column([0.1, 0.2, 0.4]), [0.3, 0.9]) == metric([0.1, 0.2, 0.4], [0.3, 0.9])


ONE, THREE, Y = Poisson(torch.tensor([2.0])), Poisson(torch.ones(3)), torch.tensor([1, 2, 3])
EMPTY = Poisson(torch.ones(0)), torch.ones(0)
REFUSALS = {
    "no rows": (lambda: evaluate(*EMPTY), "y"),
    "no rows for a histogram": (lambda: pit_histogram(*EMPTY), "y"),
    "no rows for a median": (lambda: median_precision(EMPTY[0]), "y"),
    "weights of another shape": (lambda: pit_distance(THREE, Y, [1.0, 1.0]), "weight"),
    "a negative weight": (lambda: coverage_curve(THREE, Y, [0.5], weight=[1.0, -1.0, 1.0]), "weight"),
    "weights of 0": (lambda: evaluate(THREE, Y, weight=[0.0] * 3), "weight"),
    "no whole number of bins": (lambda: pit_histogram(THREE, Y, 2.5), "bins"),
    "a level of 1": (lambda: coverage_curve(THREE, Y, [0.5, 1.0]), "coverage"),
    "a percentage": (lambda: evaluate(THREE, Y, coverage=90), "coverage"),
    "a percentage of a Normal": (lambda: expected_coverage(Normal(3.0, 1.0), 90), "coverage"),
    "a strange point": (lambda: point(ONE, "middle"), "statistic"),
    "a point of something else": (lambda: point(Laplace(0.0, 1.0), "mean"), "dist"),
    "a strange statistic": (lambda: evaluate(THREE, Y, statistic="average"), "statistic"),
    "a strange score": (lambda: ood_score(ONE, "surprise"), "kind"),
    "disagreement of one": (lambda: ood_score(ONE, "epistemic"), "dist"),
    "disagreement of a mixture of one": (lambda: ood_score(Mixture(ONE), "mutual_information"), "dist"),
    "scores of nothing": (lambda: auroc([], [1.0]), "score_in"),
    "no number among scores": (lambda: fpr80([1.0], [math.nan]), "score_out"),
    "words as scores": (lambda: aupr(["a", "b"], [1.0]), "score_in"),
    "a count that is missing": (lambda: crps(THREE, pl.Series([1, None, 2])), "y"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_arguments_are_named(case):
    call, argument = REFUSALS[case]
    with pytest.raises((InputError, ConfigError)) as error:
        call()
    assert str(error.value).startswith(f"{argument} must")
