"""How a time budget is spent: most of it on fitting, the rest on calibration, scores and saving."""

import time

import numpy as np

from ddpn.deadlines import Clock
from ddpn.estimators.calibration_rows import CalibrationRows
from ddpn.predictor import Predictor
from ddpn.sample import Sample
from ddpn.workflow.leaderboard import score_rows

#: The share of the time that fits may take, and the seconds that are kept in any case for what follows them.
_FITS, _KEPT = 0.7, 2.0
#: Shares of the time left for calibration, and then for scores.
_CALIBRATION, _SCORES = 0.4, 0.6
#: Rows by which the time of a prediction is measured, and the fewest that are calibrated with or scored.
_MEASURED, _FEWEST = 200, 100


class Budget:
    """The time of a fit, from the start of a command until its model is saved.

    Parameters
    ----------
    seconds : float, optional
        The time there is. Default: no limit.
    started : float, optional
        When it began, as `time.monotonic` counts. Default: now.
    """

    def __init__(self, seconds: float | None = None, started: float | None = None) -> None:
        self.clock = Clock(seconds, started)
        self._per_row = 0.0

    @property
    def for_fits(self) -> float | None:
        """Seconds for fits; None if there is no limit."""
        return max(1.0, min(_FITS * self.clock.left, self.clock.left - _KEPT)) if self.clock.has_limit else None

    def measure(self, predictor: Predictor, sample: Sample) -> None:
        """Measure how long a row of this sample takes to predict and score."""
        if self.clock.has_limit and len(sample):
            part, begun = sample.rows(slice(0, _MEASURED)), time.monotonic()
            score_rows(predictor, part)
            self._per_row = (time.monotonic() - begun) / len(part)

    @property
    def has_time(self) -> bool:
        """Whether members to compare with can be fitted."""
        return self.clock.left > _KEPT

    def calibrating(self, rows: CalibrationRows, members: int) -> None:
        """Keep as many calibration rows as there is time for."""
        kept = self._affordable(len(rows.sample), members, _CALIBRATION)
        if kept < len(rows.sample):
            rows.keep(np.sort(np.random.default_rng(0).choice(len(rows.sample), kept, replace=False)))

    def scored(self, sample: Sample, members: int) -> Sample:
        """As many rows as there is time to score."""
        kept = self._affordable(len(sample), members, _SCORES)
        if kept == len(sample):
            return sample
        return sample.rows(np.sort(np.random.default_rng(0).choice(len(sample), kept, replace=False)))

    def _affordable(self, rows: int, members: int, share: float) -> int:
        if not self.clock.has_limit or not self._per_row:
            return rows
        # The mixture costs about as much as all its members together.
        return int(np.clip(share * self.clock.left / (2.0 * self._per_row * max(1, members) ** 0.5), _FEWEST, rows))
