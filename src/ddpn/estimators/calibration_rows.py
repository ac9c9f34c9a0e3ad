"""The rows that a mixture is calibrated with: validation rows, or training rows with out-of-fold predictions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ddpn.calibration.groups import column_of
from ddpn.calibration.ood import OODScores
from ddpn.calibration.profile import FeatureProfile
from ddpn.members.cross_fitting import FOLDS, OutOfFold
from ddpn.predictor import Predictor
from ddpn.sample import Sample
from ddpn.threads import single_thread
from ddpn.training import fold_numbers

#: What the predictions expect of intervals counts as so many rows: a few hundred rows tell it to some points only.
PRIOR_ROWS = 100.0
#: The share of ordinary rows that is flagged as out-of-distribution by default.
OOD_ALPHA = 0.05


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
        self._by, self.sample = predictor, train if validation is None else validation
        self._kept: np.ndarray | None = None
        self.renew()

    @property
    def is_cross_fitted(self) -> bool:
        """Whether there are no validation rows."""
        return self.validation is None

    def renew(self) -> None:
        """Take into account what was added to the mixture for comparison."""
        if not self.is_cross_fitted:
            return
        known = self.predictor.members
        stands = {n: OutOfFold(m.out_of_fold, m.label) for n, m in known.items() if m.out_of_fold is not None}
        weights = {name: self.predictor.weights.get(name, 0.0) for name in stands}
        self._by = Predictor(stands, weights, self.predictor.needs_exposure, None, self.predictor.counts)
        self.sample = self.train.replace(X=np.arange(len(self.train), dtype=np.float64)[:, None])
        if self._kept is not None:
            self.sample = self.sample.rows(self._kept)

    def keep(self, rows: np.ndarray) -> None:
        """Calibrate with some of the rows only, given by their position."""
        self._kept = rows
        self.sample = self.sample.rows(rows)
        if self.validation is not None:
            self.validation = self.sample

    @property
    def has_rows(self) -> bool:
        """Whether there is anything to calibrate with."""
        return len(self.sample) > 0 and set(self.predictor.mixed) <= set(self._by.members)

    def recalibrate(self) -> None:
        """Recalibrate the distributions where that improves their CRPS."""
        if self.has_rows:
            self._by.recalibrate(self.sample)
            self._hand_over()

    def calibrate_intervals(self, prior_rows: float = PRIOR_ROWS, groups: Any = None, group_rows: float = 0.0) -> None:
        """Calibrate intervals, see `Predictor.calibrate_intervals`."""
        if not self.has_rows:
            return
        sample = self.sample
        if isinstance(groups, str) and self.is_cross_fitted and sample.groups is None:
            values = np.asarray(column_of(self.train.X, groups))
            sample = sample.replace(groups=values if self._kept is None else values[self._kept])
        with single_thread():
            self._by.calibrate_intervals(sample, prior_rows, groups, group_rows)
        self._hand_over()

    def _hand_over(self) -> None:
        for name in ("intervals", "groups", "recalibration"):
            setattr(self.predictor, name, getattr(self._by, name))

    def calibrate_ood(self, alpha: float, time_columns: Sequence[str] = ()) -> None:
        """Calibrate out-of-distribution flags, with validation rows or, by features alone, with a fold of the others.

        The members agree more on rows that most of them were fitted to than on new ones.
        """
        train = self.train
        if self.validation is not None:
            self.predictor.profile = FeatureProfile.fit(train.X, train.weight, tuple(time_columns))
            upper = self.predictor.counts.arguments(self.validation)["upper"]
            level = max(alpha, 1.0 / (len(self.validation) + 1))
            if len(self.validation):
                self.predictor.calibrate_ood(self.validation.X, self.validation.exposure, alpha=level, upper=upper)
            return
        is_kept = fold_numbers(len(train), FOLDS, 0).numpy() == 0
        if not is_kept.any() or is_kept.all():
            return
        others, kept = train.rows(~is_kept), train.rows(is_kept)
        self.predictor.profile = FeatureProfile.fit(others.X, others.weight, tuple(time_columns))
        scores = self.predictor.profile.measure(kept.X).score
        level = max(alpha, 1.0 / (len(kept) + 1))
        self.predictor.ood = OODScores.of_features(scores, level)
