"""Test the calibration of a fitted mixture: rows that calibrate a prediction are not what it was learnt from."""

import numpy as np
import pytest
import torch

from ddpn.calibration import calibrate as module
from ddpn.calibration.calibrate import CalibrationOptions, calibrate, fit_calibration, fit_intervals, fit_profile
from ddpn.calibration.intervals import score_blocks
from ddpn.calibration.recalibration import Recalibration
from ddpn.distributions import Censored, Poisson, Recalibrated
from ddpn.members import held_out as held_out_module
from ddpn.members.blending import mix_members
from ddpn.members.constant import Constant
from ddpn.members.folds import Folds, get_fold_copies
from ddpn.members.glm import PoissonGLM
from ddpn.members.member import MemberSpec
from ddpn.pipeline import FittedPipeline, PipelineOptions, calibrate_pipeline
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.count_rows import CountRows
from ddpn.runtime import time_plan
from ddpn.runtime.deadlines import NO_LIMIT, Clock, TimeLimitError
from ddpn.runtime.time_plan import Schedule

WEIGHTS = {"poisson_glm": 0.8, "constant": 0.2}


def simulate_counts(rows: int, seed: int) -> CountRows:
    """Simulate counts that spread more than a Poisson."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    return CountRows(X, rng.negative_binomial(2, 2 / (2 + np.exp(1.5 + 0.5 * X[:, 0]))).astype(float))


def fit_predictor(folds: Folds) -> Predictor:
    kinds = {"poisson_glm": PoissonGLM, "constant": Constant}
    return Predictor({name: folds.fit(MemberSpec(name, kind), seed=0) for name, kind in kinds.items()}, WEIGHTS)


def calibrate_predictor(predictor: Predictor, folds: Folds, clock: Clock = NO_LIMIT) -> int:
    """Calibrate a predictor in place on the held-out rows of `folds`; return the number of rows that were used."""
    fitted = FittedPipeline(predictor, folds, 0, {}, predictor.predict_held_out(folds))
    calibrate_pipeline(fitted, PipelineOptions(), Schedule(clock))
    return len(fitted.held_out)


@pytest.fixture(scope="module")
def five_folds() -> Folds:
    return Folds.from_rows(simulate_counts(600, seed=0), None, seed=0)


@pytest.fixture(scope="module")
def members(five_folds) -> dict:
    """Members that are fitted once: tests make predictors of them."""
    return fit_predictor(five_folds).members


@pytest.fixture
def predictor(members) -> Predictor:
    return Predictor(members, WEIGHTS)


@pytest.fixture(scope="module")
def predictor_after_calibration(five_folds, members) -> Predictor:
    predictor = Predictor(members, WEIGHTS)
    assert calibrate_predictor(predictor, five_folds) == 600
    return predictor


def test_rows_are_predicted_by_the_copies_that_left_them_out(five_folds, predictor):
    held_out = predictor.predict_held_out(five_folds)
    for number, index, dist in held_out.blocks(MIXTURE):
        block = held_out.rows.rows(index)
        copies = [get_fold_copies(member)[number].predict_components(block.X) for member in predictor.members.values()]
        mixture = mix_members(copies, list(WEIGHTS.values()))
        assert torch.equal(dist.mean, mixture.mean)
        assert (block.X == five_folds.held_out[number].X).all()


def test_a_row_has_no_part_in_the_map_of_its_own_prediction(five_folds, predictor):
    """With other counts in one part, its map stays the same to the last bit, and those of other parts change."""
    y = np.where(five_folds.fold_numbers == 3, five_folds.train.y + 7.0, five_folds.train.y)
    changed = Folds(five_folds.train.replace(y=y), None, five_folds.fold_numbers)
    maps, other = (Recalibration.fit(predictor.predict_held_out(folds))[1] for folds in (five_folds, changed))
    same = [torch.equal(one.value, two.value) for one, two in zip(maps, other, strict=True)]
    assert same == [False, False, False, True, False]


def test_intervals_are_calibrated_after_recalibration(five_folds, predictor_after_calibration, predictor):
    assert predictor_after_calibration.calibration.is_recalibrated()
    held_out = predictor.predict_held_out(five_folds)
    _, maps = Recalibration.fit(held_out)
    changed = [(index, Recalibrated(dist, maps[number])) for number, index, dist in held_out.blocks(MIXTURE)]
    scores = score_blocks(changed, held_out.rows.y)
    fitted = fit_calibration(held_out, CalibrationOptions())
    assert len(fitted.calibration.intervals[MIXTURE].scores) > 600  # with those of a right model
    assert np.isin(scores, fitted.calibration.intervals[MIXTURE].scores).all()


def test_members_are_recalibrated_if_the_mixture_is(five_folds, predictor_after_calibration, predictor):
    assert (
        set(predictor_after_calibration.calibration.recalibrations)
        == set(predictor_after_calibration.calibration.intervals)
        == {MIXTURE, *WEIGHTS}
    )
    calibration = calibrate(predictor.predict_held_out(five_folds), CalibrationOptions(recalibrate=False)).calibration
    assert calibration.recalibrations == {}
    assert set(calibration.intervals) == {MIXTURE, *WEIGHTS}


@pytest.mark.parametrize("has_validation", [False, True], ids=["folds", "validation rows"])
def test_new_rows_are_covered_as_asked(five_folds, predictor_after_calibration, has_validation):
    predictor = predictor_after_calibration
    if has_validation:
        folds = Folds.from_rows(simulate_counts(600, seed=0), simulate_counts(600, seed=1), seed=0)
        predictor = fit_predictor(folds)
        assert calibrate_predictor(predictor, folds) == 600
    new = simulate_counts(3000, seed=2)
    for name in (MIXTURE, *WEIGHTS):
        dist = predictor.distribution(new.X, member=name)
        low, high, _ = predictor.wrap(dist, name).interval_with_probability(0.9)
        inside = ((low.numpy() <= new.y) & (new.y <= high.numpy())).mean()
        # Three standard errors of a share of 600 calibration rows; intervals of counts cover rather more.
        assert 0.9 - 3 * np.sqrt(0.09 / 600) < inside < 0.96, name
    flagged = (predictor.calibration.ood_pvalue(new.X) <= 0.05).mean()
    assert flagged == pytest.approx(0.05, abs=0.04)
    assert (predictor.calibration.ood_pvalue(np.full((1, 2), 40.0)) <= 0.05).all()


def test_groups_of_intervals_follow_their_rows():
    """One of two groups spreads far more; folds and parts reorder rows, and labels must follow."""
    rng = np.random.default_rng(3)
    wild = rng.uniform(size=2000) < 0.3
    y = np.where(wild, rng.negative_binomial(1, 1 / 9, 2000), rng.poisson(8.0, 2000)).astype(float)
    labels = np.where(wild, "wild", "calm").astype(object)
    sample = CountRows(rng.normal(size=(2000, 1)), y, interval_groups=labels)
    train, new = sample.rows(slice(0, 1000)), sample.rows(slice(1000, None))
    for folds in (
        Folds.from_rows(train, None, seed=0),
        Folds.from_rows(train.rows(slice(0, 500)), train.rows(slice(500, None)), 0),
    ):
        predictor = Predictor({"constant": folds.fit(MemberSpec("constant", Constant), seed=0)})
        predictor.calibration = calibrate(
            predictor.predict_held_out(folds), CalibrationOptions(groups="shop")
        ).calibration
        low, high = predictor.predict(new.X, groups=new.interval_groups).interval(0.9)
        inside = (low <= new.y) & (new.y <= high)
        # One distribution for both is too wide for the calm group, and too narrow for the wild one.
        assert inside[new.interval_groups == "calm"].mean() > 0.9
        assert inside[new.interval_groups == "wild"].mean() == pytest.approx(0.9, abs=0.06)


def test_calibration_that_ends_early_keeps_the_results_of_fewer_rows(five_folds, predictor, monkeypatch):
    """Fewer rows calibrate first; where all rows take too long, the result of the fewer rows stays."""
    original, result = fit_calibration, []

    def slow(*arguments):
        result.append(original(*arguments))
        if len(result) > 1:
            raise TimeLimitError("the time is up")
        return result[0]

    monkeypatch.setattr(module, "FIRST_ROWS", 100)
    monkeypatch.setattr(time_plan, "FIRST_ROWS", 100)
    monkeypatch.setattr(module, "fit_calibration", slow)
    assert calibrate_predictor(predictor, five_folds, Clock(1e6)) == 100
    assert len(result) == 2
    assert predictor.calibration.intervals == {MIXTURE: result[0].calibration.intervals[MIXTURE]}
    assert predictor.calibration.intervals[MIXTURE].rows.tolist() == [100]
    assert predictor.calibration.ood is not None


# Held-out rows: each is predicted once, by a copy that was not fitted to it, and has a map not learnt from it ---------


def test_copies_are_calibrated_with_the_rows_of_other_folds_which_are_scored_once(five_folds, predictor):
    rows = calibrate(predictor.predict_held_out(five_folds))
    levels = {name: rows.calibration.intervals[name].scores for name in (MIXTURE, *WEIGHTS)}
    for number, part in enumerate(rows.parts):
        others = rows.held_out.part != number
        assert (~others).sum() == (five_folds.fold_numbers == number).sum()
        for name, all_levels in levels.items():
            assert part.intervals[name].rows.tolist() == [others.sum()]
            assert part.is_recalibrated(name) == rows.calibration.is_recalibrated(name)
            assert len(part.intervals[name].scores) < len(all_levels)
            # Scores are random points of the steps at which counts enter: those of all rows together.
            assert np.isin(part.intervals[name].scores, all_levels).all()


class CountingGLM(PoissonGLM):
    """A GLM that counts how often rows are predicted, by the numbers in their last column."""

    def distribution(self, X, exposure=None):
        np.add.at(self.times, X[:, -1].astype(int), 1)
        return super().distribution(X[:, :-1], exposure)

    @classmethod
    def fit(cls, train, validation, seed, clock=None):
        return super().fit(train.replace(X=train.X[:, :-1]), None, seed)


@pytest.mark.parametrize("is_crossed", [True, False])
def test_a_row_is_predicted_once_by_each_member_however_rows_are_drawn(monkeypatch, is_crossed):
    monkeypatch.setattr(held_out_module, "BLOCK", 64)
    sample = simulate_counts(300, seed=4)
    sample = sample.replace(X=np.column_stack([sample.X, np.arange(300)]))
    folds = Folds.from_rows(sample, None, seed=0) if is_crossed else Folds(sample, sample)
    members = {name: folds.fit(MemberSpec(name, CountingGLM), seed=0) for name in ("one", "two")}
    for member in members.values():
        times = np.zeros(300, dtype=int)
        for copy in get_fold_copies(member):
            copy.times = times
    predictor = Predictor(members)
    held_out, whole = predictor.predict_held_out(folds), predictor.predict_held_out(folds)
    drawn = held_out.draw(40)
    assert {len(list(part.blocks())) > 0 for part in (drawn, held_out.draw(120), held_out.take(np.arange(7)))} == {True}
    assert set(drawn.source) <= set(held_out.draw(120).source)
    calibrate(held_out)
    assert [get_fold_copies(member)[0].times.tolist() for member in members.values()] == [[1] * 300] * 2
    means = np.zeros((2, 300))
    for number_of_draw, rows in enumerate((held_out, whole)):
        for number, index, dist in rows.blocks():
            means[number_of_draw, rows.source[index]] = dist.mean
            assert (rows.part[index] == number).all()
    assert means[0] == pytest.approx(means[1], rel=1e-12)


class ConstantMean(Constant):
    """A member that predicts Poissons of a mean of 2."""

    def __init__(self) -> None:
        """Make the member, which needs no fit."""

    def distribution(self, X, exposure=None):
        return Poisson(torch.full((len(X), 1), 2.0, dtype=torch.float64))


def test_validation_rows_of_weight_0_do_not_count_in_flags():
    rng = np.random.default_rng(2)
    train, validation = (CountRows(rng.normal(size=(rows, 2)), rng.poisson(2.0, rows)) for rows in (400, 300))
    is_odd = np.arange(300) >= 200
    with_odd = validation.replace(X=np.where(is_odd[:, None], 50.0, validation.X), weight=np.where(is_odd, 0.0, 1.0))
    calibrations = [fit_profile(Folds(train, rows)) for rows in (with_odd, validation.rows(~is_odd))]
    pvalues = [calibration.ood_pvalue([[0.0, 0.0], [6.0, 6.0], [50.0, 50.0]]) for calibration in calibrations]
    np.testing.assert_array_equal(*pvalues)
    assert pvalues[0][1] < 0.01


def test_censored_counts_are_calibrated_by_the_distributions_of_records():
    sample = CountRows(np.zeros((53, 1)), np.arange(53) % 5.0, limit=np.full(53, 4.0))
    predictor = Predictor({"means": ConstantMean()})
    held_out = predictor.predict_held_out(sample)
    calibration = fit_intervals(predictor.calibration, held_out)
    recorded = Censored(Poisson(torch.full((53,), 2.0, dtype=torch.float64)), 4.0)
    scores = score_blocks([(slice(None), recorded)], held_out.rows.y)
    assert calibration.is_censored
    assert calibration.intervals[MIXTURE].scores == pytest.approx(np.sort(scores))
