"""Fits of members as jobs of an executor: several members at once, and the copies that cross-fitting needs."""

import json
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from typing import Any

from ddpn.deadlines import Clock, TimeLimitError
from ddpn.errors import DDPNError
from ddpn.executors import Executor, Job, Result, ResultStore
from ddpn.executors.job import Progress
from ddpn.members.cross_fitting import FOLDS, folds_of, joined
from ddpn.members.member import Member, arrays_from_bytes, arrays_to_bytes, json_to_bytes
from ddpn.sample import Sample
from ddpn.training.monitoring import monitored

#: Names of the files of a job beside those of the member, whose names are prefixed.
_FACTS, _RAW, _PREFIX = "facts.json", "out_of_fold", "member/"
#: The share of its time after which a member ends by itself, before it is ended.
_OWN_SHARE = 0.8


class MemberFits:
    """Fits members on an executor; `fitted` returns one, and begins others that do not depend on it at the same time.

    Parameters
    ----------
    executor : Executor
        Where to fit.
    train : Sample
        Training rows.
    validation : Sample or None
        Validation rows. Without them, members are cross-fitted.
    seed : int
        Seed of all fits.
    store : ResultStore, optional
        Where fits are kept until all are done.
    about : object, optional
        What else the fits depend on, as values that JSON can hold.
    on_step : callable
        Called with a line on each fit that is over.
    """

    def __init__(
        self,
        executor: Executor,
        train: Sample,
        validation: Sample | None,
        seed: int,
        store: ResultStore | None = None,
        about: Any = None,
        on_step: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.executor, self.train, self.validation, self.seed = executor, train, validation, seed
        self.store, self.on_step = executor.store if store is None else store, on_step
        self.seconds: dict[str, float] = {}
        self._found: dict[str, Member | DDPNError] = {}
        self._rows = executor.share((train, validation))
        digests = [None if part is None else part.digest() for part in (train, validation)] if self.store else []
        self._about = [about, seed, digests]

    def fitted(
        self, name: str, members: Mapping[str, Member], crossed: Collection[str] = (), clock: Clock | None = None
    ) -> Member:
        """A fitted member, or its error is raised.

        Parameters
        ----------
        name : str
            Its name.
        members : mapping of str to Member
            Unfitted members to fit now, if it is not known yet: this one among them.
        crossed : collection of str
            Names of members that need predictions of training rows by copies that left them out.
        clock : Clock, optional
            Ends what takes longer.
        """
        if name not in self._found:
            self._fit({key: member for key, member in members.items() if key not in self._found}, crossed, clock)
        found = self._found[name]
        if isinstance(found, DDPNError):
            raise found
        return found

    def _fit(self, members: Mapping[str, Member], crossed: Collection[str], clock: Clock | None) -> None:
        jobs: dict[Job, tuple[str, int | None]] = {}
        folds = min(FOLDS, len(self.train))
        for name, member in members.items():
            copies = range(folds) if name in crossed and not member.leaves_out else ()
            for number in (None, *copies):
                jobs[self._job(name, member, number, clock)] = (name, number)
        results: dict[tuple[str, int | None], Result] = {}
        try:
            for result in self.executor.run(jobs, self._follow, self.store):
                results[jobs[result.job]] = result
        except TimeLimitError as error:
            # What is over is kept.
            for name in members:
                self._found.setdefault(name, error)
        for name, member in members.items():
            own = [results.get(key) for key in jobs.values() if key[0] == name]
            if all(result is not None for result in own):
                self._found[name] = self._member(name, member, [result for result in own if result is not None])

    def _job(self, name: str, member: Member, number: int | None, clock: Clock | None) -> Job:
        # By the clock on the wall, which machines share: a job may begin later.
        end = time.time() + clock.left if clock is not None and clock.has_limit else None
        label = member.label or name
        title = label if number is None else f"{label}, fold {number + 1}"
        identity = [name, type(member).__name__, number, *self._about]
        return Job(title, fit_member, (member, self._rows, self.seed, number, end), identity)

    def _follow(self, job: Job, state: str, detail: Any) -> None:
        if state == "retried":
            self.on_step(f"Fitting {job.name} again: {detail}")
        elif state == "done":
            self.on_step(f"Fitted {job.name}")

    def _member(self, name: str, member: Member, results: list[Result]) -> Member | DDPNError:
        """The fitted member, whose own fit is the first of these."""
        for result in results:
            if result.error is not None:
                return result.error
        found, facts = _restored(type(member), results[0].get())
        self.seconds[name] = sum(json.loads(result.get()[_FACTS])["seconds"] for result in results)
        for text in facts["warnings"]:
            warnings.warn(text, UserWarning, stacklevel=5)
        if _RAW in results[0].get():
            found.keep_out_of_fold(arrays_from_bytes(results[0].get()[_RAW])["raw"], self.train.exposure)
        elif len(results) > 1:
            copies = (_restored(type(member), result.get())[0] for result in results[1:])
            found.out_of_fold = joined(copies, self.train, folds_of(self.train, self.seed))
        return found


def fit_member(
    progress: Progress, member: Member, rows: tuple[Sample, Sample | None], seed: int, number: int | None, end: Any
) -> dict[str, bytes]:
    """Fit a member to all rows, or to those outside of a fold; its files. `end` is when its time is up."""
    train, validation = rows
    if number is not None:
        train = train.rows(folds_of(train, seed) != number)
    clock = Clock(None if end is None else max(0.0, end - time.time()))
    member = deepcopy(member)  # in this process, another attempt or fold has the same one
    member.clock = clock.part(_OWN_SHARE * clock.left) if clock.has_limit else None
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught, clock.limit():
        warnings.simplefilter("always")
        with monitored(lambda report: progress(f"epoch {report.epoch} of {report.epochs}")):
            member = member.fit(train, validation, seed)
    told = [str(each.message) for each in caught if not issubclass(each.category, DeprecationWarning | FutureWarning)]
    files = {f"{_PREFIX}{name}": content for name, content in member.state().items()}
    files[_FACTS] = json_to_bytes({"seconds": time.perf_counter() - started, "warnings": told})
    if member.out_of_fold_raw is not None and number is None:
        files[_RAW] = arrays_to_bytes(raw=member.out_of_fold_raw)
    return files


def _restored(kind: type[Member], files: Mapping[str, bytes]) -> tuple[Member, dict[str, Any]]:
    own = {name.removeprefix(_PREFIX): content for name, content in files.items() if name.startswith(_PREFIX)}
    return kind.from_state(own), json.loads(files[_FACTS])
