"""The rows that a mixture is calibrated with: validation rows, or training rows with out-of-fold predictions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ddpn.calibration.groups import column_of
from ddpn.calibration.ood import OODScores
from ddpn.calibration.profile import FeatureProfile
from ddpn.deadlines import FEWEST_ROWS, Clock, TimeLimitError, with_rows
from ddpn.members.cross_fitting import FOLDS, OutOfFold
from ddpn.predictor import MIXTURE, Predictor
from ddpn.sample import Sample
from ddpn.threads import single_thread
from ddpn.training import fold_numbers

#: What the predictions expect of intervals counts as so many rows: a few hundred rows tell it to some points only.
PRIOR_ROWS = 100.0
#: The share of ordinary rows that is flagged as out-of-distribution by default.
OOD_ALPHA = 0.05
#: Training rows per second left that are summarised for out-of-distribution scores, where time is limited.
_PROFILE_ROWS = 20_000.0
#: What calibration sets on a predictor.
_CALIBRATED = ("intervals", "groups", "recalibration", "ood")


class Wanted(NamedTuple):
    """What is calibrated besides intervals of all rows: the distributions, and intervals by group.

    `time_columns` are columns of X that hold times, in which new rows are expected to differ.
    """

    recalibrate: bool = False
    groups: Any = None
    group_rows: float = 0.0
    time_columns: Sequence[str] = ()


class CalibrationRows:
    """Calibrates a fitted mixture with rows that its members, or copies of them, were not fitted to.

    Parameters
    ----------
    predictor : Predictor
        The mixture.
    train : Sample
        Training rows.
    validation : Sample or None
        Validation rows. Without them the members' `out_of_fold` predictions of the training rows are used; they come
        from copies that were fitted to fewer rows, so that calibrated intervals are rather too wide than too narrow.
    """

    def __init__(self, predictor: Predictor, train: Sample, validation: Sample | None) -> None:
        self.predictor, self.train, self.validation = predictor, train, validation

    @property
    def is_cross_fitted(self) -> bool:
        """Whether there are no validation rows."""
        return self.validation is None

    def calibrate(self, wanted: Wanted | None = None, clock: Clock | None = None) -> int:
        """Calibrate intervals and out-of-distribution flags with as many rows as there is time for.

        Parameters
        ----------
        wanted : Wanted, optional
            What else is calibrated.
        clock : Clock, optional
            The time there is.

        Returns
        -------
        int
            The number of rows that were used.
        """
        by, sample = self._rows()
        has_all = set(self.predictor.mixed) <= set(by.members)
        if not len(sample) or not has_all:
            return 0
        wanted, clock = wanted or Wanted(), clock or Clock()
        scores = self._profile(wanted.time_columns, clock)
        order = np.random.default_rng(0).permutation(len(sample))

        def work(number: int) -> int:
            some = np.sort(order[:number])
            # Where time is short, the mixture comes first.
            is_rough = clock.has_limit and number < min(len(sample), 2 * FEWEST_ROWS)
            before = {name: getattr(self.predictor, name) for name in _CALIBRATED}
            try:
                self._with(by, sample.rows(some) if number < len(sample) else sample, wanted, is_rough)
                self._calibrate_ood(scores, some if number < len(sample) else None)
            except TimeLimitError:
                for name, value in before.items():
                    setattr(self.predictor, name, value)
                raise
            return number

        with single_thread():
            return with_rows(clock, len(sample), work)

    def _rows(self) -> tuple[Predictor, Sample]:
        """The rows, and what predicts them."""
        if self.validation is not None:
            return self.predictor, self.validation
        known = self.predictor.members
        stands = {n: OutOfFold(m.out_of_fold, m.label) for n, m in known.items() if m.out_of_fold is not None}
        weights = {name: self.predictor.weights.get(name, 0.0) for name in stands}
        by = Predictor(stands, weights, self.predictor.needs_exposure, None, self.predictor.counts)
        return by, self.train.replace(X=np.arange(len(self.train), dtype=np.float64)[:, None])

    def _with(self, by: Predictor, sample: Sample, wanted: Wanted, is_rough: bool) -> None:
        """Calibrate distributions and intervals by these rows; if that is to be rough, intervals of the mixture."""
        by.intervals = {}
        if wanted.recalibrate and not is_rough:
            by.recalibrate(sample)
        if isinstance(wanted.groups, str) and self.is_cross_fitted and sample.interval_groups is None:
            values = np.asarray(column_of(self.train.X, wanted.groups))
            sample = sample.replace(interval_groups=values[sample.X[:, 0].astype(np.int64)])
        # What the predictions themselves expect takes longer than what the rows need.
        of, prior = ([MIXTURE], 0.0) if is_rough else (None, PRIOR_ROWS)
        by.calibrate_intervals(sample, prior, wanted.groups, wanted.group_rows, of)
        for name in ("intervals", "groups", "recalibration"):
            setattr(self.predictor, name, getattr(by, name))

    def _profile(self, time_columns: Sequence[str], clock: Clock) -> np.ndarray | None:
        """Summarise the training rows; without validation rows, returns the scores of a fold that is left out."""
        train = self.train
        if clock.has_limit and len(train) > _PROFILE_ROWS * clock.left:
            train = train.rows(slice(0, max(1, int(_PROFILE_ROWS * clock.left))))
        if self.validation is not None:
            self.predictor.profile = FeatureProfile.fit(train.X, train.weight, tuple(time_columns))
            return None
        is_kept = fold_numbers(len(train), FOLDS, 0).numpy() == 0
        if not is_kept.any() or is_kept.all():
            return None
        others, kept = train.rows(~is_kept), train.rows(is_kept)
        self.predictor.profile = FeatureProfile.fit(others.X, others.weight, tuple(time_columns))
        return self.predictor.profile.measure(kept.X).score

    def _calibrate_ood(self, scores: np.ndarray | None, some: np.ndarray | None) -> None:
        """Calibrate out-of-distribution flags, with validation rows or, by features alone, with a fold of the others.

        The members agree more on rows that most of them were fitted to than on new ones.
        """
        if self.validation is not None:
            rows = self.validation if some is None else self.validation.rows(some)
            upper = self.predictor.counts.arguments(rows)["upper"]
            level = max(OOD_ALPHA, 1.0 / (len(rows) + 1))
            self.predictor.calibrate_ood(rows.X, rows.exposure, alpha=level, upper=upper)
        elif scores is not None:
            self.predictor.ood = OODScores.of_features(scores, max(OOD_ALPHA, 1.0 / (len(scores) + 1)))
