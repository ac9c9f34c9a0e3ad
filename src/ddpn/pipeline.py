"""The pipeline of a fit: members, their weights, models for comparison, and calibration.

`CountRegressor.fit`, `DDPNRegressor.fit`, `ddpn fit` and `ddpn tune` all fit by `fit_pipeline`; they differ in the
steps they ask for. A time budget is spent on members first (`ddpn.runtime.time_plan`). Ctrl-C ends the step that runs,
and never loses what was fitted before.
"""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch

from ddpn.calibration.calibrate import CalibratedRows, CalibrationOptions, calibrate, fit_calibration, fit_profile
from ddpn.calibration.calibration import Calibration
from ddpn.calibration.heavy_tails import describe_heavy_tail
from ddpn.calibration.ood import FeatureProfile
from ddpn.members import MEMBERS, format_member_label
from ddpn.members.fitting import is_member_error
from ddpn.members.folds import Folds, JobOptions
from ddpn.members.held_out import HeldOutPredictions
from ddpn.members.member import MemberSpec, NotApplicableError, Task
from ddpn.members.portfolio import Portfolio
from ddpn.networks.heads import Head
from ddpn.predictor import Predictor
from ddpn.rows.count_range import CountRange
from ddpn.runtime.deadlines import NO_LIMIT, Clock, TimeLimitError
from ddpn.runtime.errors import describe_error
from ddpn.runtime.threads import single_thread
from ddpn.runtime.time_plan import MIN_SECONDS_TO_COMPARE, Schedule

#: Names in `FittedPipeline.missing`; the last two are names of steps as well.
TRAINING, COMPARISONS, CALIBRATION = "training", "comparisons", "calibration"
#: The steps of a fit that is not compared with other members and not scored.
PLAIN_STEPS = ("members", CALIBRATION)


class FitPlan(NamedTuple):
    """The rows to fit to and to hold out, the members, and the seed of the fits."""

    folds: Folds
    specs: Sequence[MemberSpec]
    seed: int


@dataclass(frozen=True)
class PipelineOptions:
    """Options of the steps of a fit.

    Attributes
    ----------
    compare_with : sequence of str
        Members to fit for comparison if they are not part of the mixture, names in `ddpn.members.MEMBERS`.
    calibration : CalibrationOptions or None
        What is calibrated; with None, only later rows that are unlike the training rows are recognised.
    seed : int or None
        Seed of comparisons and calibration, None for that of the members.
    """

    compare_with: Sequence[str] = ()
    calibration: CalibrationOptions | None = CalibrationOptions()  # noqa: RUF009
    seed: int | None = None


@dataclass
class FittedPipeline:
    """The outcome of `fit_pipeline`.

    Attributes
    ----------
    predictor : Predictor
        The fitted members with their weights and calibration.
    folds : Folds
        The rows that members were fitted to, and those that were held out.
    seed : int
        The seed of comparisons and calibration.
    left_out : dict
        Planned members that are not part of the model, and why.
    predictions : HeldOutPredictions
        What the members predict for the rows that were held out.
    held_out : CalibratedRows or None
        The rows that calibrated the model, None if nothing was calibrated.
    missing : list of str
        Steps that Ctrl-C ended or prevented.
    notes : list of str
        Sentences for the user: what was left out or done with fewer rows, and why.
    """

    predictor: Predictor
    folds: Folds
    seed: int
    left_out: dict[str, str]
    predictions: HeldOutPredictions
    held_out: CalibratedRows | None = None
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def fit_pipeline(
    plan: FitPlan,
    head: Head,
    counts: CountRange,
    options: PipelineOptions,
    schedule: Schedule,
    jobs: JobOptions | None = None,
) -> FittedPipeline:
    """Fit members, choose their weights, fit models for comparison, and calibrate.

    Parameters
    ----------
    plan : FitPlan
        The rows, the members and the seed.
    head : Head
        The likelihood.
    counts : CountRange
        The range of possible counts.
    options : PipelineOptions
        Options of the steps.
    schedule : Schedule
        The steps and their time. "scores" are up to the caller.
    jobs : JobOptions, optional
        Where members are fitted as jobs. Default: in this process.

    Returns
    -------
    FittedPipeline
        The fitted model. A `KeyboardInterrupt` is raised only if nothing was fitted.
    """
    seed = plan.seed if options.seed is None else options.seed
    portfolio = Portfolio(plan.specs, schedule.start_clock("members"), schedule.on_step, jobs)
    portfolio.fit(plan.folds, plan.seed, seed)
    folds = portfolio.folds
    weights = portfolio.weights, counts.needs_exposure(folds.train), portfolio.seconds, counts, portfolio.fold_weights
    predictor = Predictor(portfolio.members, *weights)
    predictor.summarise_scales(folds.train)
    held_out = predictor.mix_held_out(portfolio.predictions)
    fitted = FittedPipeline(predictor, folds, seed, portfolio.left_out | portfolio.not_tried, held_out)
    fitted.notes += filter(None, [*portfolio.notes, find_heavy_tail(predictor, folds, held_out)])
    if portfolio.interrupted:
        schedule.on_step("Stopping: the best so far is kept")
        fitted.missing.append(TRAINING)
    if COMPARISONS in schedule.steps:
        _fit_comparisons(fitted, head, options, schedule)
    if CALIBRATION in schedule.steps:
        calibrate_pipeline(fitted, options, schedule)
    return fitted


def _fit_comparisons(fitted: FittedPipeline, head: Head, options: PipelineOptions, schedule: Schedule) -> None:
    """Fit the members for comparison that are not part of the mixture, until time runs out or Ctrl-C."""
    predictor, folds = fitted.predictor, fitted.folds
    for name in (name for name in options.compare_with if name not in predictor.members):
        label = format_member_label(name, MEMBERS.find(name))
        if schedule.clock.has_limit and schedule.clock.left <= MIN_SECONDS_TO_COMPARE:
            fitted.notes.append(f"Not compared with {label}, because the time budget ran out.")
            continue
        schedule.on_step(f"Fitting for comparison: {label}")
        started, clock = time.perf_counter(), schedule.start_clock(COMPARISONS)
        try:
            with single_thread(), warnings.catch_warnings(), clock.limit():
                # A fit that is not quite at its maximum is good enough for a comparison.
                warnings.simplefilter("ignore")
                member = folds.fit(MemberSpec.from_task(name, Task(head, len(folds.train))), fitted.seed, clock)
        except (NotApplicableError, TimeLimitError) as error:
            fitted.notes.append(f"Not compared with {label}: {error}.")
        except Exception as error:
            if not is_member_error(error):
                raise
            fitted.notes.append(f"Not compared with {label}: it raised {describe_error(error)}.")
        except KeyboardInterrupt:
            schedule.on_step(f"Stopping: not compared with {label}")
            fitted.missing.append(COMPARISONS)
            return
        else:
            predictor.add(name, member, time.perf_counter() - started)
            fitted.predictions.predictions.add(name, member)


def calibrate_pipeline(fitted: FittedPipeline, options: PipelineOptions, schedule: Schedule) -> None:
    """Calibrate a fitted model by its held-out rows; without any, only summarise the training rows."""
    predictor, folds, chosen = fitted.predictor, fitted.folds, options.calibration
    if chosen is None or not folds.held_out:
        ignored = () if chosen is None else chosen.time_columns
        profile = FeatureProfile.fit(folds.train.X, folds.train.weight, ignored)
        predictor.calibration = Calibration(profile=profile)
        return

    def work() -> None:
        clock = schedule.start_clock(CALIBRATION)
        fitted.held_out = calibrate_predictor(predictor, folds, fitted.predictions, chosen, fitted.seed, clock)

    schedule.on_step("Calibrating on rows that were not trained on")
    if schedule.runner.run(work):
        assert fitted.held_out is not None
        fitted.notes += describe_fewer_rows(
            "calibrated with", len(fitted.held_out), sum(map(len, folds.held_out)), "rows"
        )
        return
    fitted.missing.append(CALIBRATION)
    fitted.notes.append("The model is not calibrated, because the fit was stopped.")
    # Ctrl-C may have left some of it.
    predictor.calibration = Calibration(profile=predictor.calibration.profile)


def calibrate_predictor(
    predictor: Predictor,
    folds: Folds,
    held_out: HeldOutPredictions,
    options: CalibrationOptions | None = None,
    seed: int = 0,
    clock: Clock = NO_LIMIT,
) -> CalibratedRows:
    """Calibrate out-of-distribution flags by the training rows, and predictions by held-out rows."""
    flags = fit_profile(folds, () if options is None else options.time_columns, clock)
    # The summary of the training rows stays where Ctrl-C ends what follows.
    predictor.calibration = Calibration(profile=flags.profile)
    rows = calibrate(held_out, options, seed, clock)
    predictor.calibration = replace(rows.calibration, profile=flags.profile, ood=flags.ood)
    return rows


def predict_out_of_fold(
    predictor: Predictor, folds: Folds, options: CalibrationOptions, seed: int = 0
) -> CalibratedRows:
    """Predict the rows of cross-fitted members out of fold, and calibrate each fold by the others.

    Returns what `calibrate_predictor` returns. `predictor` must be calibrated already and is not changed.
    """
    with single_thread():
        return fit_calibration(predictor.predict_folds(folds, seed), options, seed)


def find_heavy_tail(predictor: Predictor, folds: Folds, held_out: HeldOutPredictions) -> str:
    """Return a warning if one training row determines the mean, by held-out predictions if there are any."""

    def predict_means(rows: np.ndarray) -> np.ndarray:
        means = np.zeros(len(folds.train))
        with torch.no_grad(), single_thread():
            if folds.are_crossed:
                chosen = held_out.take(rows)
                for _, index, dist in chosen.blocks():
                    means[chosen.source[index]] = dist.mean.double().numpy()
                return means[rows]
            return np.concatenate([part.mean for part, _ in predictor.predict_rows(folds.train.rows(rows))])

    return describe_heavy_tail(folds.train, predict_means)


def describe_fewer_rows(verb: str, used: int, total: int, rows: str) -> list[str]:
    """Describe in a sentence that there was no time for all rows; empty if there was.

    >>> describe_fewer_rows("scored on", 20, 20, "rows")
    []
    """
    if used >= total:
        return []
    return [f"The model is {verb} {used:,} of {total:,} {rows}, because the time budget is too short for more."]
