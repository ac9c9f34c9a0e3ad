"""What follows the fits: calibration and scores. Ctrl-C ends a step and keeps the model."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ddpn.analysis.leaderboard import leaderboard
from ddpn.calibration.calibrate import CalibrationOptions, calibrate
from ddpn.calibration.profile import FeatureProfile
from ddpn.members.folds import Folds
from ddpn.predictor import Predictor
from ddpn.runtime.deadlines import Clock, with_rows
from ddpn.workflow.interrupts import Interrupts
from ddpn.workflow.preparing import Prepared

#: Rows that the level of all rows counts as in each group.
GROUP_ROWS = 50.0


@dataclass
class Finish:
    """The steps after the fits.

    Parameters
    ----------
    predictor : Predictor
        The fitted model.
    prepared : Prepared
        Its table.
    interrupts : Interrupts
        What Ctrl-C ends.
    on_step : callable
        Called with a description of each step.

    Attributes
    ----------
    missing : list of str
        Steps that Ctrl-C ended or prevented: "calibration", "scores".
    """

    predictor: Predictor
    prepared: Prepared
    interrupts: Interrupts
    on_step: Callable[[str], None]
    missing: list[str] = field(default_factory=list)

    def calibrate(self, folds: Folds, clock: Clock) -> None:
        """Calibrate distributions, intervals and out-of-distribution flags, or leave all of them as they were fitted.

        Parameters
        ----------
        folds : Folds
            The rows that members were fitted to, and those that were held out.
        clock : Clock
            The time there is.
        """
        if not folds.are_crossed and folds.validation is None:
            self.predictor.profile = FeatureProfile.fit(folds.train.X, folds.train.weight, self.prepared.time_columns)
            return
        plan, known = self.prepared.plan, sum(map(len, folds.held_out))
        wanted = CalibrationOptions(
            plan.recalibrate != "off", plan.interval_groups, GROUP_ROWS, self.prepared.time_columns
        )
        used: list[int] = []
        self.on_step("Calibrating on rows that were not trained on")
        if not self.interrupts.step(lambda: used.append(calibrate(self.predictor, folds, plan.seed, wanted, clock))):
            # Ctrl-C may have left some of it.
            self.predictor.intervals, self.predictor.groups = {}, None
            self.predictor.recalibrations, self.predictor.ood = {}, None
            self._leave_out("calibration", "The model is not calibrated, because the fit was stopped.")
        elif 0 < used[0] < known:
            _warn_of_rows("calibrated with", used[0], known, "rows")

    def scores(self, clock: Clock) -> dict[str, Any] | None:
        """The leaderboard of as many test rows as there is time for; None if Ctrl-C ended it.

        Parameters
        ----------
        clock : Clock
            The time there is.
        """
        test, found = self.prepared.test, list[dict[str, Any]]()
        order = np.random.default_rng(self.prepared.plan.seed).permutation(len(test))

        def work(number: int) -> dict[str, Any]:
            some = test if number == len(test) else test.rows(np.sort(order[:number]))
            return leaderboard(self.predictor, some, self.prepared.leaks, self.prepared.split.meaning).to_dict()

        self.on_step("Scoring the test rows")
        if not self.interrupts.step(lambda: found.append(with_rows(clock, len(test), work))):
            self._leave_out("scores", "The model is not scored, because the fit was stopped.")
            return None
        if found[0]["rows"] < len(test):
            _warn_of_rows("scored on", found[0]["rows"], len(test), "test rows")
        return found[0]

    def _leave_out(self, step: str, sentence: str) -> None:
        self.missing.append(step)
        warnings.warn(sentence, UserWarning, stacklevel=3)


def _warn_of_rows(what: str, used: int, known: int, rows: str) -> None:
    sentence = f"The model is {what} {used:,} of {known:,} {rows}, because the time budget is too short for more."
    warnings.warn(sentence, UserWarning, stacklevel=4)
