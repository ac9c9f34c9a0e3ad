"""Test weights, exposures and groups in every step from an encoding to a verdict.

A weight equals a row given as often, rates are per exposure, and nothing that scores a group has seen its counts.
tests/members/test_contract.py tests the members.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest
import torch

from ddpn.analysis.diagnosis import diagnose
from ddpn.analysis.diagnosis import means as means_module
from ddpn.analysis.diagnosis.smooth import fit_families
from ddpn.analysis.explanations import Inputs, importance
from ddpn.analysis.leaderboard import leaderboard, out_of_fold_leaderboard
from ddpn.analysis.monitoring import compare
from ddpn.analysis.row_scores import RowScores
from ddpn.calibration.calibrate import CalibratedRows, CalibrationOptions, calibrate, fit_intervals
from ddpn.calibration.feature_profile import FeatureProfile
from ddpn.calibration.recalibration import Recalibration
from ddpn.distributions import NegativeBinomial, Poisson, Recalibrated
from ddpn.members.blending import MixtureScores, mix_members
from ddpn.members.constant import Constant
from ddpn.members.folds import Folds
from ddpn.members.glm import GLM, PoissonGLM
from ddpn.members.held_out import MemberPredictions
from ddpn.members.member import Member, MemberSpec
from ddpn.members.portfolio import Portfolio
from ddpn.metrics import evaluate
from ddpn.networks.heads import make_head
from ddpn.pipeline import FittedPipeline, PipelineOptions, calibrate_pipeline
from ddpn.predictor import Predictor
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.time_plan import Schedule
from ddpn.tables.checks.groups import find_groups
from ddpn.tables.checks.order import find_trend
from ddpn.tables.columns import ColumnTable
from ddpn.tables.encoding import FeatureEncoder
from ddpn.tables.reading import read_table

# Weights -------------------------------------------------------------------------------------------------------------


def simulate_weighted_rows(rows: int = 240, seed: int = 0) -> CountRows:
    """Simulate over-dispersed counts that follow a number and levels; rows of some levels weigh three times as much."""
    rng = np.random.default_rng(seed)
    a, level = rng.normal(size=rows).round(1), rng.integers(0, 8, rows)
    mean = np.exp(1.0 + 0.4 * a + 0.5 * (level % 3))
    X = pl.DataFrame({"a": a, "level": [f"l{k}" for k in level]})
    y = rng.poisson(mean * rng.gamma(2.0, 0.5, rows)).astype(float)
    return CountRows(X, y, np.where(level % 3 == 2, 3.0, 1.0 + (a > 0)), group=np.arange(rows).astype(str))


def compute_means(sample: CountRows) -> torch.Tensor:
    return predict_inputs(sample.X)


def predict_inputs(X: pl.DataFrame) -> torch.Tensor:
    return torch.from_numpy(np.exp(1.2 + 0.3 * X["a"].to_numpy()))


def make_encoding_step(**options) -> Callable[[CountRows], np.ndarray]:
    return lambda sample: (
        FeatureEncoder(**options).fit(sample.X, sample.y, sample.weight).transform(simulate_weighted_rows().X)
    )


def choose_mixture_weights(sample: CountRows) -> np.ndarray:
    scores, mean = MixtureScores([sample]), compute_means(sample)[:, None]
    for dist in (Poisson(0.6 * mean), NegativeBinomial(1.3 * mean, torch.full_like(mean, 0.4)), Poisson(2.0 * mean)):
        scores.add([[dist]])
    return scores.minimize_crps(scores.row_weights / scores.row_weights.sum())


class KnownMeans(Constant):
    """A member that predicts Poissons of known means."""

    def __init__(self) -> None:
        """Make the member, which needs no fit."""

    def distribution(self, X, exposure=None):
        return Poisson(predict_inputs(X)[:, None])


def fit_recalibration(sample: CountRows) -> np.ndarray:
    rows = MemberPredictions(sample, sample.group.astype(int) % 2, is_crossed=False)
    fitted, maps = Recalibration.fit(Predictor({"known": KnownMeans()}).mix_held_out(rows), prior_rows=0.0)
    return np.concatenate([fitted.value, [fitted.gain], *(one.value.numpy() for one in maps)])


@cache
def fit_scored_predictor() -> Predictor:
    rows = simulate_weighted_rows(200, 5)
    return Predictor(
        {
            "constant": Constant.fit(rows, None, seed=0),
            "glm": GLM.fit(rows, None, seed=0, head=make_head("negative_binomial")),
            "poisson_glm": PoissonGLM.fit(rows, None, seed=0),
        },
        {"constant": 0.0, "glm": 0.7, "poisson_glm": 0.3},
    )


def score_on_leaderboard(sample: CountRows) -> np.ndarray:
    shown = leaderboard(fit_scored_predictor(), sample)
    entries = sorted(shown.entries, key=lambda entry: entry["name"])
    scores = [entry[name] for entry in entries for name in RowScores._fields]
    one = shown.evaluation
    gains = [gain.mean for gain in (*one.gains.values(), *one.error_gains.values())]
    return np.array([*scores, *gains, *one.crps.values(), *one.errors.values(), one.mean_count, one.coverage])


def summarize_scores(sample: CountRows) -> np.ndarray:
    scores = evaluate(Poisson(compute_means(sample)), sample.y, weight=sample.weight)
    return np.array([value for value in scores.values() if isinstance(value, float)])


def make_diagnosis_step(kind: str) -> Callable[[CountRows], np.ndarray]:
    """Make a step that returns out-of-fold means, the deviance they explain, and the dispersion of families."""

    def compute(sample: CountRows) -> np.ndarray:
        fitted = means_module.predict_out_of_fold_means(sample, kind, 0, lambda words: None)
        families = fit_families(sample.replace(X=None), fitted.mean)
        _, first = np.unique(sample.group.astype(int), return_index=True)
        parameters = [float(family.parameter) for family in families.values()]
        return np.concatenate([fitted.mean[first], [fitted.explained], parameters])

    return compute


#: The checks of monitoring that compare counts with predictions, in which rows count by their weights.
COUNT_CHECKS = ("coverage", "pit")
STEPS = {
    "standardised numbers": make_encoding_step(),
    "piecewise numbers": make_encoding_step(numeric="piecewise"),
    "level effects": make_encoding_step(categorical="effects"),
    "mixture weights": choose_mixture_weights,
    "recalibration": fit_recalibration,
    "leaderboard": score_on_leaderboard,
    "metrics": summarize_scores,
    "diagnosis, constant": make_diagnosis_step("constant"),
    "diagnosis, GLM": make_diagnosis_step("glm"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_weight_equals_a_row_given_as_often(step, monkeypatch):
    monkeypatch.setattr(means_module, "assign_folds", lambda rows, folds, seed, group: group.astype(int) % folds)
    sample = simulate_weighted_rows()
    repeated = sample.rows(np.repeat(np.arange(len(sample)), sample.weight.astype(int))).replace(weight=None)
    by_weight, by_rows, without = (STEPS[step](rows) for rows in (sample, repeated, sample.replace(weight=None)))
    np.testing.assert_allclose(by_weight, by_rows, rtol=2e-4, atol=2e-5)
    assert without.shape != by_rows.shape or np.abs(without - by_rows).max() > 1e-3, "weights matter for these rows"


def test_weights_say_nothing_about_what_is_ordinary():
    """Any weights above 0 leave flags and the drift of columns as they are, because these are about rows."""
    sample = simulate_weighted_rows()
    by_weight, without = (FeatureProfile.fit(sample.X, weight) for weight in (sample.weight, None))
    assert by_weight.state() == without.state()
    predictor = fit_scored_predictor()
    predictor.calibration = replace(predictor.calibration, profile=without)
    monitored = [compare(predictor, sample.X, rows) for rows in (sample, sample.replace(weight=None))]
    by_weight, without = (
        {check.name: check._replace(adjusted_p_value=None) for check in one.checks if check.kind not in COUNT_CHECKS}
        for one in monitored
    )
    assert by_weight == without
    assert len(by_weight) == len(monitored[0].checks) - len(COUNT_CHECKS)


@pytest.mark.parametrize("heavy", ["a", "b"])
def test_the_importance_of_a_column_is_that_for_the_rows_with_the_weight(heavy):
    """Counts follow x in one half of the rows and z in the other, and so do the predictions."""
    rng = np.random.default_rng(0)
    x, z, half = rng.normal(size=400), rng.normal(size=400), np.repeat([0.0, 1.0], 200)
    X = np.column_stack([x * (half == 0), z * (half == 1), half])
    y = rng.poisson(np.exp(1.0 + X[:, 0] + X[:, 1])).astype(float)
    model = Predictor({"poisson_glm": PoissonGLM.fit(CountRows(X, y), None, seed=0)})
    weight = np.where(half == (heavy == "b"), 1.0, 1e-6)
    shown = importance(Inputs.from_sample(model, CountRows(X, y, weight)), repeats=2).results
    for measure in ("mean", "crps"):
        first, second = (getattr(one, measure).mean() for one in shown[:2])
        # A shuffled column is 0 in half of its values, wherever it is shuffled to.
        assert (first > second + 0.1) == (heavy == "a"), measure


def test_rows_of_no_weight_make_no_trend_and_no_groups():
    """Later counts, and counts of persons, differ in rows without a weight only."""
    rng = np.random.default_rng(0)
    person, ignored = np.repeat(np.arange(150), 4), np.arange(600) % 2 == 0
    X = pl.DataFrame({"x": rng.normal(size=600), "person": [f"p{k}" for k in person]})
    plain = rng.poisson(5.0, 600).astype(float)
    later = plain * np.where(ignored & (np.arange(600) > 400), 3.0, 1.0)
    rows = CountRows(X.select("x"), later)
    times = pl.Series(np.arange(600))
    assert find_trend(rows, times) > 0.5
    assert find_trend(rows.replace(weight=np.where(ignored, 0.0, 1.0)), times) == 0.0
    assert find_trend(rows.replace(weight=np.where(ignored, 1.0, 1e-6)), times) > find_trend(rows, times)


# Exposures -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows_with_exposure() -> CountRows:
    """Poisson counts of 5 per unit, and columns that tell the exposure: without it they would predict the count."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 5, 600)
    X = pl.DataFrame({"a": level + 0.3 * rng.normal(size=600), "level": [f"l{k}" for k in level]})
    exposure = 2.0 ** (level - 2.0)
    return CountRows(X, rng.poisson(5.0 * exposure).astype(float), None, exposure)


@pytest.fixture(scope="module")
def rate_model(rows_with_exposure) -> Predictor:
    """One rate for all rows, with calibrated intervals and a summary of its training rows."""
    predictor = Predictor({"constant": Constant.fit(rows_with_exposure, None, seed=0)}, needs_exposure=True)
    predictor.calibration = fit_intervals(predictor.calibration, predictor.predict_held_out(rows_with_exposure))
    predictor.calibration = replace(predictor.calibration, profile=FeatureProfile.fit(rows_with_exposure.X))
    return predictor


def test_effects_of_levels_are_those_of_rates(rows_with_exposure):
    def spread(exposure) -> float:
        encoder = FeatureEncoder(categorical="effects").fit(rows_with_exposure.X, rows_with_exposure.y, None, exposure)
        names = encoder.get_feature_names_out().tolist()
        effect_columns = [j for j, name in enumerate(names) if name.endswith("effect")]
        return float(np.ptp(encoder.transform(rows_with_exposure.X)[:, effect_columns])) if effect_columns else 0.0

    assert spread(rows_with_exposure.exposure) == 0.0
    assert spread(None) > 1.0


@pytest.mark.parametrize("mean_model", ["constant", "glm", "boosting"])
def test_a_diagnosis_is_about_counts_given_their_exposures(rows_with_exposure, mean_model):
    shown = diagnose(
        rows_with_exposure.X, rows_with_exposure.y, exposure=rows_with_exposure.exposure, mean_model=mean_model
    )
    assert shown.dispersion.estimate == pytest.approx(1.0, abs=0.15)
    assert shown.labels == ()
    assert shown.explained < 0.05


def test_intervals_maps_scores_and_drift_are_those_of_counts_with_their_exposures(rows_with_exposure, rate_model):
    """Compare with the truth: Poisson counts of known means."""
    truth = Poisson(torch.from_numpy(5.0 * rows_with_exposure.exposure))
    y = torch.from_numpy(rows_with_exposure.y)
    assert rate_model.calibration.interval_level(0.9) < 0.95
    fitted, _ = Recalibration.fit(rate_model.predict_held_out(rows_with_exposure))
    assert abs(fitted.gain) < 0.01 * float(truth.crps(y).mean())
    entry = leaderboard(rate_model, rows_with_exposure).entries[0]
    assert entry["crps"] == pytest.approx(float(truth.crps(y).mean()), rel=0.02)
    assert entry["coverage"] == pytest.approx(entry["expected"], abs=0.04)
    assert not compare(rate_model, rows_with_exposure.X, rows_with_exposure).drift


def test_the_importance_of_an_exposure_is_not_that_of_columns_that_tell_it(rows_with_exposure, rate_model):
    shown = {one.name: one for one in importance(Inputs.from_sample(rate_model, rows_with_exposure), repeats=1).results}
    assert shown["exposure"].mean.mean() > 0.5
    assert max(np.abs(shown[name].crps).max() for name in rows_with_exposure.X.columns) == pytest.approx(0.0, abs=1e-9)


def test_exposures_of_persons_and_of_later_rows_are_neither_groups_nor_a_trend():
    rng = np.random.default_rng(0)
    person = rng.permutation(np.repeat(np.arange(100), 6))
    exposure = rng.gamma(1.0, 10.0, 100)[person] + 0.5
    X = pl.DataFrame({"x": rng.normal(size=600), "person": [f"p{k}" for k in person]})
    rows = CountRows(X, rng.poisson(2.0 * exposure).astype(float))
    assert find_groups(rows) is not None
    assert find_groups(rows.replace(exposure=exposure)) is None
    growing = np.linspace(1.0, 8.0, 600)
    later = CountRows(X.select("x"), rng.poisson(3.0 * growing).astype(float))
    times = pl.Series(np.arange(600))
    assert find_trend(later, times) > 0.3
    assert find_trend(later.replace(exposure=growing), times) == 0.0
    assert find_trend(later.replace(exposure=np.full(600, 9.0)), times) == pytest.approx(
        find_trend(later, times), rel=0.02
    )


# Groups --------------------------------------------------------------------------------------------------------------


def test_a_row_is_as_unusual_as_if_its_group_had_not_been_seen():
    """Flags are calibrated with scores of training rows, of which a group has a level of its own."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(40), 5)
    rows = CountRows(
        pl.DataFrame({"x": rng.normal(size=200), "ward": [f"w{k}" for k in group]}),
        rng.poisson(4.0, 200).astype(float),
        group=group.astype(str),
    )
    unseen = {}
    for name, sample in (("groups", rows), ("rows", rows.replace(group=None))):
        folds = Folds.from_rows(sample, None, seed=0)
        predictor = Predictor({"constant": folds.fit(MemberSpec("constant", Constant), seed=0)})
        fitted = FittedPipeline(predictor, folds, 0, {}, predictor.predict_held_out(folds))
        calibrate_pipeline(fitted, PipelineOptions(calibration=CalibrationOptions(recalibrate=False)), Schedule())
        later = pl.DataFrame({"x": np.zeros(20), "ward": [f"new {k}" for k in range(20)]})
        unseen[name] = predictor.calibration.ood_pvalue(later)
    assert (unseen["groups"] > 0.3).all(), "all groups were new to the folds that left them out"
    assert (unseen["rows"] < 0.05).all(), "some of the rows of each were not"


class OneColumn(PoissonGLM):
    """A GLM that reads the first column alone."""

    @classmethod
    def fit(cls, train: CountRows, validation: CountRows | None, seed: int, clock):
        return super().fit(train.replace(X=select_first_column(train.X)), validation, seed, clock)

    def distribution(self, X, exposure=None):
        return super().distribution(select_first_column(X), exposure)


def select_first_column(X: ColumnTable) -> ColumnTable:
    return ColumnTable(X.columns[:1], X.is_named)


def simulate_grouped_rows() -> CountRows:
    """Simulate sixty groups of four rows with a level of their own, which a column tells."""
    rng = np.random.default_rng(3)
    group, a, b = np.repeat(np.arange(60), 4), rng.normal(size=240), rng.normal(size=240)
    mean = np.exp(1.5 + 0.4 * a + 0.3 * b) * rng.gamma(2.0, 0.5, 60)[group]
    weight = np.where(group % 4 == 0, 2.0, 1.0)
    X = read_table(np.column_stack([a, b, group]))
    return CountRows(X, rng.poisson(mean).astype(float), weight, group=group.astype(str))


@pytest.fixture(scope="module")
def folds() -> Folds:
    return Folds.from_rows(simulate_grouped_rows(), None, seed=0)


@pytest.fixture(scope="module")
def members(folds) -> dict[str, Member]:
    """Cross-fitted Poisson members, which are too narrow."""
    return {
        name: folds.fit(MemberSpec(name, kind), seed=0) for name, kind in (("glm", PoissonGLM), ("line", OneColumn))
    }


@pytest.fixture
def mix_and_calibrate(members, monkeypatch) -> Callable[[Folds], tuple[Predictor, CalibratedRows]]:
    """Choose weights and calibrate with the counts of some folds, of members that are fitted already."""
    monkeypatch.setattr(Folds, "fit", lambda self, spec, seed, clock: members[spec.name])
    specs = [MemberSpec(name, PoissonGLM) for name in members]

    def choose(folds: Folds, recalibrate: bool = True) -> tuple[Predictor, CalibratedRows]:
        portfolio = Portfolio(specs).fit(folds, seed=0)
        predictor = Predictor(portfolio.members, portfolio.weights, fold_weights=portfolio.fold_weights)
        rows = calibrate(predictor.mix_held_out(portfolio.predictions), CalibrationOptions(recalibrate=recalibrate))
        predictor.calibration = rows.calibration
        return predictor, rows

    return choose


@pytest.mark.parametrize("recalibrate", [True, False])
@pytest.mark.parametrize("scored", [0, 2])
def test_weights_maps_and_levels_of_a_group_are_chosen_without_its_counts(
    folds, mix_and_calibrate, scored, recalibrate
):
    """With other counts in the groups of one fold, its weights, maps and levels are the same, and others differ.

    Each step is given what the one before has chosen: the members for all, and distributions of members without maps
    for levels. Copies of members have not seen their fold either (tests/members/test_folds.py).
    """
    inside = folds.fold_numbers == scored
    y = folds.train.y.copy()
    y[inside] = np.random.default_rng(1).permutation(y[inside]) + 2.0
    results = []
    for counts in (folds.train.y, y):
        rows = Folds(folds.train.replace(y=counts), None, folds.fold_numbers)
        predictor, held_out = mix_and_calibrate(rows, recalibrate)
        assert all(one.is_used for one in predictor.calibration.recalibrations.values())
        assert set(predictor.calibration.recalibrations) == ({"mixture", "glm", "line"} if recalibrate else set())
        results.append(
            [
                (
                    weights,
                    [part.recalibrations[name].value.tolist() for name in ("glm", "line") if recalibrate],
                    [part.interval_level(0.8, name) for name in ("glm", "line") if not recalibrate],
                )
                for weights, part in zip(held_out.held_out.weights, held_out.parts, strict=True)
            ]
        )
    same = [one == two for one, two in zip(*results, strict=True)]
    assert same == [number == scored for number in range(5)]


@pytest.mark.parametrize("kind", ["constant", "glm"])
def test_means_of_a_diagnosis_are_those_of_models_that_left_the_group_out(kind):
    sample = simulate_grouped_rows()
    number = means_module.assign_folds(240, means_module.FOLDS, 0, sample.group)
    inside = number == 1
    poisoned = sample.replace(y=np.where(inside, sample.y + 5.0, sample.y))
    before, after = (
        means_module.predict_out_of_fold_means(rows, kind, 0, lambda words: None) for rows in (sample, poisoned)
    )
    np.testing.assert_array_equal(before.mean[inside], after.mean[inside])
    assert not np.isclose(before.mean[~inside], after.mean[~inside]).any()


def repeat_rows(sample: CountRows) -> CountRows:
    """Repeat rows until a tenth of them is held out."""
    return sample.rows(np.tile(np.arange(len(sample)), 25))


DIVISIONS = {
    "folds": lambda sample: Folds.from_rows(sample, None, seed=0).held_out,
    "a tenth": lambda sample: [(folds := Folds.from_rows(repeat_rows(sample), None, seed=0)).train, *folds.held_out],
    "parts of calibration rows": lambda sample: [
        rows.rows.rows(rows.part == number) for rows in [MemberPredictions.from_rows(sample)] for number in range(5)
    ],
}


@pytest.mark.parametrize("division", DIVISIONS)
def test_parts_of_rows_share_no_group(division):
    parts = [set(part.group) for part in DIVISIONS[division](simulate_grouped_rows())]
    assert len(parts) > 1
    assert sum(map(len, parts)) == len(set().union(*parts)) == 60


def test_a_group_of_equal_rows_counts_as_one_row():
    """Check the intervals of gains and of the coverage, on which the verdict stands."""
    sample = simulate_weighted_rows(150, 7).replace(weight=None)
    copied = sample.rows(np.repeat(np.arange(150), 4))
    alone, grouped = (leaderboard(fit_scored_predictor(), rows).evaluation for rows in (sample, copied))
    loose = leaderboard(fit_scored_predictor(), copied.replace(group=None)).evaluation
    for name, gain in alone.gains.items():
        assert grouped.gains[name][:4] == pytest.approx(gain[:4], rel=1e-2)
        assert loose.gains[name].error < 0.6 * gain.error
    assert grouped.effective_rows == pytest.approx(150, rel=0.02)
    assert loose.effective_rows == 600


def test_out_of_fold_scores_are_those_of_the_copies_that_left_a_row_out(folds, members, mix_and_calibrate):
    """Compute scores by hand from the copies of members, weights and maps."""
    predictor, held_out = mix_and_calibrate(folds)
    shown = out_of_fold_leaderboard(predictor, held_out)
    (entry,) = (entry for entry in shown.entries if entry["name"] == "mixture")
    crps = np.zeros(240)
    for number, part in enumerate(held_out.parts):
        rows = folds.train.rows(folds.fold_numbers == number)
        parts = [member.copies[number].predict_components(rows.X) for member in members.values()]
        mixture = mix_members(parts, [predictor.fold_weights[number][name] for name in members])
        dist = Recalibrated(mixture, part.recalibrations["mixture"].map)
        crps[folds.fold_numbers == number] = dist.crps(torch.from_numpy(rows.y)).numpy()
    assert entry["crps"] == pytest.approx(np.average(crps, weights=folds.train.weight))
    assert shown.evaluation.folds == 5
    assert shown.evaluation.effective_rows < 200
