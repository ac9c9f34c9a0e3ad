"""Fit a `Calibration` to held-out predictions: maps of the cdf, interval levels and out-of-distribution scores.

The parts of held-out rows are the folds of cross-fitted members, or a random split of validation rows. A map of the cdf
is measured on each part after it was fitted to all other parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ddpn.calibration.calibration import Calibration
from ddpn.calibration.feature_profile import FeatureProfile
from ddpn.calibration.intervals import IntervalGroups, IntervalLevels, get_column, make_interval_groups, score_blocks
from ddpn.calibration.ood import OODScores, check_alpha
from ddpn.calibration.recalibration import MIN_ROWS, Recalibration
from ddpn.calibration.recalibration import PRIOR_ROWS as MAP_PRIOR_ROWS
from ddpn.distributions import MonotoneMap, Recalibrated
from ddpn.distributions.limits import censor_rows
from ddpn.members.blending import MIXTURE
from ddpn.members.folds import Folds
from ddpn.members.held_out import HeldOutPredictions
from ddpn.rows.checks import TableLike
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import NO_LIMIT, Clock
from ddpn.runtime.threads import single_thread
from ddpn.runtime.time_plan import FIRST_ROWS, run_with_rows
from ddpn.tables.groups import name_interval_groups

#: The number of rows as which the uniform scores of a correct model count. A few hundred rows determine a coverage only
#: to some percentage points, so levels are shrunk towards the nominal ones.
PRIOR_ROWS = 100.0
#: The share of ordinary rows that is flagged as out-of-distribution by default.
OOD_ALPHA = 0.05
#: Under a time limit: rows that are summarised or scored for out-of-distribution flags per second left.
_PROFILE_ROWS_PER_SECOND = 20_000.0

#: For the mixture and each member by name, one map per part of the held-out rows.
Maps = Mapping[str, Sequence[MonotoneMap]]


class CalibrationOptions(NamedTuple):
    """Options of `calibrate`.

    With `recalibrate`, a map of the cdf is fitted, and used if it helps. Intervals are calibrated within `groups`: a
    column of X, or the name of the rows' `interval_groups`. The level of a group is shrunk towards the overall level
    with the weight of `group_rows` rows. `time_columns` are columns of X that hold times; new rows are expected to have
    other values in them, which must not count as out-of-distribution.
    """

    recalibrate: bool = True
    groups: str | None = None
    group_rows: float = 0.0
    time_columns: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class CalibratedRows:
    """Held-out rows and the calibration that was fitted to them.

    Parameters
    ----------
    held_out : HeldOutPredictions
        The rows and the members' predictions of them.
    calibration : Calibration
        The calibration on all rows together, for predictions of new rows.
    parts : sequence of Calibration
        For each fold of cross-fitted members, the calibration on the other folds, so that the rows of the fold can be
        scored like new rows. Empty if members are not cross-fitted.
    """

    held_out: HeldOutPredictions
    calibration: Calibration
    parts: Sequence[Calibration] = ()

    def __len__(self) -> int:
        return len(self.held_out)

    def draw(self, number: int) -> "CalibratedRows":
        """Draw `number` rows at random; keep the calibration of all rows."""
        return replace(self, held_out=self.held_out.draw(number))


def calibrate(
    held_out: HeldOutPredictions, options: CalibrationOptions | None = None, seed: int = 0, clock: Clock = NO_LIMIT
) -> CalibratedRows:
    """Calibrate distributions and intervals on as many held-out rows as time allows; return these rows.

    In cross-fitting, copies of a member are fitted to fewer rows than the member itself. Calibrated on their
    predictions, intervals are rather too wide than too narrow.
    """
    chosen = options or CalibrationOptions()

    def work(number: int) -> CalibratedRows:
        # If time is short, only the mixture is calibrated.
        is_rough = clock.has_limit and number < min(len(held_out), 2 * FIRST_ROWS)
        return fit_calibration(held_out.draw(number), chosen, seed, is_rough)

    with single_thread():
        return run_with_rows(clock, len(held_out), work)


def fit_calibration(
    held_out: HeldOutPredictions, options: CalibrationOptions, seed: int = 0, is_rough: bool = False
) -> CalibratedRows:
    """Fit maps of the cdf and interval levels to held-out rows; return the rows with their calibration.

    Interval levels are fitted to recalibrated distributions. Those of each part of the rows are recalibrated with a map
    that was fitted to the other parts, because new rows, too, get a map that was not fitted to them. With `is_rough`,
    only intervals of the mixture are calibrated, which is fast.
    """
    maps: dict[str, Sequence[MonotoneMap]] = {}
    recalibrations: dict[str, Recalibration] = {}
    if options.recalibrate and not is_rough and len(held_out) >= MIN_ROWS:
        recalibrations[MIXTURE], maps[MIXTURE] = Recalibration.fit(held_out, seed=seed)
        # Members are compared with the mixture after the same treatment.
        for name in held_out.names[1:] if recalibrations[MIXTURE].is_used else ():
            recalibrations[name], maps[name] = Recalibration.fit(held_out, name, seed=seed)
        maps = {name: maps[name] for name, fitted in recalibrations.items() if fitted.is_used}
    scores = _score_rows(held_out, [MIXTURE] if is_rough else held_out.names, maps)
    rows = _attach_labels(held_out.rows, options.groups)

    def calibrate_with(chosen: np.ndarray | slice, recalibrations: Mapping[str, Recalibration]) -> Calibration:
        prior_rows, part = 0.0 if is_rough else PRIOR_ROWS, {name: values[chosen] for name, values in scores.items()}
        levels = _fit_levels(part, rows.rows(chosen), prior_rows, options.groups, options.group_rows)
        return Calibration(*levels, recalibrations)

    parts = []
    for number in range(held_out.n_parts if held_out.is_crossed else 0):
        of_part = {name: recalibrations[name]._replace(value=maps[name][number].value.numpy()) for name in maps}
        parts.append(calibrate_with(held_out.part != number, of_part))
    return CalibratedRows(held_out, calibrate_with(slice(None), recalibrations), parts)


# Parts of a calibration -----------------------------------------------------------------------------------------------


def fit_recalibration(
    calibration: Calibration,
    held_out: HeldOutPredictions,
    prior_rows: float = MAP_PRIOR_ROWS,
    always: bool = False,
    seed: int = 0,
) -> Calibration:
    """Fit a map of the mixture's cdf to held-out rows; return the calibration with this map.

    The map is used if it helps, or always with `always`. It is shrunk towards the identity as if `prior_rows` rows were
    already calibrated. If it is used, the mixture's interval levels are dropped, because they belong to the
    distributions without the map.
    """
    recalibration, _ = Recalibration.fit(held_out, MIXTURE, prior_rows, always, seed)
    changed = replace(calibration, recalibrations={**calibration.recalibrations, MIXTURE: recalibration})
    if not recalibration.is_used:
        return changed
    intervals = {name: levels for name, levels in calibration.intervals.items() if name != MIXTURE}
    return replace(changed, intervals=intervals, groups=None)


def fit_intervals(
    calibration: Calibration,
    held_out: HeldOutPredictions,
    prior_rows: float = 0.0,
    groups: str | None = None,
    group_rows: float = 0.0,
    names: Sequence[str] | None = None,
) -> Calibration:
    """Fit interval levels to held-out rows; return the calibration with these levels.

    `names` are those of the members, or "mixture", whose intervals are calibrated; by default all. Levels are shrunk
    towards the nominal ones, which are right for a correct model, with the weight of `prior_rows` rows. `groups` is a
    column of X or the name of the rows' `interval_groups`. Each group gets its own levels, shrunk towards the overall
    ones with the weight of `group_rows` rows.
    """
    used = {name: fitted for name, fitted in calibration.recalibrations.items() if fitted.is_used}
    maps = {name: [fitted.map] * held_out.n_parts for name, fitted in used.items()}
    scores = _score_rows(held_out, held_out.names if names is None else names, maps)
    rows = _attach_labels(held_out.rows, groups)
    intervals, interval_groups = _fit_levels(scores, rows, prior_rows, groups, group_rows)
    return replace(calibration, intervals={**calibration.intervals, **intervals}, groups=interval_groups)


def fit_ood(calibration: Calibration, X: TableLike, alpha: float = OOD_ALPHA) -> Calibration:
    """Score rows `X` that no member was fitted to, with which new rows are compared; return the new calibration.

    Of rows like these, the share `alpha` is flagged as out-of-distribution.
    """
    scores = calibration.require_profile().measure(X).score
    return replace(calibration, ood=OODScores.fit(scores, check_alpha(alpha, len(scores))))


def fit_profile(folds: Folds, time_columns: Sequence[str] = (), clock: Clock = NO_LIMIT) -> Calibration:
    """Summarise the training rows, and score ordinary rows with this summary; return a calibration with both only.

    The scored rows are the validation rows or, in cross-fitting, all training rows, each scored as if its fold had been
    left out of the summary. `time_columns` do not count in a row's score. If `clock` leaves little time, only the first
    rows are used.
    """
    train, ignored = _take_affordable_rows(folds.train, clock), tuple(time_columns)
    number = None if folds.number is None else folds.number[: len(train)]
    if number is not None and len(np.unique(number)) > 1:
        profile, scores = FeatureProfile.cross_fit(train.X, train.weight, number, ignored)
        return Calibration(profile=profile, ood=OODScores.fit(scores, OOD_ALPHA))
    profile, ood = FeatureProfile.fit(train.X, train.weight, ignored), None
    if folds.validation is not None and len(folds.validation):
        scored = _take_affordable_rows(folds.validation, clock)
        ood = OODScores.fit(profile.measure(scored.X).score, OOD_ALPHA)
    return Calibration(profile=profile, ood=ood)


def _take_affordable_rows(rows: CountRows, clock: Clock) -> CountRows:
    if clock.has_limit and len(rows) > _PROFILE_ROWS_PER_SECOND * clock.left:
        return rows.rows(slice(0, max(1, int(_PROFILE_ROWS_PER_SECOND * clock.left))))
    return rows


def _score_rows(held_out: HeldOutPredictions, names: Sequence[str], maps: Maps) -> dict[str, np.ndarray]:
    """Return, for each of `names`, the level at which each row's interval begins to include its count.

    `names` are those of members, or "mixture". If the mixture consists of one member, both have the same scores. A name
    in `maps` has one map of the cdf per part of the rows, which is applied first.
    """
    rows, scores = held_out.rows, dict[str, np.ndarray]()
    sole = None if MIXTURE in maps else held_out.find_sole_member()
    for name in names:
        if name == sole and MIXTURE in scores:
            scores[name] = scores[MIXTURE]
            continue
        changed = (
            (index, Recalibrated(dist, maps[name][number]) if name in maps else dist)
            for number, index, dist in held_out.blocks(name)
        )
        recorded = (
            (index, censor_rows(dist, None if rows.limit is None else rows.limit[index])) for index, dist in changed
        )
        scores[name] = score_blocks(recorded, rows.y)
    return scores


def _attach_labels(rows: CountRows, groups: str | None) -> CountRows:
    """Return the rows without their features X. If `groups` is a column of X, its values become the rows' groups."""
    if groups is None or rows.interval_groups is not None or (column := get_column(rows.X, groups)) is None:
        return rows.replace(X=None)
    return rows.replace(X=None, interval_groups=name_interval_groups(column, len(rows)))


def _fit_levels(
    scores: Mapping[str, np.ndarray], rows: CountRows, prior_rows: float, groups: str | None, group_rows: float
) -> tuple[dict[str, IntervalLevels], IntervalGroups | None]:
    """Fit the interval levels that reach each coverage, over all rows and within groups of rows.

    `scores` are the results of `_score_rows`, keyed by the name of the mixture or member. Levels over all rows are
    shrunk towards nominal ones with the weight of `prior_rows` rows, and levels of a group towards those over all rows
    with the weight of `group_rows` rows. `groups` is a column or the name of the rows' interval groups. Return the
    levels over all rows, keyed by name, and the levels of each group, or None without groups.
    """
    is_censored = rows.limit is not None and bool((rows.y >= rows.limit).any())
    levels = {
        name: IntervalLevels.from_scores(values, rows.weight, prior_rows, is_censored)
        for name, values in scores.items()
    }
    if groups is None:
        return levels, None
    interval_groups, codes = make_interval_groups(groups, rows, group_rows)
    for name, values in scores.items():
        interval_groups.add(name, values, codes, rows.weight)
    return levels, interval_groups
