"""Held-out rows: every row has a predictor that was not fitted to it, and a map that was not learnt from it."""

import numpy as np
import pytest
import torch

from ddpn.calibration.held_out import HeldOut
from ddpn.distributions import MonotoneMap, Poisson, Recalibrated
from ddpn.members.folds import Folds
from ddpn.sample import Sample

ROWS = 53


class Means:
    """Predicts Poissons of one mean, in blocks of seven rows."""

    def __init__(self, mean: float) -> None:
        self.mean = mean

    def plain_blocks(self, sample, of):
        for block in sample.blocks(7):
            yield Poisson(torch.full((len(block),), self.mean, dtype=torch.float64)), block


class Copies:
    """Has a copy per fold that predicts the number of the fold plus 1."""

    def of_copies(self, number: int) -> Means:
        return Means(number + 1.0)


@pytest.fixture
def sample() -> Sample:
    """Rows that are known by their labels."""
    place = np.arange(ROWS)
    return Sample(place[:, None].astype(float), place % 5.0, labels=place, interval_groups=place.astype(str))


def test_rows_of_one_predictor_are_divided_into_parts(sample):
    rows = HeldOut.of(Means(2.0), sample, seed=1)
    assert sorted(rows.sample.labels.tolist()) == list(range(ROWS))
    assert (rows.sample.X[:, 0] == rows.sample.labels).all()
    assert (rows.sample.interval_groups == rows.sample.labels.astype(str)).all()
    assert (np.diff(rows.part) >= 0).all()
    assert np.bincount(rows.part).tolist() == [11, 11, 11, 10, 10]
    assert len(rows.predictors) == 5
    other = HeldOut.of(Means(2.0), sample, seed=2)
    assert (other.sample.labels != rows.sample.labels).any()


def test_groups_stay_in_one_part(sample):
    group = np.arange(ROWS) // 4
    rows = HeldOut.of(Means(2.0), sample.replace(group=group), seed=0)
    assert all(len(set(rows.part[rows.sample.group == name])) == 1 for name in set(group))


def test_each_fold_has_its_own_predictor(sample):
    fold = np.arange(ROWS) % 3
    rows = HeldOut.of_folds(Copies(), Folds(sample, None, fold), seed=0)
    seen = []
    for number, dist, block in rows.blocks("mixture"):
        assert (dist.mean == number + 1.0).all()
        assert (fold[block.labels] == number).all()
        seen += block.labels.tolist()
    assert seen == rows.sample.labels.tolist()
    assert sum(len(dist.mean) for dist in rows.distributions("mixture")) == ROWS


def test_some_rows_keep_their_parts(sample):
    fold = np.arange(ROWS) % 3
    rows = HeldOut.of_folds(Copies(), Folds(sample, None, fold), seed=0)
    some = rows.some(10, seed=0)
    assert len(some) == 10
    assert (fold[some.sample.labels] == some.part).all()
    assert all((dist.mean == number + 1.0).all() for number, dist, _ in some.blocks("mixture"))
    assert rows.some(ROWS, seed=0) is rows


def test_every_part_is_recalibrated_with_its_own_map(sample):
    rows = HeldOut.of(Means(2.0), sample, seed=0)
    knots = np.array([0.0, 0.5, 1.0])
    maps = [MonotoneMap.of(knots, np.array([0.0, 0.3 + 0.1 * k, 1.0])) for k in range(5)]
    rows.maps["mixture"] = maps
    plain = Poisson(torch.tensor([2.0], dtype=torch.float64))
    for number, dist, _ in rows.blocks("mixture"):
        wanted = Recalibrated(plain, maps[number]).mean
        assert dist.mean.numpy() == pytest.approx(wanted.item())
    assert all((dist.mean == 2.0).all() for dist in rows.distributions("glm")), "maps are by name"


def test_censored_counts_have_the_distributions_of_what_is_recorded(sample):
    rows = HeldOut.of(Means(2.0), sample.replace(limit=np.full(ROWS, 4.0)), seed=0)
    for dist in rows.distributions("mixture"):
        at = dist.log_prob(torch.tensor(4.0, dtype=torch.float64)).exp()
        wanted = 1.0 - Poisson(torch.tensor(2.0, dtype=torch.float64)).cdf(torch.tensor(3.0)).item()
        assert at.numpy() == pytest.approx(wanted)
