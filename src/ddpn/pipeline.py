"""The steps of every fit: fit the members of a mixture, choose their weights, fit models for comparison, and calibrate.

A member is one model of the mixture, such as boosted trees. `CountRegressor.fit`, `DDPNRegressor.fit`, `ddpn fit` and
`ddpn tune` all call `fit_pipeline`, but each asks for some of the steps only. A time budget is spent on members first
(`ddpn.runtime.time_plan`). Ctrl-C ends the current step, and everything that was fitted before is kept.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch

from ddpn.calibration.calibrate import CalibratedRows, CalibrationOptions, calibrate, fit_profile
from ddpn.calibration.calibration import Calibration
from ddpn.calibration.feature_profile import FeatureProfile
from ddpn.calibration.heavy_tails import describe_heavy_tail
from ddpn.distributions.kernels.compiling import read_clock_without_compiling
from ddpn.members import MEMBERS, format_member_label
from ddpn.members.fitting import is_member_error
from ddpn.members.folds import Folds, JobOptions
from ddpn.members.held_out import HeldOutPredictions
from ddpn.members.member import MemberSpec, NotApplicableError, Task
from ddpn.members.portfolio import Portfolio
from ddpn.networks.heads import Head
from ddpn.predictor import Predictor
from ddpn.rows.count_range import CountRange
from ddpn.runtime.deadlines import TimeLimitError
from ddpn.runtime.errors import describe_error
from ddpn.runtime.threads import single_thread
from ddpn.runtime.time_plan import MIN_SECONDS_TO_COMPARE, Schedule

#: Names in `FittedPipeline.missing`. The last two are also names of steps.
TRAINING, COMPARISONS, CALIBRATION = "training", "comparisons", "calibration"
#: The steps of a fit without comparisons and scores.
PLAIN_STEPS = ("members", CALIBRATION)


class FitPlan(NamedTuple):
    """The rows, the members and the seed of a fit.

    Attributes
    ----------
    folds : Folds
        The training rows and the held-out rows.
    specs : sequence of MemberSpec
        The members.
    seed : int
        The seed of the members' fits.
    """

    folds: Folds
    specs: Sequence[MemberSpec]
    seed: int


@dataclass(frozen=True)
class PipelineOptions:
    """Options of `fit_pipeline`.

    Attributes
    ----------
    compare_with : sequence of str
        Models to fit for comparison, unless they are members of the mixture: keys of `ddpn.members.MEMBERS`.
    calibration : CalibrationOptions or None
        What to calibrate. With None, nothing is calibrated, and only a summary of the training features is stored.
    seed : int or None
        Seed of comparisons and calibration. Default: the seed of the members.
    """

    compare_with: Sequence[str] = ()
    calibration: CalibrationOptions | None = CalibrationOptions()  # noqa: RUF009
    seed: int | None = None


@dataclass
class FittedPipeline:
    """The result of `fit_pipeline`.

    Attributes
    ----------
    predictor : Predictor
        The fitted members with their weights and calibration.
    folds : Folds
        The training rows and the held-out rows.
    seed : int
        The seed of comparisons and calibration.
    left_out : dict
        The members that were planned but are not part of the model: the reason by name.
    predictions : HeldOutPredictions
        The members' predictions of the held-out rows, before calibration.
    held_out : CalibratedRows or None
        The held-out rows with the calibration that was fitted to them; None if nothing was calibrated.
    missing : list of str
        Steps that Ctrl-C interrupted or prevented.
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
        The steps to run and their time limit. The step "scores" is left to the caller.
    jobs : JobOptions, optional
        How to distribute the fits of members to processes. Default: all fits in this process.

    Returns
    -------
    FittedPipeline
        The fitted model. Ctrl-C raises a `KeyboardInterrupt` only if nothing was fitted.
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
    """Fit the models of `options.compare_with` and add them to the predictor with weight 0.

    Models that are members of the mixture are not fitted again. If a model fails or there is no time for it, a note is
    added to `fitted`. Ctrl-C ends the comparisons.

    Parameters
    ----------
    fitted : FittedPipeline
        The fitted members, to which the models are added in place.
    head : Head
        The likelihood.
    options : PipelineOptions
        The models to compare with.
    schedule : Schedule
        The time limit.
    """
    predictor, folds = fitted.predictor, fitted.folds
    for name in (name for name in options.compare_with if name not in predictor.members):
        label = format_member_label(name, MEMBERS.find(name))
        if schedule.clock.has_limit and schedule.clock.left <= MIN_SECONDS_TO_COMPARE:
            fitted.notes.append(f"Not compared with {label}, because the time budget ran out.")
            continue
        schedule.on_step(f"Fitting for comparison: {label}")
        started, clock = read_clock_without_compiling(), schedule.start_clock(COMPARISONS)
        try:
            with single_thread(), warnings.catch_warnings(), clock.limit():
                # Warnings about convergence are ignored: an approximate fit is good enough for a comparison.
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
            predictor.add(name, member, read_clock_without_compiling() - started)
            fitted.predictions.predictions.add(name, member)


def calibrate_pipeline(fitted: FittedPipeline, options: PipelineOptions, schedule: Schedule) -> None:
    """Calibrate a fitted model in place on its held-out rows.

    If there are no held-out rows, or if `options` asks for no calibration, only a summary of the training rows'
    features is stored in the predictor.

    Parameters
    ----------
    fitted : FittedPipeline
        The fitted model.
    options : PipelineOptions
        What to calibrate.
    schedule : Schedule
        The time limit.
    """
    predictor, folds, chosen = fitted.predictor, fitted.folds, options.calibration
    if chosen is None or not folds.held_out:
        ignored = () if chosen is None else chosen.time_columns
        profile = FeatureProfile.fit(folds.train.X, folds.train.weight, ignored)
        predictor.calibration = Calibration(profile=profile)
        return

    def work() -> None:
        clock = schedule.start_clock(CALIBRATION)
        flags = fit_profile(folds, chosen.time_columns, clock)
        # Set first, so that the summary of the training rows is kept if Ctrl-C ends the next step.
        predictor.calibration = Calibration(profile=flags.profile)
        held_out = calibrate(fitted.predictions, chosen, fitted.seed, clock)
        predictor.calibration = replace(held_out.calibration, profile=flags.profile, ood=flags.ood)
        fitted.held_out = held_out

    schedule.on_step("Calibrating on rows that were not trained on")
    if schedule.runner.run(work):
        assert fitted.held_out is not None
        fitted.notes += describe_fewer_rows(
            "calibrated with", len(fitted.held_out), sum(map(len, folds.held_out)), "rows"
        )
        return
    fitted.missing.append(CALIBRATION)
    fitted.notes.append("The model is not calibrated, because the fit was stopped.")
    # Discard a calibration that Ctrl-C left incomplete.
    predictor.calibration = Calibration(profile=predictor.calibration.profile)


def find_heavy_tail(predictor: Predictor, folds: Folds, held_out: HeldOutPredictions) -> str:
    """Return a warning if the mean of all counts depends on a single very large one, else "".

    Each training row's count is compared with its predicted mean. If the members are cross-fitted, the means are taken
    from the out-of-fold predictions `held_out`. Otherwise `predictor` predicts them. `folds` has the training rows.
    """

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
    """Return a sentence for the user that only `used` of `total` rows were used because of the time budget.

    The sentence is the only element of a list. If all rows were used, the list is empty. `verb` completes "The model is
    ...", for example "scored on", and `rows` is a plural noun such as "test rows".

    >>> describe_fewer_rows("scored on", 20, 20, "rows")
    []
    """
    if used >= total:
        return []
    return [f"The model is {verb} {used:,} of {total:,} {rows}, because the time budget is too short for more."]
