"""Fit a `Calibration` to predictions of held-out rows.

Calibration has three steps:

1. The predicted cdf is recalibrated by a monotone map.
2. The minimum probability that intervals must have (their level) is fitted to the recalibrated distributions.
3. Out-of-distribution scores of ordinary rows are computed. The scores of new rows are compared with them.

Held-out rows are divided into parts: the folds of cross-fitted models, or a random split of the validation rows. Each
part is recalibrated with a map that was fitted to the other parts, so that no row is evaluated with a map that was
fitted to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ddpn.calibration.calibration import Calibration
from ddpn.calibration.feature_profile import FeatureProfile
from ddpn.calibration.intervals import IntervalGroups, IntervalLevels, score_blocks
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

    Parameters
    ----------
    recalibrate : bool
        If True, fit a monotone map of the predicted cdf, and use it if it clearly lowers the CRPS of held-out rows.
    groups : str or None
        The name of the groups within which intervals are calibrated. The group of each row is in `interval_groups` of
        the held-out rows (`attach_group_labels`). None calibrates intervals over all rows.
    group_rows : float
        The interval level of a group is shrunk towards the level over all rows, which count as this many additional
        rows.
    time_columns : sequence of str
        Columns of X that hold times. New rows are expected to have later times, so these columns are ignored in
        out-of-distribution scores.
    """

    recalibrate: bool = True
    groups: str | None = None
    group_rows: float = 0.0
    time_columns: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class CalibratedRows:
    """Held-out rows with predictions, and the calibration that was fitted to them.

    Parameters
    ----------
    held_out : HeldOutPredictions
        The held-out rows, with the predictions of each member of the mixture.
    calibration : Calibration
        The calibration that was fitted to all held-out rows. It is applied to predictions of new rows.
    parts : sequence of Calibration
        If the members were cross-fitted, one calibration per fold. It was fitted to the rows of all other folds and is
        applied to the rows of this fold, so that they are scored like new rows. Empty without cross-fitting.
    """

    held_out: HeldOutPredictions
    calibration: Calibration
    parts: Sequence[Calibration] = ()

    def __len__(self) -> int:
        return len(self.held_out)

    def draw(self, n_rows: int) -> "CalibratedRows":
        """Return a copy with `n_rows` of the held-out rows, drawn at random.

        The copy keeps the calibration that was fitted to all rows.
        """
        return replace(self, held_out=self.held_out.draw(n_rows))


def calibrate(
    held_out: HeldOutPredictions, options: CalibrationOptions | None = None, seed: int = 0, clock: Clock = NO_LIMIT
) -> CalibratedRows:
    """Fit a calibration to held-out rows; return the rows that were used, with their calibration.

    If `options` is None, the defaults of `CalibrationOptions` are used. If `clock` has a time limit, only as many rows
    are used as the remaining time allows. Whether recalibration lowers the CRPS is decided on rows that `seed` draws.

    If the members of the mixture are cross-fitted, the held-out rows are predicted by copies of them that were fitted
    to fewer rows. The copies are slightly less accurate than the members, so calibrated intervals tend to be too wide
    rather than too narrow.
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
    """Fit recalibration maps and interval levels to held-out rows; return the rows with their calibration.

    The level of an interval is its minimum probability by the predicted distribution. Levels are fitted to recalibrated
    distributions. For this purpose, each part of the rows, such as a fold, is recalibrated with a map that was fitted
    to the other parts, because the map of new rows was not fitted to them either.

    If `is_rough` is True, only the intervals of the mixture are calibrated, to save time: there are no maps, and no
    intervals of single members. There are no maps either with fewer than 50 rows, or if `options` turns recalibration
    off. `seed` draws the rows on which it is decided whether recalibration lowers the CRPS.
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
    rows = held_out.rows.replace(X=None)

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
    """Fit a recalibration map of the mixture's cdf to held-out rows; return a copy of `calibration` with this map.

    Predictions use the map if it lowers the mean CRPS by more than two standard errors, or in any case if `always` is
    True. The CRPS is compared on held-out rows that `seed` draws; each is recalibrated by a map that was fitted to the
    other parts of the held-out rows, such as folds. If the map does not help, the result still contains it, marked as
    not used (`Recalibration.is_used`), and nothing else changes.

    If the map is used, the result has no interval levels of the mixture and of groups, because those in `calibration`
    were fitted to distributions without the map. Fit them again with `fit_intervals`.

    The map is shrunk towards the identity, as if `prior_rows` additional rows were calibrated already.
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
) -> Calibration:
    """Fit interval levels to held-out rows; return a copy of `calibration` that contains these levels.

    The level of an interval is its minimum probability by the predicted distribution. Levels are fitted such that
    intervals reach the requested coverage on held-out rows, for the mixture and each member.

    Parameters
    ----------
    calibration : Calibration
        The calibration to extend. Its recalibration maps are applied to predictions before levels are fitted.
    held_out : HeldOutPredictions
        The held-out rows, with the predictions of each member of the mixture.
    prior_rows : float
        Levels are shrunk towards the requested coverage, as if the predicted distributions had been right for this many
        additional rows.
    groups : str, optional
        The name of groups that each get their own levels. The group of each row is in `interval_groups` of the held-out
        rows (`attach_group_labels`).
    group_rows : float
        The levels of each group are shrunk towards the levels over all rows, which count as this many additional rows.
    """
    used = {name: fitted for name, fitted in calibration.recalibrations.items() if fitted.is_used}
    maps = {name: [fitted.map] * held_out.n_parts for name, fitted in used.items()}
    scores = _score_rows(held_out, held_out.names, maps)
    intervals, interval_groups = _fit_levels(scores, held_out.rows, prior_rows, groups, group_rows)
    return replace(calibration, intervals={**calibration.intervals, **intervals}, groups=interval_groups)


def fit_ood(calibration: Calibration, X: TableLike, alpha: float = OOD_ALPHA) -> Calibration:
    """Calibrate out-of-distribution flags on rows `X` that were not used in the fit.

    Return a copy of `calibration` with the scores of these rows. New rows are flagged if they are more unusual than
    most rows of `X`. Among new rows that are distributed like `X`, the expected share of flagged rows is at most
    `alpha`. An error is raised if `calibration` has no summary of the training rows (`profile`), or if `X` has so few
    rows that `alpha` could flag none.
    """
    scores = calibration.require_profile().measure(X).score
    return replace(calibration, ood=OODScores.fit(scores, check_alpha(alpha, len(scores))))


def fit_profile(folds: Folds, time_columns: Sequence[str] = (), clock: Clock = NO_LIMIT) -> Calibration:
    """Summarise the training rows and calibrate out-of-distribution flags.

    `folds` has the training rows, their folds (if members are cross-fitted) and validation rows (if any). Flags are
    calibrated by scoring ordinary rows that the summary does not know. These are the validation rows or, in
    cross-fitting, all training rows, where each is scored as if its fold had been left out of the summary. Columns in
    `time_columns` are ignored in the scores. If `clock` leaves little time, only the first rows are used.

    Return a calibration that has only the summary and the scores. Without validation rows and without cross-fitting, it
    has only the summary.
    """
    train, ignored = _take_affordable_rows(folds.train, clock), tuple(time_columns)
    number = None if folds.fold_numbers is None else folds.fold_numbers[: len(train)]
    if number is not None and len(np.unique(number)) > 1:
        profile, scores = FeatureProfile.cross_fit(train.X, train.weight, number, ignored)
        return Calibration(profile=profile, ood=OODScores.fit(scores, OOD_ALPHA))
    profile, ood = FeatureProfile.fit(train.X, train.weight, ignored), None
    if folds.validation is not None and len(folds.validation):
        scored = _take_affordable_rows(folds.validation.rows(folds.validation.has_weight), clock)
        ood = OODScores.fit(profile.measure(scored.X).score, OOD_ALPHA)
    return Calibration(profile=profile, ood=ood)


def _take_affordable_rows(rows: CountRows, clock: Clock) -> CountRows:
    if clock.has_limit and len(rows) > _PROFILE_ROWS_PER_SECOND * clock.left:
        return rows.rows(slice(0, max(1, int(_PROFILE_ROWS_PER_SECOND * clock.left))))
    return rows


def _score_rows(held_out: HeldOutPredictions, names: Sequence[str], maps: Maps) -> dict[str, np.ndarray]:
    """Return the interval scores of the held-out counts for the mixture or single members.

    The score of a count is the lowest level at which the narrowest interval contains it (`score_counts`). `names` are
    names of members, which may include "mixture". If `maps` has an entry for a name, the distributions are recalibrated
    first, with one map per part of the rows. If the mixture consists of a single member, both get the same scores.

    The result has an array of scores for each of `names`, shape (rows,).
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


def _fit_levels(
    scores: Mapping[str, np.ndarray], rows: CountRows, prior_rows: float, groups: str | None, group_rows: float
) -> tuple[dict[str, IntervalLevels], IntervalGroups | None]:
    """Fit interval levels to all rows and, if `groups` is not None, to each group of rows.

    `scores` has the interval scores of the rows (`_score_rows`), keyed by "mixture" and the names of members. `rows`
    has their weights, recording limits and group labels (`interval_groups`). `groups` is the name of the groups.

    The levels over all rows are shrunk towards the requested coverage, as if the predicted distributions had been right
    for `prior_rows` additional rows. The levels of a group are shrunk towards the levels over all rows, which count as
    `group_rows` rows.

    Return the levels over all rows, keyed like `scores`, and the levels of the groups (None if `groups` is None).
    """
    is_censored = rows.limit is not None and bool((rows.y >= rows.limit).any())
    levels = {
        name: IntervalLevels.from_scores(values, rows.weight, prior_rows, is_censored)
        for name, values in scores.items()
    }
    if groups is None:
        return levels, None
    assert rows.interval_groups is not None
    names = tuple(sorted(set(rows.interval_groups.tolist())))
    interval_groups = IntervalGroups(groups, names, group_rows)
    codes = interval_groups.encode_labels(rows.interval_groups)
    for name, values in scores.items():
        interval_groups.add(name, values, codes, rows.weight)
    return levels, interval_groups
