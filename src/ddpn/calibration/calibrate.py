"""Calibrate a fitted mixture with the rows that its members, or copies of them, were not fitted to."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np

from ddpn.calibration.ood import FeatureProfile, OODScores
from ddpn.distributions import MonotoneMap, Recalibrated
from ddpn.distributions.limits import limited
from ddpn.members.folds import Folds
from ddpn.rows.count_rows import CountRows
from ddpn.rows.splits import FOLDS, fold_numbers
from ddpn.runtime.deadlines import Clock, TimeLimitError
from ddpn.runtime.threads import single_thread
from ddpn.runtime.time_plan import FEWEST_ROWS, with_rows

#: Fewer rows cannot show that a map of the cdf helps.
MIN_ROWS = 50
#: What the predictions expect of intervals counts as so many rows: a few hundred rows tell it to some points only.
PRIOR_ROWS = 100.0
#: The share of ordinary rows that is flagged as out-of-distribution by default.
OOD_ALPHA = 0.05
#: Rows per second left that are summarised or scored for out-of-distribution flags, where time is limited.
_PROFILE_ROWS = 20_000.0
_MIXTURE = "mixture"


class HeldOut:
    """Rows that calibrate predictions, in parts; those of each part have one predictor, which was not fitted to them.

    The parts are also what a recalibration is cross-fitted by: while intervals are calibrated, the distributions of a
    part are recalibrated with a map that was learned from the other parts, as new rows have a map that was not learned
    from them. Rows of one part come after the other: `part` is the number of each row's part, ascending.
    """

    def __init__(self, sample: CountRows, predictors: Sequence[Any], part: np.ndarray) -> None:
        self.sample, self.predictors, self.part = sample, list(predictors), part
        #: Per name the map of each part, where distributions are recalibrated.
        self.maps: dict[str, list[MonotoneMap]] = {}
        #: What `measure` has computed, and, for some of the rows of another object, that object and their positions.
        self._measured: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._whole: tuple[HeldOut, np.ndarray] | None = None

    @classmethod
    def of(cls, predictor: Any, sample: CountRows, seed: int = 0) -> Self:
        """Rows that one predictor was not fitted to, divided into parts at random, groups kept whole."""
        part = fold_numbers(len(sample), FOLDS, seed, sample.group)
        order = np.argsort(part, kind="stable")
        return cls(sample.rows(order), [predictor] * (int(part.max(initial=-1)) + 1), part[order])

    @classmethod
    def of_folds(cls, predictor: Any, folds: Folds, seed: int) -> Self:
        """The held-out rows of a fit: validation rows, or each fold with the predictor of copies that left it out."""
        if folds.number is None:
            assert folds.validation is not None
            return cls.of(predictor, folds.validation, seed)
        copies = [predictor.of_copies(number) for number in range(int(folds.number.max()) + 1)]
        order = np.argsort(folds.number, kind="stable")
        return cls(folds.train.rows(order), copies, folds.number[order])

    def __len__(self) -> int:
        return len(self.sample)

    def some(self, number: int, seed: int) -> "HeldOut":
        """So many of the rows, drawn at random."""
        if number >= len(self):
            return self
        kept = np.sort(np.random.default_rng(seed).permutation(len(self))[:number])
        return HeldOut(self.sample.rows(kept), self.predictors, self.part[kept])

    def without(self, number: int) -> "HeldOut":
        """Return the rows of all other parts. What was measured for all rows is not measured again."""
        kept = np.flatnonzero(self.part != number)
        others = HeldOut(self.sample.rows(kept), self.predictors, self.part[kept])
        others.maps, others._whole = dict(self.maps), (self, kept)
        return others

    def set_maps(self, of: str, maps: Sequence[MonotoneMap] | None) -> None:
        """Recalibrate the distributions of the mixture or of a member with a map per part; with None, not at all."""
        self.maps.pop(of, None)
        if maps is not None:
            self.maps[of] = list(maps)
        self._measured.clear()

    def measure(self, key: tuple[Any, ...], compute: "Callable[[HeldOut], tuple[Any, ...]]") -> tuple[Any, ...]:
        """Return arrays with a value per row, or None, which `compute` takes from the distributions of the rows.

        They are computed once per `key`, for the rows of this object and of all that `without` makes of it.
        """
        if self._whole is not None:
            whole, kept = self._whole
            return tuple(None if values is None else values[kept] for values in whole.measure(key, compute))
        if key not in self._measured:
            self._measured[key] = compute(self)
        return self._measured[key]

    def pairs(self) -> Iterator[tuple[Any, CountRows]]:
        """Yield the predictor and the rows of each part that has rows, in the order of the rows."""
        for number, predictor in enumerate(self.predictors):
            if (rows := self.part == number).any():
                yield predictor, self.sample.rows(rows)

    def blocks(self, of: str) -> Iterator[tuple[int, Any, CountRows]]:
        """The rows in order, in blocks: the part, the distributions of the recorded counts, and the rows."""
        for number, predictor in enumerate(self.predictors):
            own = self.part == number
            if own.any():
                for dist, block in predictor.plain_blocks(self.sample.rows(own), of):
                    changed = Recalibrated(dist, self.maps[of][number]) if of in self.maps else dist
                    yield number, limited(changed, block.limit), block

    def distributions(self, of: str) -> Iterator[Any]:
        """The distributions of `blocks` alone."""
        return (dist for _, dist, _ in self.blocks(of))


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
) -> HeldOut:
    """Calibrate distributions, intervals and out-of-distribution flags with as many rows as there is time for.

    Copies of the members of `predictor` were fitted to fewer rows than all of them together, so that cross-fitted
    calibration makes intervals rather too wide than too narrow. Returns the rows that were used; where members are
    cross-fitted, the predictor of each part is calibrated with the other parts, so that the rows can be scored.
    """
    wanted, clock = wanted or CalibrationOptions(), clock or Clock()
    rows = HeldOut.of_folds(predictor, folds, seed)
    _calibrate_ood(predictor, folds, wanted.time_columns, clock)

    def work(number: int) -> HeldOut:
        before = [(one, one.calibration) for one in (predictor, *rows.predictors)]
        predictor.calibration = replace(predictor.calibration, intervals={}, groups=None, recalibrations={})
        # Where time is short, the mixture comes first.
        is_rough = clock.has_limit and number < min(len(rows), 2 * FEWEST_ROWS)
        try:
            some = rows.some(number, seed)
            _calibrate_with(predictor, some, wanted, is_rough, seed)
            if folds.are_crossed:
                _calibrate_copies(predictor, some, wanted, is_rough)
        except TimeLimitError:
            for one, calibration in before:
                one.calibration = calibration
            raise
        return some

    with single_thread():
        return with_rows(clock, len(rows), work)


def calibrate_copies(predictor: Any, folds: Folds, seed: int, wanted: CalibrationOptions) -> HeldOut:
    """Return the rows of cross-fitted members, with copies that did not see them, calibrated with the other folds.

    It is what `calibrate` returns, for a predictor that is calibrated already, and stays as it is.
    """
    again = predictor.copy_uncalibrated()
    rows = HeldOut.of_folds(again, folds, seed)
    with single_thread():
        _calibrate_with(again, rows, wanted, False, seed)
        _calibrate_copies(again, rows, wanted, False)
    return rows


def _calibrate_with(predictor: Any, rows: HeldOut, wanted: CalibrationOptions, is_rough: bool, seed: int) -> None:
    """Calibrate distributions and intervals; roughly, the intervals of the mixture alone."""
    if wanted.recalibrate and not is_rough and len(rows) >= MIN_ROWS:
        predictor.recalibrate(rows, seed=seed)
        if predictor.calibration.is_recalibrated():
            # Members are compared with the mixture after the same treatment.
            predictor.recalibrate(rows, of=list(predictor.members), seed=seed)
    # A rough calibration, in case time runs out, is that of the mixture alone.
    of, prior = ([_MIXTURE], 0.0) if is_rough else (None, PRIOR_ROWS)
    predictor.calibrate_intervals(rows, prior, wanted.groups, wanted.group_rows, of)


def _calibrate_copies(predictor: Any, rows: HeldOut, wanted: CalibrationOptions, is_rough: bool) -> None:
    """Calibrate the copies that left out each fold with the rows of the other folds, as `predictor` is calibrated."""
    for number, copies in enumerate(rows.predictors):
        recalibrations = {
            name: predictor.calibration.recalibrations[name]._replace(value=maps[number].value.numpy())
            for name, maps in rows.maps.items()
        }
        copies.calibration = replace(copies.calibration, intervals={}, groups=None, recalibrations=recalibrations)
        prior, of = 0.0 if is_rough else PRIOR_ROWS, list(predictor.calibration.intervals)
        copies.calibrate_intervals(rows.without(number), prior, wanted.groups, wanted.group_rows, of)


def _calibrate_ood(predictor: Any, folds: Folds, time_columns: Sequence[str], clock: Clock) -> None:
    """Summarise the training rows, and score rows by summaries that left them out: validation rows, or each fold."""
    train, ignored = _some(folds.train, clock), tuple(time_columns)
    number = None if folds.number is None else folds.number[: len(train)]
    if number is not None and len(np.unique(number)) > 1:
        profile, scores = FeatureProfile.cross_fit(train.X, train.weight, number, ignored)
        predictor.calibration = replace(predictor.calibration, profile=profile, ood=OODScores.fit(scores, OOD_ALPHA))
        return
    profile, ood = FeatureProfile.fit(train.X, train.weight, ignored), None
    if folds.validation is not None and len(folds.validation):
        ood = OODScores.fit(profile.measure(_some(folds.validation, clock).X).score, OOD_ALPHA)
    predictor.calibration = replace(predictor.calibration, profile=profile, ood=ood)


def _some(sample: CountRows, clock: Clock) -> CountRows:
    if clock.has_limit and len(sample) > _PROFILE_ROWS * clock.left:
        return sample.rows(slice(0, max(1, int(_PROFILE_ROWS * clock.left))))
    return sample
