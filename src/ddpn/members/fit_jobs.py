"""Fits of members as jobs: several members at once, and the copies that cross-fitting needs."""

import json
import time
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from ddpn.members.folds import CrossFitted, Folds, restored
from ddpn.members.member import Member, json_to_bytes
from ddpn.runtime.deadlines import Clock, TimeLimitError
from ddpn.runtime.errors import DDPNError
from ddpn.runtime.jobs import Job, Result, Store, Where, run

#: Names of the files of a job beside those of the member, whose names are prefixed.
_FACTS, _PREFIX = "facts.json", "member/"


class MemberFits:
    """Fits members as jobs; `fitted` returns one, and begins others that do not depend on it at the same time.

    Parameters
    ----------
    n_jobs : int or RayCluster
        Where to fit, as for `ddpn.runtime.jobs.run`.
    folds : Folds
        Rows to fit to and rows to hold out.
    seed : int
        Seed of all fits.
    store : Store, optional
        Where fits are kept until all are done.
    about : object, optional
        What else the fits depend on, as values that JSON can hold.
    on_step : callable
        Called with a line on each fit that is over.
    """

    def __init__(
        self,
        n_jobs: Where,
        folds: Folds,
        seed: int,
        store: Store | None = None,
        about: Any = None,
        on_step: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.n_jobs, self.folds, self.seed = n_jobs, folds, seed
        self.store, self.on_step = store, on_step
        self.seconds: dict[str, float] = {}
        self._found: dict[str, Member | DDPNError] = {}
        digests = [None if part is None else part.digest() for part in (folds.train, folds.validation)]
        self._about = [about, seed, digests if self.store else []]

    def fitted(self, name: str, members: Mapping[str, Member], clock: Clock | None = None) -> Member:
        """A fitted member, or its error is raised.

        Parameters
        ----------
        name : str
            Its name.
        members : mapping of str to Member
            Unfitted members to fit now, if it is not known yet: this one among them.
        clock : Clock, optional
            Ends what takes longer.
        """
        if name not in self._found:
            self._fit({key: member for key, member in members.items() if key not in self._found}, clock)
        found = self._found[name]
        if isinstance(found, DDPNError):
            raise found
        return found

    def _fit(self, members: Mapping[str, Member], clock: Clock | None) -> None:
        jobs: dict[Job, tuple[str, int | None]] = {}
        for name, member in members.items():
            is_divided = self.folds.are_crossed and not member.fits_copies_together
            for number in range(len(self.folds.held_out)) if is_divided else [None]:
                jobs[self._job(name, member, number, clock)] = (name, number)
        results: dict[tuple[str, int | None], Result] = {}
        try:
            for result in run(jobs, self.folds, self.n_jobs, self.store):
                if result.error is None:
                    self.on_step(f"Fitted {result.job.name}")
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
        label = member.label or name
        title = label if number is None else f"{label}, fold {number + 1}"
        identity = [name, type(member).__name__, number, *self._about]
        return Job(title, fit_member, (member, self.seed, number, clock or Clock()), identity)

    def _member(self, name: str, member: Member, results: list[Result]) -> Member | DDPNError:
        """The fitted member, from the files of all of it or of one copy after the other."""
        for result in results:
            if result.error is not None:
                return result.error
        facts = [json.loads(result.get()[_FACTS]) for result in results]
        self.seconds[name] = sum(each["seconds"] for each in facts)
        for text in dict.fromkeys(text for each in facts for text in each["warnings"]):
            warnings.warn(text, UserWarning, stacklevel=5)
        found = [restored(type(member), _own_files(result.get())) for result in results]
        return CrossFitted(found) if self.folds.are_crossed and not member.fits_copies_together else found[0]


def fit_member(folds: Folds, member: Member, seed: int, number: int | None, clock: Clock) -> dict[str, bytes]:
    """Fit a member, or the copy of it that leaves out a fold, until the clock ends; its files."""
    member = deepcopy(member)  # in this process, another attempt or fold has the same one
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught, clock.limit():
        warnings.simplefilter("always")
        found = folds.fit(member, seed) if number is None else folds.fit_copy(member, number, seed)
    texts = [str(each.message) for each in caught if not issubclass(each.category, DeprecationWarning | FutureWarning)]
    files = {f"{_PREFIX}{name}": content for name, content in found.state().items()}
    return files | {_FACTS: json_to_bytes({"seconds": time.perf_counter() - started, "warnings": texts})}


def _own_files(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name.removeprefix(_PREFIX): content for name, content in files.items() if name.startswith(_PREFIX)}
