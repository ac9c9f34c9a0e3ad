"""Divide a time budget among the steps and members (models) of a fit, and choose how many rows a step can use.

A step begins with few rows to measure its time per row. Then it continues with as many rows as there is time for. Time
that a step does not use goes to later steps. Only the number of rows of the first member is estimated without a
measurement (`ddpn.members.fitting`).
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ddpn.runtime.deadlines import NO_LIMIT, Clock, TimeLimitError

Result = TypeVar("Result")

#: The steps of a fit in order, with their relative shares of the time.
STEPS = {"members": 75, "comparisons": 4, "calibration": 10, "scores": 8}
#: Seconds that are reserved for each later step, and the fewest seconds of a step: enough for a constant distribution.
MIN_SECONDS_LATER, MIN_SECONDS = 0.8, 0.3
#: The fewest seconds left with which another model is fitted for comparison.
MIN_SECONDS_TO_COMPARE = 2.5
#: The share of a budget, and at least the seconds, that are reserved for saving the model and ending the program.
END_SHARE, MIN_END_SECONDS = 0.03, 0.6
#: The hard limit of a member as a multiple of its soft limit, which is its share of the time; and the share of the time
#: left that the last member gets. The remaining time is needed to score members for their weights.
HARD_LIMIT_RATIO, LAST_MEMBER_SHARE = 1.5, 0.8


def make_budget_clock(seconds: float | None, started: float | None = None) -> Clock:
    """Make the clock of a whole fit.

    The clock ends shortly before `seconds` have passed, so that the model can be saved in time. If `seconds` is None,
    it never ends. `started` is the start of the fit, a value of `time.monotonic`; by default, it is now.
    """
    return Clock(None if seconds is None else seconds - max(END_SHARE * seconds, MIN_END_SECONDS), started)


class StepRunner:
    """A runner of the steps of a fit. If Ctrl-C (`KeyboardInterrupt`) ends a step, it skips all later steps.

    >>> def stop():
    ...     raise KeyboardInterrupt
    >>> runner = StepRunner()
    >>> [runner.run(step) for step in (list, stop, list)]
    [True, False, False]
    """

    def __init__(self) -> None:
        self.is_stopped = False

    def run(self, step: Callable[[], object]) -> bool:
        """Run a step, unless Ctrl-C has ended an earlier one; return True if the step was completed."""
        if self.is_stopped:
            return False
        try:
            step()
        except KeyboardInterrupt:
            self.is_stopped = True
        return not self.is_stopped


@dataclass(frozen=True)
class Schedule:
    """The steps of a fit: how they divide the time limit, report progress, and end on Ctrl-C.

    Parameters
    ----------
    clock : Clock
        The time limit of all steps together.
    on_step : callable
        Called with a description of each step when it begins.
    runner : StepRunner
        Runs the steps that follow the fit of the members (models), so that Ctrl-C can end them.
    steps : tuple of str
        The names of the steps of the fit: keys of `STEPS`, in the same order. Default: all of them.
    """

    clock: Clock = NO_LIMIT
    on_step: Callable[[str], object] = lambda text: None
    runner: StepRunner = field(default_factory=StepRunner)
    steps: tuple[str, ...] = tuple(STEPS)

    def start_clock(self, step: str) -> Clock:
        """Start the clock of a step. The time left is divided among this and all later steps, by the shares in `STEPS`.

        So the first step of a fit, "members", gets 75 / (75 + 4 + 10 + 8) of the time, and the last one, "scores", gets
        all the time that is still left.

        >>> schedule = Schedule(Clock(100.0))
        >>> round(schedule.start_clock("members").left), round(schedule.start_clock("scores").left)
        (77, 100)
        """
        clock = self.clock
        if not clock.has_limit:
            return clock
        later = self.steps[self.steps.index(step) + 1 :]
        share = STEPS[step] / (STEPS[step] + sum(STEPS[name] for name in later))
        return Clock(max(MIN_SECONDS, min(share * clock.left, clock.left - MIN_SECONDS_LATER * len(later))))


def start_member_clock(clock: Clock, members_left: int) -> Clock:
    """Start the clock of a member, one of the models of a fit.

    The time left is divided equally among `members_left` members, including this one. But the last member gets only 80%
    of it, because scoring the members for their weights takes time as well.

    The result of this division is the soft limit, at which the member should stop by itself. The hard limit is 1.5
    times as long, but at most 90% of the time left.
    """
    if not clock.has_limit:
        return clock
    share = clock.left / members_left if members_left > 1 else LAST_MEMBER_SHARE * clock.left
    return Clock(share, hard_seconds=min(HARD_LIMIT_RATIO * share, 0.5 * (1.0 + LAST_MEMBER_SHARE) * clock.left))


# How many rows the time allows ----------------------------------------------------------------------------------------

#: The number of rows with which work begins, to measure its time per row; and the number of rows with which it is done
#: even if the time is up.
FIRST_ROWS, _MIN_ROWS = 100, 20
#: The share of the time left that the next step is planned to take, because the machine may become busier: after the
#: first rows, and after larger numbers of rows.
FIRST_PLANNED_SHARE, PLANNED_SHARE = 0.6, 0.75
#: The smallest factor by which the number of rows must grow to be worth another step, and the share of all rows above
#: which all rows are used.
MIN_GROWTH, NEARLY_ALL_SHARE = 1.5, 0.85


def count_affordable_rows(
    clock: Clock, done: int, seconds: float, rows: int, planned_share: float = PLANNED_SHARE
) -> int:
    """Return the number of rows to use next, given that the work on `done` rows took `seconds`.

    `rows` is the number of all rows, and `planned_share` is the share of the time left that the work on the next rows
    should take. If this is enough time for 85% of all rows, all are used. If it is enough for fewer than 1.5 times
    `done` rows, and not for all, the result is 0: another step is not worth its time.

    If the clock has no limit, all rows are used next. If all were used already, the result is 0.

    >>> count_affordable_rows(Clock(1.0), 90, 1.0, 10_000)
    0
    >>> round(count_affordable_rows(Clock(80.0), 1_000, 1.0, 1_000_000), -3)
    60000
    """
    if not clock.has_limit:
        return rows if done < rows else 0
    more = math.floor(planned_share * clock.left * done / max(seconds, 1e-3))
    more = rows if more >= NEARLY_ALL_SHARE * rows else more
    # A small increase is not worth the time, unless it completes the rows.
    return 0 if done >= rows or more < min(rows, MIN_GROWTH * done) else more


def run_with_rows(clock: Clock, rows: int, work: Callable[[int], Result]) -> Result:
    """Call `work` with increasing numbers of rows while there is time, and return its last result.

    If the clock has no limit, `work` is called once, with all `rows`. Otherwise, the first call is with 100 rows, or
    with all if there are fewer. The measured time per row determines the number of rows of the next call, up to `rows`
    (`count_affordable_rows`).

    If the time runs out during a call (`TimeLimitError`), the result of the previous call is returned. If it runs out
    during the first call, `work` is called with 20 rows and no time limit.

    >>> run_with_rows(Clock(), 1000, lambda number: f"{number} rows")
    '1000 rows'
    """
    if not clock.has_limit:
        return work(rows)
    started, done = time.monotonic(), min(rows, FIRST_ROWS)
    try:
        with clock.limit():
            result = work(done)
    except TimeLimitError:
        return work(min(rows, _MIN_ROWS))
    planned_share = FIRST_PLANNED_SHARE
    while more := count_affordable_rows(clock, done, time.monotonic() - started, rows, planned_share):
        started = time.monotonic()
        try:
            with clock.limit():
                result = work(more)
        except TimeLimitError:
            break
        done, planned_share = more, PLANNED_SHARE
    return result
