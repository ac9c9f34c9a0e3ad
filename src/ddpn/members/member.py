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
    """Raised by `choose_options` or `fit` if a member does not apply to the task.

    It is then left out with a warning.
    """


@dataclass(frozen=True)
class Task:
    """What is known about a task before a member is fitted, besides the rows.

    Parameters
    ----------
    head : Head
        The likelihood of the networks.
    rows : int
        The number of rows of a fit.
    stream : RowStream, optional
        All training rows of a table that is larger than memory; `fit` gets a sample of them.
    options : NetworkOptions
        Options of networks that the user has set.
    runtime : Runtime, optional
        The device on which networks are trained.
    checkpoint : Path, optional
        A file from which an interrupted training resumes.
    verbose : bool
        Show progress.
    is_rough : bool
        True if an approximate optimum is good enough, as in a mixture.
    monotone : mapping of str to int, optional
        Numeric columns in which the mean predicted by trees must not fall (1) or must not rise (-1).
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


#: Old names of methods (before version 0.4) and their new names. A method with an old name would never be called.
_RENAMED = {"like": "choose_options", "parts": "predict_components", "facts": "get_facts"}


class Member(ABC):
    """A fitted model that predicts a distribution per row and can be saved as files. One subclass per kind.

    A subclass implements the class methods `fit` and `from_state`, which make a member, and the methods `distribution`
    and `state`; it sets a `label` for tables and reports. A member does not change after it is made. Tables are
    `ColumnTable`s with the columns of the training rows in their order. `FeatureEncoder` converts them to matrices.
    """

    label: ClassVar[str] = ""
    #: True if the member is part of the default model, `members="auto"`.
    is_default: ClassVar[bool] = True
    #: True if the member serves for comparison only. It has a weight only if there are no other members.
    is_baseline: ClassVar[bool] = False
    #: The rank of the kind by the number of parameters (networks: 5). Of two members that predict equally well, a
    #: verdict prefers the one with the lower rank.
    complexity: ClassVar[int] = 3
    #: The name of a smaller member. This member is fitted only if the smaller one improved the mixture and was still
    #: improving at the end of its fit.
    larger_than: ClassVar[str | None] = None
    #: Additional options of `fit` for the copies of a cross-fitted member.
    fold_options: ClassVar[Mapping[str, Any]] = {}
    #: True if `fit_copies` fits all copies jointly, so that they cannot be divided among processes.
    fits_copies_together: ClassVar[bool] = False
    #: True if the fit was stopped early; the best result so far is kept.
    interrupted: bool = False
    #: True if the fit was still improving when it ended, so that a larger model may learn more.
    is_underfitted: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for old, new in _RENAMED.items():
            if old in vars(cls):
                raise TypeError(f"The method {cls.__name__}.{old} is called {new} since ddpn 0.4. Rename it.")
        if isfunction(vars(cls).get("fit")):
            raise TypeError(f"{cls.__name__}.fit must be a class method since ddpn 0.4: it returns the fitted member.")

    @classmethod
    def choose_options(cls, task: Task) -> dict[str, Any]:
        """Choose further arguments of `fit` for a task. The default has none.

        Parameters
        ----------
        task : Task
            The likelihood, the number of rows, and options.

        Returns
        -------
        dict
            Keyword arguments of `fit`.

        Raises
        ------
        NotApplicableError
            If this kind of member does not apply to the task.
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
            Training rows. `X` is a `ColumnTable`; `weight` and `exposure` are arrays or None.
        validation : CountRows or None
            Rows that may be used to choose settings; None if there are too few.
        seed : int
            Seed of all random numbers.
        clock : Clock
            The time limit. A member that can stop early and keep its result so far watches `clock.left`. Others call
            `ddpn.runtime.deadlines.check_deadline` in long loops, which raises an error when the time is up.

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
            Rows with the columns of `fit`. They may have unseen levels, and missing values in any column.
        exposure : array, shape (rows,), optional
            Multiplies the location of the distributions. It is given if `fit` had exposures.

        Returns
        -------
        Distribution
            Of batch shape (rows, k): k distributions per row, which are mixed with equal weights.
        """

    @abstractmethod
    def state(self) -> dict[str, bytes]:
        """Return everything that `from_state` needs as files by name: JSON and safetensors, no pickles."""

    @classmethod
    @abstractmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        """Rebuild a fitted member from the result of `state`.

        Parameters
        ----------
        files : mapping of str to bytes
            The result of `state`.
        """

    @property
    def schema(self) -> Schema | None:
        """The schema of the training rows; None if the member does not store it."""
        return None

    @property
    def levels(self) -> Mapping[str, Sequence[str]]:
        """For each category, the levels that the member can tell apart."""
        return {}

    @classmethod
    def fit_copies(
        cls, train: CountRows, fold: np.ndarray, seed: int, clock: Clock = NO_LIMIT, **options: Any
    ) -> list[Self]:
        """Fit a copy per fold to the rows of the other folds.

        `fold` has the number of each row's fold, from 0 on. Copies are returned in the order of the folds that they
        left out.
        """
        number, copies = int(fold.max()) + 1, list[Self]()
        with inner_bar(f"{cls.label}, folds", number) as bar:
            for k in range(number):
                copy_clock = clock.part(clock.left / (number - k))
                copies.append(cls.fit(train.rows(fold != k), None, seed, copy_clock, **options))
                bar.advance()
        return copies

    def predict_components(self, X: ColumnTable, exposure: np.ndarray | None = None) -> list[Distribution]:
        """Predict the component distributions of each row. A member that is a mixture itself returns several batches.

        Each batch has shape (rows, k), k distributions per row with equal weights, and all batches have equal weights.
        """
        return [self.distribution(X, exposure)]

    def get_facts(self) -> dict[str, Any]:
        """Return facts about the fitted member for `ddpn show` and the report, as values that JSON can hold."""
        return {}


@dataclass(frozen=True)
class MemberSpec:
    """A member to fit: its name, its kind, and the options of `Member.fit`.

    A baseline has no weight if there are other members. A member that is `larger_than` another is fitted only if the
    smaller one improved the mixture and was still improving at the end of its fit.
    """

    name: str
    kind: type[Member]
    options: Mapping[str, Any] = field(default_factory=dict)
    is_baseline: bool = False
    larger_than: str | None = None

    @classmethod
    def from_task(cls, name: str, task: Task) -> Self:
        """Describe a member for a task, by its name in `MEMBERS`; raise a `NotApplicableError` if it does not apply."""
        kind = MEMBERS[name]
        return cls(name, kind, kind.choose_options(task), kind.is_baseline, kind.larger_than)

    @property
    def label(self) -> str:
        """The label of the member in tables and messages."""
        return format_member_label(self.name, self.kind)

    @property
    def fold_options(self) -> dict[str, Any]:
        """The options of copies that leave out a fold."""
        return {**self.options, **self.kind.fold_options}

    def fit(self, train: CountRows, validation: CountRows | None, seed: int, clock: Clock = NO_LIMIT) -> Member:
        """Fit the member to training rows."""
        return self.kind.fit(train, validation, seed, clock, **self.options)


def make_exposure_tensor(exposure: np.ndarray | None, unit: float, rows: int) -> Tensor | None:
    """Return the exposures for a head, divided by `unit`; without exposures, 1 / unit. Shape: (rows,)."""
    if exposure is None:
        return None if unit == 1.0 else torch.full((rows,), 1.0 / unit, dtype=torch.float64)
    return to_tensor(exposure / unit)


def to_tensor(values: np.ndarray) -> Tensor:
    """Convert a float64 vector to a tensor."""
    return torch.from_numpy(np.asarray(values, dtype=np.float64))
