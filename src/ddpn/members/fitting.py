"""Fit one member within a time limit, in this process or as jobs that may run in parallel.

Under a time limit, a member is first fitted to a sample of the training rows. If time is left, it is fitted again to
more rows.
"""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType

import numpy as np

from ddpn.distributions.kernels.compiling import read_clock_without_compiling
from ddpn.members.folds import Folds, JobOptions, MemberJobs
from ddpn.members.member import Member, MemberSpec, NotApplicableError, is_shipped
from ddpn.rows.splits import draw_held_out_rows
from ddpn.runtime.deadlines import NO_LIMIT, Clock, TimeLimitError
from ddpn.runtime.errors import DDPNError, describe_error
from ddpn.runtime.jobs import JobError
from ddpn.runtime.time_plan import NEARLY_ALL_SHARE, count_affordable_rows, start_member_clock

#: Under a time limit: the rows of a large table with which the first member begins, per second left and at least, for a
#: table of 20 columns. It is only a guess; measured times replace it. At least 6,000, because networks for up to 5,000
#: rows are smaller.
FIRST_ROWS_PER_SECOND, _TYPICAL_COLUMNS, MIN_FIRST_ROWS = 1000.0, 20, 6_000
#: If a member runs out of time, it is fitted to this share of the rows. The second number is the fewest rows of a large
#: table to which a member is fitted.
_RETRY_SHARE, _MIN_ROWS = 0.25, 1_000
#: The reason that is given if a member is left out for lack of time.
TIME_IS_UP = "the time budget is too short"


def is_member_error(error: Exception) -> bool:
    """Return True if a fit failed because of the model itself, such as an error of its optimiser.

    Return False for errors in the user's input and for errors of the machine (files, memory).
    """
    return isinstance(error, JobError) or not isinstance(error, DDPNError | OSError | MemoryError)


def describe_member_error(error: Exception, kind: type[Member]) -> str:
    """Describe the error that a member raised, as the reason why the mixture is fitted without this member.

    `kind` is the class of the member. If a user has written it, the reason ends with the line of that file.
    """
    if isinstance(error, JobError | NotApplicableError):  # their messages are reasons already
        return str(error).removesuffix(".")
    return f"it raised {describe_error(error).removesuffix('.')}{_locate_error(error, kind)}"


def _locate_error(error: Exception, kind: type[Member]) -> str:
    """Return words such as " (line 31 of my_member.py)" for the innermost call in the file of a user's member.

    Return "" if the class `kind` is part of ddpn, or if the error was not raised in its file.
    """
    if is_shipped(kind):
        return ""
    functions = (getattr(value, "__func__", value) for value in vars(kind).values())
    files = {function.__code__.co_filename for function in functions if isinstance(function, FunctionType)}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""


@dataclass(frozen=True)
class MemberFit:
    """The result of fitting a member: the member and its fitting time in seconds, or the reason why the fit failed.

    `n_rows` is the number of training rows to which the member was fitted under a time limit. It is None for a member
    that is always fitted to all rows: a baseline, or any member without a time limit or without held-out rows. `error`
    is the exception that ended the fit, if any. `is_interrupted` is True if the user pressed Ctrl-C. In this case,
    `member` is the best result so far, or None.
    """

    member: Member | None = None
    seconds: float = 0.0
    n_rows: int | None = None
    reason: str = ""
    error: Exception | None = None
    is_interrupted: bool = False


class MemberFitter:
    """Fits members one after the other, each to as many training rows as the time limit allows.

    Under a time limit, a member is fitted to a sample first, and to more rows if time is left.

    Parameters
    ----------
    specs : sequence of MemberSpec
        All members to fit.
    folds : Folds
        The training rows and the held-out rows.
    seed : int
        The seed of all fits.
    clock : Clock
        The time limit of all fits together.
    on_step : callable
        Called with a progress message before a member is fitted again to more rows.
    jobs : JobOptions or None
        Options for fitting members as parallel jobs. None fits them in this process.
    """

    def __init__(
        self,
        specs: Sequence[MemberSpec],
        folds: Folds,
        seed: int,
        clock: Clock,
        on_step: Callable[[str], object],
        jobs: JobOptions | None,
    ) -> None:
        self.specs, self.folds, self.seed, self.clock = specs, folds, seed, clock
        self.on_step, self.jobs = on_step, jobs
        #: The numbers of rows to which earlier members were fitted; and the jobs, by their number of rows.
        self._n_rows: list[int] = []
        self._fits: dict[int, MemberJobs] = {}

    def fit(self, spec: MemberSpec, members_left: int) -> MemberFit:
        """Fit the member `spec` to as many training rows as the time limit allows.

        The member is first fitted to a sample of the rows. The time that this takes determines to how many rows it is
        fitted next. Without a time limit, or without held-out rows, it is fitted to all rows at once, and so are
        baselines. `members_left` is the number of members, including this one, that share the remaining time. If the
        fit failed, the result has the reason instead of a member. If only the fit to more rows failed, it has the
        member that was fitted to fewer rows.
        """
        total, started = len(self.folds.train), time.monotonic()
        has_held_out_rows = self.folds.are_crossed or self.folds.validation is not None
        clock = self._start_clock(spec, members_left)
        if spec.is_baseline or not self.clock.has_limit or not has_held_out_rows:
            return self._fit_to_rows(spec, total, clock)
        # Begin with a number of rows that was affordable for all earlier members, because times per row differ widely.
        # Then use as many rows as this member has time for.
        rows = min(self._n_rows) if self._n_rows else min(total, self._guess_rows())
        rows = total if rows >= NEARLY_ALL_SHARE * total else rows
        fit = self._fit_to_rows(spec, rows, clock)
        if fit.reason == TIME_IS_UP and _RETRY_SHARE * rows >= _MIN_ROWS:
            # If members are jobs, this member may have been fitted to fewer rows before.
            rows = max((number for number in self._fits if number < rows), default=int(_RETRY_SHARE * rows))
            clock = self._start_clock(spec, members_left)
            fit = self._fit_to_rows(spec, rows, clock)
        if fit.member is None:
            return fit
        # If members are jobs, only the first one is measured, because all of them run at the same time.
        while not fit.is_interrupted and (self.jobs is None or not self._n_rows):
            affordable_rows = count_affordable_rows(clock, rows, time.monotonic() - started, total)
            if not affordable_rows:
                break
            started = time.monotonic()
            self.on_step(f"Fitting {spec.label} to {affordable_rows:,} rows after {rows:,}")
            refit = self._fit_to_rows(spec, affordable_rows, clock)
            if refit.member is None:
                fit = replace(fit, is_interrupted=refit.is_interrupted)
                break
            fit, rows = refit, affordable_rows
        self._n_rows.append(rows)
        return replace(fit, n_rows=rows)

    def _start_clock(self, spec: MemberSpec, members_left: int) -> Clock:
        """Return a clock that limits the member `spec` to its share of the remaining time. Baselines have no limit.

        The remaining time is divided equally among `members_left` members, including this one. Members that are fitted
        as parallel jobs need not share it.
        """
        if spec.is_baseline:
            return NO_LIMIT  # it takes almost no time, and is the model if nothing else can be fitted
        # Jobs run at the same time.
        return start_member_clock(self.clock, 1 if self.jobs is not None else members_left)

    def _guess_rows(self) -> int:
        """Guess how many rows the first fit can afford, from the time left and the number of columns."""
        columns = max(_TYPICAL_COLUMNS, *tuple(getattr(self.folds.train.X, "shape", ()))[1:2])
        guess = max(MIN_FIRST_ROWS, FIRST_ROWS_PER_SECOND * self.clock.left) * _TYPICAL_COLUMNS / columns
        return max(_MIN_ROWS, int(guess))

    def _sample_rows(self, rows: int) -> Folds:
        """Draw a random sample of about `rows` training rows, and return it as `Folds`. Groups are kept whole.

        The held-out rows stay the same. Return all rows if `rows` is at least the number of training rows, or if the
        sample has no row of some fold.
        """
        train, fold_numbers = self.folds.train, self.folds.fold_numbers
        if rows >= len(train):
            return self.folds
        chosen = draw_held_out_rows(len(train), rows / len(train), self.seed, train.group)
        if fold_numbers is not None and len(np.unique(fold_numbers[chosen])) <= fold_numbers.max():
            return self.folds  # every fold needs some rows
        sampled_folds = None if fold_numbers is None else fold_numbers[chosen]
        return replace(self.folds, train=train.rows(chosen), fold_numbers=sampled_folds)

    def _fit_to_rows(self, spec: MemberSpec, rows: int, clock: Clock) -> MemberFit:
        """Fit the member `spec` to a sample of about `rows` training rows within the time limit of `clock`.

        If the model itself fails or cannot be fitted in time, the result has a `reason` instead of a `member`. Errors
        in the user's input and errors of the machine are raised.
        """
        started = read_clock_without_compiling()
        try:
            with clock.limit():
                if self.jobs is not None and not spec.is_baseline:
                    member, seconds = self._fit_as_job(spec, self.jobs, rows, clock)
                else:
                    member = self._sample_rows(rows).fit(spec, self.seed, clock)
                    seconds = read_clock_without_compiling() - started
        except NotApplicableError as error:
            return MemberFit(reason=str(error))
        except TimeLimitError:
            return MemberFit(reason=TIME_IS_UP)
        except KeyboardInterrupt:
            return MemberFit(is_interrupted=True)
        except Exception as error:
            if not is_member_error(error):
                raise
            return MemberFit(reason=describe_member_error(error, spec.kind), error=error)
        return MemberFit(member, seconds, is_interrupted=member.interrupted)

    def _fit_as_job(self, spec: MemberSpec, jobs: JobOptions, rows: int, clock: Clock) -> tuple[Member, float]:
        """Fit the member `spec` as a job to a sample of about `rows` training rows, within the time limit of `clock`.

        `jobs` says where jobs run and whether their results are stored. Return the member and its fitting time in
        seconds. The first call with a number of rows also fits all other members in parallel, except baselines and
        larger versions of other members. Later calls with this number of rows return their results.
        """
        if rows not in self._fits:
            self._fits[rows] = MemberJobs(jobs, self._sample_rows(rows), self.seed)
        parallel_specs = [
            other for other in self.specs if other is spec or not (other.larger_than or other.is_baseline)
        ]
        member = self._fits[rows].fit(spec.name, parallel_specs, clock)
        return member, self._fits[rows].seconds[spec.name]
