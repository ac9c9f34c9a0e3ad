"""Test members="auto": a GLM, boosted trees and networks, mixed as far as they pay, within a time budget."""

import re
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ddpn import CountRegressor
from ddpn.distributions import Poisson
from ddpn.members import fitting
from ddpn.members.blending import MixtureScores, mix_members
from ddpn.members.constant import Constant
from ddpn.members.folds import Folds, get_fold_copies
from ddpn.members.glm import PoissonGLM
from ddpn.members.held_out import MemberPredictions
from ddpn.members.member import Member, MemberSpec, NotApplicableError, Task
from ddpn.members.network_options import NetworkOptions
from ddpn.members.portfolio import Portfolio, make_default_specs
from ddpn.metrics import crps
from ddpn.networks.heads import make_head
from ddpn.pipeline import PipelineOptions
from ddpn.rows.count_range import CountRange
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import Clock, TimeLimitError, check_deadline
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.time_plan import Schedule


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 3))
    return X, rng.negative_binomial(3, 3 / (3 + np.exp(1 + X[:, 0] * (X[:, 1] > 0))))


@pytest.fixture(scope="module")
def default_model(data):
    X, y = data
    return CountRegressor(epochs=8, training_options={"batch_size": 100}, random_state=0).fit(X[:500], y[:500])


def test_the_mixture_is_no_worse_than_its_members(default_model, data):
    X, y = data
    predictor, test = default_model.predictor_, CountRows(X[500:], y[500:].astype(float))
    assert {"constant", "glm", "trees", "networks"} <= set(predictor.members)
    assert predictor.weights["constant"] == 0.0
    assert sum(predictor.weights.values()) == pytest.approx(1.0)
    scores = {
        name: float(crps(predictor.distribution(test.X, member=name), torch.from_numpy(test.y)).mean())
        for name in ("mixture", *predictor.members)
    }
    assert scores["mixture"] < 1.01 * min(scores.values())
    assert scores["mixture"] < 0.85 * scores["constant"]


def test_intervals_and_flags_are_calibrated_at_once(default_model, data):
    X, y = data
    low, high = default_model.predict_interval(X[500:], coverage=0.9).T
    assert 0.85 <= ((low <= y[500:]) & (y[500:] <= high)).mean() <= 0.97
    assert default_model.is_ood(X[500:]).mean() < 0.12
    assert default_model.is_ood([[30.0, 30.0, 30.0]]).all()


@pytest.mark.parametrize("budget", ["soon", -1.0])
def test_bad_time_budgets_are_refused(data, budget):
    with pytest.raises(ConfigError, match="time_budget"):
        CountRegressor(time_budget=budget).fit(data[0][:100], data[1][:100])


def test_every_member_is_fitted_to_counts_of_known_totals():
    rng = np.random.default_rng(0)
    X, upper = rng.normal(size=(80, 2)), rng.integers(3, 9, 80)
    y = rng.binomial(upper, 1 / (1 + np.exp(-X[:, 0]))).astype(float)
    lines: list[str] = []
    counts = CountRange(upper_per_row=True, upper_is_total=True)
    model = CountRegressor(likelihood="double_binomial", hidden=(8,), epochs=1, random_state=0)
    model.fit_rows(
        counts.apply(CountRows(X, y, upper=upper)),
        None,
        counts,
        PipelineOptions(),
        Schedule(Clock(1000.0), lines.append, steps=("members",)),
    )
    labels = ["constant distribution", "boosted trees", "GLM", "networks"]
    assert [line.split(",")[0] for line in lines] == [f"Fitting {label}" for label in labels]
    assert "CRPS so far" in lines[-1]
    assert set(model.predictor_.members) == {"constant", "glm", "trees", "networks"}
    low, high = model.predict_interval(X, upper=upper).T
    assert ((low <= high) & (high <= upper)).all()


# The portfolio itself ------------------------------------------------------------------------------------------------


class SlowGLM(PoissonGLM):
    label = "slow"

    @classmethod
    def fit(cls, train, validation, seed, clock):
        while True:
            check_deadline()
            time.sleep(0.01)


class RefusingGLM(PoissonGLM):
    @classmethod
    def fit(cls, train, validation, seed, clock):
        raise NotApplicableError("it is refused")


class UnderfittedGLM(PoissonGLM):
    is_underfitted = True


@pytest.fixture
def sample(data) -> CountRows:
    X, y = data
    return CountRows(X[:200], y[:200].astype(float))


def make_spec(name: str, kind: type[Member], **options) -> MemberSpec:
    return MemberSpec(name, kind, **options)


def make_portfolio(*candidates: MemberSpec, seconds: float | None = None) -> Portfolio:
    return Portfolio([make_spec("constant", Constant, is_baseline=True), *candidates], Clock(seconds))


def test_members_that_do_not_apply_or_take_too_long_are_left_out(sample):
    PoissonGLM.fit(sample, None, seed=0)  # kernels are loaded before the clock starts
    fitted = make_portfolio(
        make_spec("slow", SlowGLM), make_spec("refused", RefusingGLM), make_spec("glm", PoissonGLM), seconds=6.0
    )
    fitted.fit(Folds.from_rows(sample, None, 0), seed=0)
    assert list(fitted.members) == ["constant", "glm"]
    assert fitted.weights == {"constant": 0.0, "glm": 1.0}
    assert fitted.left_out == {"slow": "the time budget is too short", "refused": "it is refused"}


class FlatGLM(PoissonGLM):
    """Predicts the distributions of all rows as if they were the components of one row."""

    def distribution(self, X, exposure=None):
        return Poisson(super().distribution(X, exposure).mean.T)


class MeanGLM(PoissonGLM):
    """Predicts means instead of distributions."""

    def distribution(self, X, exposure=None):
        return super().distribution(X, exposure).mean.numpy()


class ShortGLM(PoissonGLM):
    """Forgets the last row."""

    def distribution(self, X, exposure=None):
        return Poisson(super().distribution(X, exposure).mean[:-1])


class NanGLM(PoissonGLM):
    """Predicts NaN for one row, without checking it."""

    def distribution(self, X, exposure=None):
        mean = super().distribution(X, exposure).mean.clone()
        mean[0] = torch.nan
        return Poisson(mean, validate_args=False)


class CheckedNanGLM(NanGLM):
    """Predicts NaN for one row, which the distribution refuses by an `InputError`."""

    def distribution(self, X, exposure=None):
        return Poisson(super().distribution(X, exposure).mu)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FlatGLM, r"FlatGLM predicts distributions of batch shape \(1, \d+\) for \d+ rows: it must be \(\d+, k\)"),
        (ShortGLM, r"ShortGLM predicts distributions of batch shape \(\d+, 1\) for \d+ rows"),
        (MeanGLM, "MeanGLM predicts a ndarray: it must be a torch distribution"),
        (NanGLM, r"CRPS is not a finite number for \d+ of \d+ held-out rows"),
        (CheckedNanGLM, "it raised InputError: mu must be"),
    ],
)
def test_a_member_whose_predictions_cannot_be_used_is_left_out_with_the_reason(sample, kind, reason):
    fitted = make_portfolio(make_spec("glm", PoissonGLM), make_spec("bad", kind))
    fitted.fit(Folds.from_rows(sample, None, 0), seed=0)
    assert fitted.weights == {"constant": 0.0, "glm": 1.0}
    assert re.search(reason, fitted.left_out["bad"])


def test_a_baseline_is_the_model_where_nothing_else_is_left(sample):
    larger = make_spec("larger", PoissonGLM, larger_than="glm")
    for result, left_out in (
        (make_portfolio(make_spec("refused", RefusingGLM)), {"refused"}),
        (make_portfolio(make_spec("glm", PoissonGLM), larger, seconds=0.0), {"glm", "larger"}),
    ):
        assert result.fit(Folds.from_rows(sample, None, 0), seed=0).weights == {"constant": 1.0}
        assert (set(result.left_out), result.not_tried) == (left_out, {})


@pytest.mark.parametrize("first", [True, False])
def test_without_time_to_score_it_a_member_is_kept_only_if_it_is_the_first(sample, monkeypatch, first):
    add, scored = MixtureScores.add, []

    def slow(self, member, size=None):
        scored.append(member)
        if first or len(scored) > 1:
            raise TimeLimitError("the time is up")
        return add(self, member, size)

    monkeypatch.setattr(MixtureScores, "add", slow)
    fitted = make_portfolio(make_spec("one", PoissonGLM), make_spec("two", PoissonGLM), seconds=100.0)
    assert fitted.fit(Folds.from_rows(sample, None, 0), seed=0).weights == {"constant": 0.0, "one": 1.0}
    assert fitted.left_out == {"two": "the time budget is too short"}


@pytest.mark.parametrize(("first", "expected"), [(PoissonGLM, False), (UnderfittedGLM, True)])
def test_a_larger_member_follows_one_that_could_learn_more(sample, first, expected):
    fitted = make_portfolio(make_spec("first", first), make_spec("larger", PoissonGLM, larger_than="first"))
    assert ("larger" in fitted.fit(Folds.from_rows(sample, None, 0), seed=0).members) == expected
    assert (fitted.left_out, list(fitted.not_tried)) == ({}, [] if expected else ["larger"])


def test_an_interruption_keeps_what_was_fitted(sample):
    class Interrupted(PoissonGLM):
        @classmethod
        def fit(cls, train, validation, seed, clock):
            raise KeyboardInterrupt

    fitted = make_portfolio(make_spec("glm", PoissonGLM), make_spec("stop", Interrupted), make_spec("never", SlowGLM))
    assert list(fitted.fit(Folds.from_rows(sample, None, 0), seed=0).members) == ["constant", "glm"]
    assert fitted.interrupted
    assert (fitted.left_out, set(fitted.not_tried)) == ({}, {"stop", "never"})
    with pytest.raises(KeyboardInterrupt):
        Portfolio([make_spec("stop", Interrupted)]).fit(Folds.from_rows(sample, None, 0), seed=0)


def compute_crps(members: list, weights: list[float], sample: CountRows) -> np.ndarray:
    parts = [member.predict_components(sample.X) for member in members]
    return mix_members(parts, weights).crps(torch.from_numpy(sample.y)).numpy()


def test_without_validation_rows_copies_choose_by_the_folds_that_they_left_out(sample):
    kinds = {"glm": PoissonGLM, "flat": Constant}
    sample = sample.replace(y=np.random.default_rng(1).poisson(np.exp(1.0 + sample.X[:, 0])).astype(float))
    fitted = make_portfolio(*(make_spec(name, kind) for name, kind in kinds.items())).fit(
        Folds.from_rows(sample, None, 0), seed=0
    )
    copies, weights = (
        [get_fold_copies(fitted.members[name]) for name in kinds],
        [fitted.weights[name] for name in kinds],
    )
    assert weights[0] > 0.7
    rows = [
        compute_crps(fold_copies, weights, block)
        for *fold_copies, block in zip(*copies, fitted.folds.held_out, strict=True)
    ]
    assert fitted.crps == pytest.approx(np.concatenate(rows).mean())


@pytest.mark.parametrize(("rows", "widths", "steps"), [(1600, (128, 128), 2000), (20_000, (32, 128, 128, 64), 10_000)])
def test_large_networks_are_trained_longer(rows, widths, steps):
    task = Task(make_head("mixed"), rows)
    made = {spec.name: spec for spec in make_default_specs(task)}
    assert made["large_networks"].larger_than == "networks"
    small, large = (made[name].options["options"] for name in ("networks", "large_networks"))
    assert large.hidden == widths
    assert large.epochs * -(-rows // large.batch_size) == pytest.approx(steps, rel=0.25)
    assert large.epochs > 1.5 * small.epochs
    own_task = replace(task, options=NetworkOptions(hidden=(8,)))
    assert "large_networks" not in [spec.name for spec in make_default_specs(own_task)]


@pytest.fixture
def train_and_validation(data) -> Folds:
    X, y = data[0][:2000], data[1][:2000].astype(float)
    return Folds(CountRows(X[:1600], y[:1600]), CountRows(X[1600:], y[1600:]))


def fit_two_members(monkeypatch, seconds_per_row: float, seconds: float, split: Folds) -> tuple[list[int], Portfolio]:
    """Fit two members with a clock on which rows take so many seconds; return the rows of each fit, and the result."""
    return fit_timed_members(monkeypatch, {"one": seconds_per_row, "two": seconds_per_row}, seconds, split)


def fit_timed_members(
    monkeypatch, seconds_per_row: dict[str, float], seconds: float, folds: Folds
) -> tuple[list[int], Portfolio]:
    """Fit members with a clock on which rows take these many seconds; return the rows of each fit and the result."""
    now, rows = [0.0], list[int]()
    for name in ("ddpn.runtime.deadlines", "ddpn.runtime.time_plan", "ddpn.members.fitting"):
        monkeypatch.setattr(f"{name}.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(fitting, "MIN_FIRST_ROWS", 100)
    monkeypatch.setattr(fitting, "FIRST_ROWS_PER_SECOND", 0.0)
    monkeypatch.setattr(fitting, "_MIN_ROWS", 10)

    class Timed(PoissonGLM):
        per_row: float

        @classmethod
        def fit(cls, train, validation, seed, clock):
            rows.append(len(train))
            now[0] += cls.per_row * len(train)
            if now[0] > clock.end:
                raise TimeLimitError("the time is up")
            return super().fit(train, validation, seed, clock)

    kinds = {name: type(name, (Timed,), {"per_row": per_row}) for name, per_row in seconds_per_row.items()}
    fitted = make_portfolio(*(make_spec(name, kind) for name, kind in kinds.items()), seconds=seconds)
    return rows, fitted.fit(folds, seed=0)


def test_with_time_enough_all_rows_are_fitted(monkeypatch, train_and_validation):
    rows, result = fit_two_members(monkeypatch, 0.001, 60.0, train_and_validation)
    assert rows == [100, 1600, 1600]
    assert result.rows == {"one": 1600, "two": 1600}


def test_rows_follow_the_time_that_rows_took(monkeypatch, train_and_validation):
    """The first member has half of the time, a minute: 10 s for 100 rows leave 50 s, of which 75% are planned."""
    monkeypatch.setattr(PoissonGLM, "label", "slow")
    rows, result = fit_two_members(monkeypatch, 0.1, 120.0, train_and_validation)
    (note,) = result.notes
    assert re.match(r"Fitted slow to 37\d, slow to 37\d of 1,600 training rows", note)
    assert rows[0] == 100
    assert rows[1:] == [pytest.approx(375, abs=2)] * 2
    assert result.left_out == {}


def test_a_cheap_member_does_not_decide_how_many_rows_the_next_begins_with(monkeypatch, train_and_validation):
    """A GLM of all rows takes a second; networks of as many rows would take all of their time without a result."""
    seconds_per_row = {"trees": 0.1, "glm": 1e-3, "networks": 0.1}
    rows, result = fit_timed_members(monkeypatch, seconds_per_row, 150.0, train_and_validation)
    assert (rows[0], result.rows["glm"]) == (100, 1600)
    assert 100 <= result.rows["networks"] < 600
    assert result.left_out == {}


def test_cross_fitted_members_are_fitted_to_fewer_rows_where_time_is_short(monkeypatch, train_and_validation):
    """Each row takes 0.4 s, once in each of the four folds that it is fitted in."""
    folds = Folds(train_and_validation.train, None, np.arange(len(train_and_validation.train)) % 5)
    rows, result = fit_timed_members(monkeypatch, {"one": 0.1, "two": 0.1}, 400.0, folds)
    assert sum(rows[:5]) == 4 * 100
    assert {name: 100 < number < 1600 for name, number in result.rows.items()} == {"one": True, "two": True}
    assert [len(get_fold_copies(member)) for member in (result.members["one"], result.members["two"])] == [5, 5]
    # Copies have not seen the fold that they are scored on.
    assert len(result.fold_weights) == 5


@pytest.mark.parametrize(("rows", "scored"), [(3000, 3000), (12_000, 5000)])
def test_so_many_held_out_rows_choose_weights_without_a_time_limit(rows, scored):
    """Up to 5,000 rows all of them choose; of more rows, as many of each fold."""
    sample = CountRows(np.zeros((rows, 1)), np.ones(rows))
    mixture = Portfolio([])
    mixture.predictions, mixture.seed = MemberPredictions(sample, np.arange(rows) % 5, is_crossed=True), 0
    blocks = mixture._choose_scored_blocks()
    assert [len(block) for block in blocks] == [scored // 5] * 5
    assert len(np.unique(np.concatenate(blocks))) == scored


def test_a_member_that_ran_out_of_time_is_fitted_to_fewer_rows(monkeypatch, train_and_validation):
    """The remaining time is used, instead of leaving out the member."""
    rows, result = fit_two_members(monkeypatch, 0.1, 16.0, train_and_validation)
    assert ["of 1,600 training rows" in note for note in result.notes] == [True]
    assert rows[:2] == [100, 25]
    assert set(result.members) == {"constant", "one", "two"}
    assert max(result.rows.values()) < 1600
