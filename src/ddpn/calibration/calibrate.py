"""Calibrate a fitted mixture with the rows that its members, or copies of them, were not fitted to."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ddpn.calibration.held_out import HeldOut
from ddpn.calibration.profile import FeatureProfile
from ddpn.calibration.recalibration import MIN_ROWS
from ddpn.members.folds import Folds
from ddpn.runtime.deadlines import FEWEST_ROWS, Clock, TimeLimitError, with_rows
from ddpn.runtime.threads import single_thread
from ddpn.sample import Sample

#: What the predictions expect of intervals counts as so many rows: a few hundred rows tell it to some points only.
PRIOR_ROWS = 100.0
#: The share of ordinary rows that is flagged as out-of-distribution by default.
OOD_ALPHA = 0.05
#: Rows per second left that are summarised or scored for out-of-distribution flags, where time is limited.
_PROFILE_ROWS = 20_000.0
#: What calibration sets on a predictor, with more and more rows.
_CALIBRATED = ("intervals", "groups", "recalibrations")
_MIXTURE = "mixture"


class CalibrationOptions(NamedTuple):
    """What is calibrated besides intervals of all rows: the distributions, and intervals by group.

    `time_columns` are columns of X that hold times, in which new rows are expected to differ.
    """

    recalibrate: bool = True
    groups: Any = None
    group_rows: float = 0.0
    time_columns: Sequence[str] = ()


def calibrate(
    predictor: Any, folds: Folds, seed: int, wanted: CalibrationOptions | None = None, clock: Clock | None = None
) -> int:
    """Calibrate distributions, intervals and out-of-distribution flags with as many rows as there is time for.

    Parameters
    ----------
    predictor : Predictor
        The mixture. Copies of its members were fitted to fewer rows than all of them together, so that cross-fitted
        calibration makes intervals rather too wide than too narrow.
    folds : Folds
        The rows that its members were fitted to, and those that were held out.
    seed : int
        Seed of the choice of rows.
    wanted : CalibrationOptions, optional
        What is calibrated.
    clock : Clock, optional
        The time there is.

    Returns
    -------
    int
        The number of rows that were used.
    """
    wanted, clock = wanted or CalibrationOptions(), clock or Clock()
    rows = HeldOut.of_folds(predictor, folds, seed)
    _calibrate_ood(predictor, folds, wanted.time_columns, clock)

    def work(number: int) -> int:
        before = {name: getattr(predictor, name) for name in _CALIBRATED}
        predictor.intervals, predictor.recalibrations = {}, {}
        # Where time is short, the mixture comes first.
        is_rough = clock.has_limit and number < min(len(rows), 2 * FEWEST_ROWS)
        try:
            _calibrate(predictor, rows.some(number, seed), wanted, is_rough, seed)
        except TimeLimitError:
            for name, value in before.items():
                setattr(predictor, name, value)
            raise
        return number

    with single_thread():
        return with_rows(clock, len(rows), work)


def _calibrate(predictor: Any, rows: HeldOut, wanted: CalibrationOptions, is_rough: bool, seed: int) -> None:
    """Calibrate distributions and intervals by these rows; if that is to be rough, intervals of the mixture."""
    if wanted.recalibrate and not is_rough and len(rows) >= MIN_ROWS:
        predictor.recalibrate(rows, seed=seed)
        if predictor.is_recalibrated():
            # Members are compared with the mixture after the same treatment.
            predictor.recalibrate(rows, of=list(predictor.members), seed=seed)
    # What the predictions themselves expect takes longer than what the rows need.
    of, prior = ([_MIXTURE], 0.0) if is_rough else (None, PRIOR_ROWS)
    predictor.calibrate_intervals(rows, prior, wanted.groups, wanted.group_rows, of)


def _calibrate_ood(predictor: Any, folds: Folds, time_columns: Sequence[str], clock: Clock) -> None:
    """Summarise the training rows, and score rows that the summary leaves out: validation rows, or the first fold."""
    known, apart = folds.train, folds.validation
    if apart is None and folds.number is not None:
        known, apart = folds.train.rows(folds.number != 0), folds.train.rows(folds.number == 0)
    known = _some(known, clock)
    predictor.profile = FeatureProfile.fit(known.X, known.weight, tuple(time_columns))
    if apart is not None and len(apart):
        rows = _some(apart, clock)
        predictor.calibrate_ood(rows.X, max(OOD_ALPHA, 1.0 / (len(rows) + 1)))


def _some(sample: Sample, clock: Clock) -> Sample:
    if clock.has_limit and len(sample) > _PROFILE_ROWS * clock.left:
        return sample.rows(slice(0, max(1, int(_PROFILE_ROWS * clock.left))))
    return sample
