"""The contract of everything that can be part of a predictor, and what to fit."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.members import MEMBERS, format_member_label
from ddpn.members.network_options import NetworkOptions
from ddpn.networks.heads import Head
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import NO_LIMIT, Clock
from ddpn.runtime.errors import DDPNError
from ddpn.runtime.progress import inner_bar
from ddpn.tables.columns import ColumnTable
from ddpn.tables.schema import Schema

if TYPE_CHECKING:
    from ddpn.networks.training import RowStream, Runtime


class NotApplicableError(DDPNError):
    """Raised by `choose_options` or `fit` if a kind of member cannot be used; it is left out with a warning."""


@dataclass(frozen=True)
class Task:
    """What is known before the fit of a member, besides the rows.

    Parameters
    ----------
    head : Head
        The likelihood of the networks.
    rows : int
        How many rows a fit has.
    stream : RowStream, optional
        All training rows of a table that is larger than memory; `fit` gets a sample of them.
    options : NetworkOptions
        How networks are built and trained, as far as a user has said.
    runtime : Runtime, optional
        Where networks are trained.
    checkpoint : Path, optional
        A file from which an interrupted training continues.
    verbose : bool
        Show progress.
    is_rough : bool
        Whether an optimum to some digits is enough, as for weights that are chosen by scores.
    monotone : mapping of str to int, optional
        Columns of numbers in which the mean of trees must not fall (1) or must not rise (-1).
    """

    head: Head
    rows: int = 1000
    stream: "RowStream | None" = None
    options: NetworkOptions = NetworkOptions()  # noqa: RUF009
    runtime: "Runtime | None" = None
    checkpoint: Path | None = None
    verbose: bool = False
    is_rough: bool = False
    monotone: Mapping[str, int] | None = None


#: Methods of members that had other names before version 0.4: a member that overrides one would silently lose it.
_RENAMED = {"like": "choose_options", "parts": "predict_components", "facts": "get_facts"}


class Member(ABC):
    """A fitted model that predicts a distribution per row and can be saved as files. One subclass per kind.

    A subclass needs the class methods `fit` and `from_state`, which make a member, `distribution` and `state`, and a
    `label` for tables and reports. A member is not changed after it was made. Tables are `ColumnTable`s, which have the
    columns of the training rows in their order; `FeatureEncoder` makes matrices of them.
    """

    label: ClassVar[str] = ""
    #: Whether it is a part of the default model, `members="auto"`.
    is_default: ClassVar[bool] = True
    #: Whether it is there for comparison: it has no weight where there are others.
    is_baseline: ClassVar[bool] = False
    #: Where it stands among kinds by how many numbers are fitted: of two that predict equally well, a verdict prefers
    #: the lower one. Networks have 5.
    complexity: ClassVar[int] = 3
    #: The name of a smaller member; this one is fitted if that one improved the mixture, and could learn more.
    larger_than: ClassVar[str | None] = None
    #: Options of `fit` of a copy that leaves out a fold, beside those of the member.
    fold_options: ClassVar[Mapping[str, Any]] = {}
    #: Whether `fit_copies` fits all copies at once, so that they cannot run in different processes.
    fits_copies_together: ClassVar[bool] = False
    #: Whether the fit was stopped early, with the best result so far kept.
    interrupted: bool = False
    #: Whether the fit was still improving when it ended, so that a larger model may learn more.
    is_underfitted: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for old, new in _RENAMED.items():
            if old in vars(cls):
                raise TypeError(f"The method {cls.__name__}.{old} has another name since ddpn 0.4: {new}.")
        if isfunction(vars(cls).get("fit")):
            raise TypeError(f"{cls.__name__}.fit must be a class method since ddpn 0.4: it returns the fitted member.")

    @classmethod
    def choose_options(cls, task: Task) -> dict[str, Any]:
        """Choose further arguments of `fit` for a task; by default, there are none.

        Parameters
        ----------
        task : Task
            The likelihood and what else is known.

        Returns
        -------
        dict
            Keyword arguments of `fit`.

        Raises
        ------
        NotApplicableError
            If there is no such member for the task.
        """
        return {}

    @classmethod
    @abstractmethod
    def fit(cls, train: CountRows, validation: CountRows | None, seed: int, clock: Clock = NO_LIMIT) -> Self:
        """Fit a member to training rows.

        Further arguments are those of `choose_options`.

        Parameters
        ----------
        train : CountRows
            Training rows. `X` is a `ColumnTable`; `weight` says how many times each row counts, and `exposure` is its
            known scale: an array or None, each.
        validation : CountRows or None
            Rows that may choose settings; None where there are too few.
        seed : int
            Seed of everything random.
        clock : Clock
            The time of the fit. A member that can end early, with what it has until then, watches `clock.left`. Others
            call `ddpn.runtime.deadlines.check_deadline` in long loops, which raises an error when the time is up.

        Returns
        -------
        Member
            The fitted member.
        """

    @abstractmethod
    def distribution(self, X: ColumnTable, exposure: np.ndarray | None = None) -> Distribution:
        """Predict the distribution of each row.

        Parameters
        ----------
        X : ColumnTable
            Rows with the columns of `fit`. They may have levels and missing values that the training rows lack.
        exposure : array, shape (rows,), optional
            Multiplies the location of the distributions. It is given wherever `fit` had exposures.

        Returns
        -------
        Distribution
            Of batch shape (rows, k): k distributions per row that are mixed equally.
        """

    @abstractmethod
    def state(self) -> dict[str, bytes]:
        """Return everything that `from_state` needs, as files by name. No pickle: JSON and safetensors."""

    @classmethod
    @abstractmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        """Rebuild the fitted member that `state` described.

        Parameters
        ----------
        files : mapping of str to bytes
            What `state` returned.
        """

    @property
    def schema(self) -> Schema | None:
        """The columns that the member was fitted to; None if it does not keep them."""
        return None

    @property
    def levels(self) -> Mapping[str, Sequence[str]]:
        """The levels that the member encodes by name, for each category."""
        return {}

    @classmethod
    def fit_copies(
        cls, train: CountRows, fold: np.ndarray, seed: int, clock: Clock = NO_LIMIT, **options: Any
    ) -> list[Self]:
        """Fit a copy per fold, each to the rows of the other folds.

        `fold` is the number of each row's fold, from 0 on. Copies are in the order of the folds that they left out.
        """
        number, copies = int(fold.max()) + 1, list[Self]()
        with inner_bar(f"{cls.label}, folds", number) as bar:
            for k in range(number):
                copy_clock = clock.part(clock.left / (number - k))
                copies.append(cls.fit_copy(train, fold, k, seed, copy_clock, **options))
                bar.advance()
        return copies

    @classmethod
    def fit_copy(
        cls, train: CountRows, fold: np.ndarray, number: int, seed: int, clock: Clock = NO_LIMIT, **options: Any
    ) -> Self:
        """Fit the copy that leaves out one fold."""
        return cls.fit(train.rows(fold != number), None, seed, clock, **{**options, **cls.fold_options})

    def predict_components(self, X: ColumnTable, exposure: np.ndarray | None = None) -> list[Distribution]:
        """Predict the component distributions of each row, as one stack per part of a member that is itself a mixture.

        Stacks have equal weights and batch shape (rows, k): k distributions per row that are mixed equally.
        """
        return [self.distribution(X, exposure)]

    def get_facts(self) -> dict[str, Any]:
        """Return facts about the fitted member for `ddpn show` and the report: values that JSON can hold, by name."""
        return {}


@dataclass(frozen=True)
class MemberSpec:
    """A member to fit: its name, its kind, and the options of `Member.fit`.

    A baseline has no weight if there are other members. A member that is larger than another is fitted only if that one
    improved the mixture, and was still improving when it ended.
    """

    name: str
    kind: type[Member]
    options: Mapping[str, Any] = field(default_factory=dict)
    is_baseline: bool = False
    larger_than: str | None = None

    @classmethod
    def from_task(cls, name: str, task: Task) -> Self:
        """Describe the member of a name in `MEMBERS` for a task, or raise a `NotApplicableError`."""
        kind = MEMBERS[name]
        return cls(name, kind, kind.choose_options(task), kind.is_baseline, kind.larger_than)

    @property
    def label(self) -> str:
        """The label of the member in tables and messages."""
        return format_member_label(self.name, self.kind)

    def fit(self, train: CountRows, validation: CountRows | None, seed: int, clock: Clock = NO_LIMIT) -> Member:
        """Fit the member to training rows."""
        return self.kind.fit(train, validation, seed, clock, **self.options)


def make_exposure_tensor(exposure: np.ndarray | None, unit: float, rows: int) -> Tensor | None:
    """Return the exposures that a head takes, divided by `unit`; without exposures, 1 / unit. Shape: (rows,)."""
    if exposure is None:
        return None if unit == 1.0 else torch.full((rows,), 1.0 / unit, dtype=torch.float64)
    return to_tensor(exposure / unit)


def to_tensor(values: np.ndarray) -> Tensor:
    """Convert a float64 vector to a tensor."""
    return torch.from_numpy(np.asarray(values, dtype=np.float64))
