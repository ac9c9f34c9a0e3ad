"""Calibration of a fitted mixture: rows that calibrate a prediction are not what it was learnt from."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ddpn.calibration import calibrate as module
from ddpn.calibration.calibrate import CalibrationOptions, HeldOut, calibrate
from ddpn.calibration.intervals import score_blocks
from ddpn.calibration.recalibration import Recalibration
from ddpn.distributions import Poisson, Recalibrated
from ddpn.members.blending import mix_members
from ddpn.members.folds import Folds, copies_of
from ddpn.members.glm import Constant, PoissonGLM
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.count_rows import CountRows
from ddpn.runtime import time_plan
from ddpn.runtime.deadlines import Clock, TimeLimitError

WEIGHTS = {"poisson_glm": 0.8, "constant": 0.2}


def counts(rows: int, seed: int) -> CountRows:
    """Counts that spread more than a Poisson."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    return CountRows(X, rng.negative_binomial(2, 2 / (2 + np.exp(1.5 + 0.5 * X[:, 0]))).astype(float))


def fitted(folds: Folds) -> Predictor:
    kinds = {"poisson_glm": PoissonGLM, "constant": Constant}
    return Predictor({name: folds.fit(kind(), seed=0) for name, kind in kinds.items()}, WEIGHTS)


@pytest.fixture(scope="module")
def crossed() -> Folds:
    return Folds.of(counts(600, seed=0), None, seed=0)


@pytest.fixture(scope="module")
def members(crossed) -> dict:
    """Fitted once: each test makes a predictor of them."""
    return fitted(crossed).members


@pytest.fixture
def predictor(members) -> Predictor:
    return Predictor(members, WEIGHTS)


@pytest.fixture(scope="module")
def calibrated(crossed, members) -> Predictor:
    predictor = Predictor(members, WEIGHTS)
    assert len(calibrate(predictor, crossed, seed=0)) == 600
    return predictor


def test_rows_are_predicted_by_the_copies_that_left_them_out(crossed, predictor):
    rows = HeldOut.of_folds(predictor, crossed, seed=0)
    for number, dist, block in rows.blocks(MIXTURE):
        copies = [copies_of(member)[number].parts(block.X) for member in predictor.members.values()]
        own = mix_members(copies, list(WEIGHTS.values()))
        assert torch.equal(dist.mean, own.mean)
        values = np.column_stack([column.values for column in block.X])
        assert (values == crossed.held_out[number].X).all()


def test_a_row_has_no_part_in_the_map_of_its_own_prediction(crossed, predictor):
    """With other counts in one part, its map stays the same to the last bit, and those of other parts change."""
    rows = HeldOut.of_folds(predictor, crossed, seed=0)
    changed = HeldOut.of_folds(predictor, crossed, seed=0)
    own = changed.part == 3
    changed.sample = changed.sample.replace(y=np.where(own, changed.sample.y + 7.0, changed.sample.y))
    maps, other = (Recalibration.fit(each, MIXTURE)[1] for each in (rows, changed))
    same = [torch.equal(one.value, two.value) for one, two in zip(maps, other, strict=True)]
    assert same == [False, False, False, True, False]


def test_intervals_are_calibrated_with_those_maps(crossed, calibrated, predictor):
    assert calibrated.calibration.is_recalibrated()
    rows = HeldOut.of_folds(predictor, crossed, seed=0)
    _, maps = Recalibration.fit(rows, MIXTURE)
    changed = [Recalibrated(dist, maps[number]) for number, dist, _ in rows.blocks(MIXTURE)]
    scores = score_blocks(changed, rows.sample.y)
    predictor.recalibrate(rows)
    predictor.calibrate_intervals(rows)
    assert predictor.calibration.intervals[MIXTURE].scores == pytest.approx(np.sort(scores))


def test_members_are_recalibrated_where_the_mixture_is(crossed, calibrated, predictor):
    assert set(calibrated.calibration.recalibrations) == set(calibrated.calibration.intervals) == {MIXTURE, *WEIGHTS}
    calibrate(predictor, crossed, seed=0, wanted=CalibrationOptions(recalibrate=False))
    assert predictor.calibration.recalibrations == {}
    assert set(predictor.calibration.intervals) == {MIXTURE, *WEIGHTS}


@pytest.mark.parametrize("has_validation", [False, True], ids=["folds", "validation rows"])
def test_new_rows_are_covered_as_asked(crossed, calibrated, has_validation):
    predictor = calibrated
    if has_validation:
        folds = Folds.of(counts(600, seed=0), counts(600, seed=1), seed=0)
        predictor = fitted(folds)
        assert len(calibrate(predictor, folds, seed=0)) == 600
    new = counts(3000, seed=2)
    for name in (MIXTURE, *WEIGHTS):
        dist = predictor.distribution(new.X, of=name)
        low, high, _ = predictor.wrap(dist, name).interval_with_probability(0.9)
        inside = ((low.numpy() <= new.y) & (new.y <= high.numpy())).mean()
        # Three standard errors of a share of 600 calibration rows; intervals of counts cover rather more.
        assert 0.9 - 3 * np.sqrt(0.09 / 600) < inside < 0.96, name
    flagged = (predictor.calibration.ood_pvalue(new.X) <= 0.05).mean()
    assert flagged == pytest.approx(0.05, abs=0.04)
    assert (predictor.calibration.ood_pvalue(np.full((1, 2), 40.0)) <= 0.05).all()


def test_groups_of_intervals_follow_their_rows():
    """One of two groups spreads far more; folds and parts reorder rows, and labels must go with them."""
    rng = np.random.default_rng(3)
    wild = rng.uniform(size=2000) < 0.3
    y = np.where(wild, rng.negative_binomial(1, 1 / 9, 2000), rng.poisson(8.0, 2000)).astype(float)
    labels = np.where(wild, "wild", "calm").astype(object)
    sample = CountRows(rng.normal(size=(2000, 1)), y, interval_groups=labels)
    train, new = sample.rows(slice(0, 1000)), sample.rows(slice(1000, None))
    for folds in (Folds.of(train, None, seed=0), Folds.of(train.rows(slice(0, 500)), train.rows(slice(500, None)), 0)):
        predictor = Predictor({"constant": folds.fit(Constant(), seed=0)})
        calibrate(predictor, folds, seed=0, wanted=CalibrationOptions(groups="shop"))
        low, high = predictor.predict(new.X, groups=new.interval_groups).interval(0.9)
        inside = (low <= new.y) & (new.y <= high)
        # One distribution for both is too wide for the calm group, and too narrow for the wild one.
        assert inside[new.interval_groups == "calm"].mean() > 0.9
        assert inside[new.interval_groups == "wild"].mean() == pytest.approx(0.9, abs=0.06)


def test_calibration_that_ends_early_leaves_what_there_was(crossed, predictor, monkeypatch):
    """Some rows are calibrated with first; where all of them take too long, what some found stays."""
    original, found = predictor.calibrate_intervals, []

    def slow(*arguments):
        original(*arguments)
        found.append(predictor.calibration.intervals[MIXTURE])
        if len(found) > 1:
            raise TimeLimitError("the time is up")

    monkeypatch.setattr(module, "FEWEST_ROWS", 100)
    monkeypatch.setattr(time_plan, "FEWEST_ROWS", 100)
    monkeypatch.setattr(predictor, "calibrate_intervals", slow)
    assert len(calibrate(predictor, crossed, seed=0, clock=Clock(1e6))) == 100
    assert len(found) == 2
    assert predictor.calibration.intervals == {MIXTURE: found[0]}
    assert found[0].rows.tolist() == [100]
    assert predictor.calibration.ood is not None


# Held-out rows: each has a predictor that was not fitted to it, and a map that was not learnt from it -----------------

ROWS = 53


class Means:
    """Predicts Poissons of one mean, in blocks of seven rows."""

    def __init__(self, mean: float) -> None:
        self.mean = mean

    def plain_blocks(self, sample, of):
        for block in sample.blocks(7):
            yield Poisson(torch.full((len(block),), self.mean, dtype=torch.float64)), block


@pytest.fixture
def sample() -> CountRows:
    """Rows that are known by their labels."""
    place = np.arange(ROWS)
    return CountRows(place[:, None].astype(float), place % 5.0, labels=place, interval_groups=place.astype(str))


def test_censored_counts_have_the_distributions_of_what_is_recorded(sample):
    rows = HeldOut.of(Means(2.0), sample.replace(limit=np.full(ROWS, 4.0)), seed=0)
    for dist in rows.distributions("mixture"):
        at = dist.log_prob(torch.tensor(4.0, dtype=torch.float64)).exp()
        wanted = 1.0 - Poisson(torch.tensor(2.0, dtype=torch.float64)).cdf(torch.tensor(3.0)).item()
        assert at.numpy() == pytest.approx(wanted)


def test_copies_are_calibrated_with_the_rows_of_other_folds_which_are_measured_once(crossed, predictor):
    rows = calibrate(predictor, crossed, seed=0)
    levels = {name: predictor.calibration.intervals[name].scores for name in (MIXTURE, *WEIGHTS)}
    for number, (copies, sample) in enumerate(rows.pairs()):
        assert len(sample) == (crossed.number == number).sum()
        for name, all_levels in levels.items():
            assert copies.calibration.intervals[name].rows.tolist() == [600 - len(sample)]
            assert copies.calibration.is_recalibrated(name) == predictor.calibration.is_recalibrated(name)
            assert len(copies.calibration.intervals[name].scores) < len(all_levels)
        others = rows.part != number
        apart = HeldOut(rows.sample.rows(others), rows.predictors, rows.part[others])
        apart.maps = rows.maps
        fresh = Predictor(copies.members, copies.weights)
        fresh.calibration = replace(fresh.calibration, recalibrations=copies.calibration.recalibrations)
        fresh.calibrate_intervals(apart)
        copies.calibrate_intervals(rows.without(number))
        # Scores are random points of the steps at which counts enter: those of all rows together, or others.
        assert np.isin(copies.calibration.intervals[MIXTURE].scores, levels[MIXTURE]).all()
        assert len(copies.calibration.intervals[MIXTURE].scores) == others.sum()
        one, other = (each.calibration.intervals[MIXTURE].scores for each in (fresh, copies))
        assert one == pytest.approx(other, abs=0.15)
