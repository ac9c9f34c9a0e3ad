"""How a time budget is divided: among the steps of a fit, among members, and by the number of rows.

A step begins with few rows, its time per row is measured, and it goes on with as many rows as there is time for. What
a step leaves over goes to the steps after it. Only the first rows of the first member are a guess
(`ddpn.members.fitting`).
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ddpn.runtime.deadlines import NO_LIMIT, Clock, TimeLimitError

Result = TypeVar("Result")

#: The steps of a fit, in their order, and how much of the time each of them is given in relation to the others.
STEPS = {"members": 75, "comparisons": 4, "calibration": 10, "scores": 8}
#: Seconds that each later step is left in any case, and that a step gets at least: a constant distribution takes less.
MIN_SECONDS_LATER, MIN_SECONDS = 0.8, 0.3
#: With less time left, no further model is fitted for comparison.
MIN_SECONDS_TO_COMPARE = 2.5
#: The share of a budget, and the seconds, that are kept for saving the model and for the end of the program.
END_SHARE, MIN_END_SECONDS = 0.03, 0.6
#: A member is asked to end after its share of the time, and ended after so many times its share; the last one is asked
#: after so much of the time that is left. Scoring the member for its weight takes the rest.
HARD_LIMIT, LAST_SHARE = 1.5, 0.8


def make_budget_clock(seconds: float | None, started: float | None = None) -> Clock:
    """Return the clock of a whole fit, which ends a moment before the budget; without a budget, it never ends."""
    return Clock(None if seconds is None else seconds - max(END_SHARE * seconds, MIN_END_SECONDS), started)


class StepRunner:
    """Runs steps one after the other until a `KeyboardInterrupt` ends one of them; later ones are not begun.

    >>> def stop():
    ...     raise KeyboardInterrupt
    >>> runner = StepRunner()
    >>> [runner.run(step) for step in (list, stop, list)]
    [True, False, False]
    """

    def __init__(self) -> None:
        self.is_stopped = False

    def run(self, step: Callable[[], object]) -> bool:
        """Run a step unless an earlier one was stopped; return whether it was completed."""
        if self.is_stopped:
            return False
        try:
            step()
        except KeyboardInterrupt:
            self.is_stopped = True
        return not self.is_stopped


@dataclass(frozen=True)
class Schedule:
    """The steps of a fit: which there are, how they divide the time, who is told, and what Ctrl-C ends.

    Parameters
    ----------
    clock : Clock
        The time of all steps.
    on_step : callable
        Called with a line on each step that begins.
    runner : StepRunner
        Runs the steps after the fit of the members, each of which Ctrl-C may end.
    steps : tuple of str
        Names in `STEPS`, in that order.
    """

    clock: Clock = NO_LIMIT
    on_step: Callable[[str], object] = lambda text: None
    runner: StepRunner = field(default_factory=StepRunner)
    steps: tuple[str, ...] = tuple(STEPS)

    def start_clock(self, step: str) -> Clock:
        """Start the clock of a step: its share of the time left, of which the later steps get the rest.

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
    """Start the clock of a member, which should end by itself, and is ended somewhat later.

    The time left is divided equally among the members that are still to be fitted, this one included.
    """
    if not clock.has_limit:
        return clock
    share = clock.left / members_left if members_left > 1 else LAST_SHARE * clock.left
    return Clock(share, hard_seconds=min(HARD_LIMIT * share, 0.5 * (1.0 + LAST_SHARE) * clock.left))


# How many rows the time allows ----------------------------------------------------------------------------------------

#: Rows that work begins with, by which its time per row is measured, and those that it is done with in any case.
FIRST_ROWS, _MIN_ROWS = 100, 20
#: The share of the time left that work with more rows is planned to take, because a machine may become busier: by the
#: time of the first rows, and of many rows.
FIRST_PLANNED_SHARE, PLANNED_SHARE = 0.6, 0.75
#: By how much more rows must be more to be worth the time, and the share of all rows that is rounded up to all.
MIN_GROWTH, NEARLY_ALL_SHARE = 1.5, 0.85


def count_affordable_rows(clock: Clock, done: int, seconds: float, rows: int, planned: float = PLANNED_SHARE) -> int:
    """Return how many rows to work with next, after `done` rows took so many seconds; 0 if more are not worth it.

    >>> count_affordable_rows(Clock(1.0), 90, 1.0, 10_000)
    0
    >>> round(count_affordable_rows(Clock(80.0), 1_000, 1.0, 1_000_000), -3)
    60000
    """
    if not clock.has_limit:
        return rows if done < rows else 0
    more = math.floor(planned * clock.left * done / max(seconds, 1e-3))
    more = rows if more >= NEARLY_ALL_SHARE * rows else more
    # A few rows more are not worth the time, unless they are all that are left.
    return 0 if done >= rows or more < min(rows, MIN_GROWTH * done) else more


def run_with_rows(clock: Clock, rows: int, work: Callable[[int], Result]) -> Result:
    """Call `work` with as many rows as the time allows, but at least some, and return its result.

    `work` takes a number of rows. It begins with few rows, and goes on with as many more as the time per row that was
    measured last allows: that of few rows contains what is done once. What it did before is kept if it is ended by a
    `TimeLimitError`.

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
    planned = FIRST_PLANNED_SHARE
    while more := count_affordable_rows(clock, done, time.monotonic() - started, rows, planned):
        started = time.monotonic()
        try:
            with clock.limit():
                result = work(more)
        except TimeLimitError:
            break
        done, planned = more, PLANNED_SHARE
    return result
