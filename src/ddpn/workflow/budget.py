"""How a time budget is spent: most of it on fitting, the rest on calibration, scores and saving."""

from ddpn.runtime.deadlines import Clock

#: The share of the time that fits may take, and the seconds that are kept in any case for what follows them.
_FITS, _KEPT = 0.7, 2.5
#: Seconds of fits at least: a constant distribution takes less.
_SHORTEST = 0.3
#: Shares of the time left: for calibration, for scores, and for one model to compare with.
_CALIBRATION, _SCORES, _COMPARISON = 0.4, 0.6, 0.15
#: The share of the budget, and the seconds, that are not planned with: the end of the program takes them.
_RESERVE, _END = 0.03, 0.6


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
        self.clock = Clock(None if seconds is None else seconds - max(_RESERVE * seconds, _END), started)

    @property
    def for_fits(self) -> float | None:
        """Seconds for fits; None if there is no limit."""
        if not self.clock.has_limit:
            return None
        return max(_SHORTEST, min(_FITS * self.clock.left, self.clock.left - _KEPT))

    @property
    def has_time(self) -> bool:
        """Whether members to compare with can be fitted."""
        return self.clock.left > _KEPT

    @property
    def for_comparison(self) -> Clock:
        """The time for a model to compare with."""
        return self.clock.part(_COMPARISON * self.clock.left)

    @property
    def for_calibration(self) -> Clock:
        """The time for calibration."""
        return self.clock.part(_CALIBRATION * self.clock.left)

    @property
    def for_scores(self) -> Clock:
        """The time for scores, which leaves some to save the model."""
        return self.clock.part(_SCORES * self.clock.left)
