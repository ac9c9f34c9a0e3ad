"""`Member`, the base class of models that can be mixed; `Task` and `MemberSpec`, which say what to fit.

A task is a likelihood with options; a copy is a member that was fitted without one fold of the rows.
"""

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
    """The reason why a kind of member cannot be fitted, for example too many columns.

    `Member.choose_options` and `Member.fit` raise it. The mixture is then fitted without this member, with a warning.
    """


@dataclass(frozen=True)
class Task:
    """The likelihood, options and device from which a member chooses the options of its fit (`Member.choose_options`).

    Parameters
    ----------
    head : Head
        The likelihood of the networks.
    rows : int
        The number of training rows of one fit.
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
        True if an approximate optimum is good enough, as for a member of a mixture.
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
    #: The rank of this kind of member by its number of parameters (networks: 5). Of two members that predict equally
    #: well, the verdict recommends the one with the lower rank.
    complexity: ClassVar[int] = 3
    #: The name of the member of which this one is a larger version, else None. The larger one is fitted only if the
    #: smaller one improved the mixture and was still improving at the end of its fit.
    larger_than: ClassVar[str | None] = None
    #: Additional options of `fit` for copies, which are fitted without one fold.
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
        """For each categorical column, the levels that the member distinguishes when it predicts."""
        return {}

    @classmethod
    def fit_copies(
        cls, train: CountRows, fold: np.ndarray, seed: int, clock: Clock = NO_LIMIT, **options: Any
    ) -> list[Self]:
        """Fit one copy of the member per fold, to the rows of all other folds.

        `fold` holds the fold number of each row, from 0 on. Copy k, which was fitted without fold k, is item k of the
        result.
        """
        number, copies = int(fold.max()) + 1, list[Self]()
        with inner_bar(f"{cls.label}, folds", number) as bar:
            for k in range(number):
                copy_clock = clock.part(clock.left / (number - k))
                copies.append(cls.fit(train.rows(fold != k), None, seed, copy_clock, **options))
                bar.advance()
        return copies

    def predict_components(self, X: ColumnTable, exposure: np.ndarray | None = None) -> list[Distribution]:
        """Predict the components of each row: the distributions whose mixture is the prediction of the member.

        The result is a list of batches with equal weights. A batch of shape (rows, k) has k distributions per row with
        equal weights. A member that is a mixture itself, such as a cross-fitted one, returns several batches.
        """
        return [self.distribution(X, exposure)]

    def get_facts(self) -> dict[str, Any]:
        """Return what `ddpn show` and the report say about the fitted member, such as its number of trees.

        The values are those that JSON can hold.
        """
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
        """Specify the member called `name` in `MEMBERS`, with the options that it chooses for the task.

        Raise a `NotApplicableError` if the member does not apply to the task.
        """
        kind = MEMBERS[name]
        return cls(name, kind, kind.choose_options(task), kind.is_baseline, kind.larger_than)

    @property
    def label(self) -> str:
        """The label of the member in tables and messages."""
        return format_member_label(self.name, self.kind)

    @property
    def fold_options(self) -> dict[str, Any]:
        """The options of `Member.fit` for a copy, which is fitted without one fold."""
        return {**self.options, **self.kind.fold_options}

    def fit(self, train: CountRows, validation: CountRows | None, seed: int, clock: Clock = NO_LIMIT) -> Member:
        """Fit the member to training rows."""
        return self.kind.fit(train, validation, seed, clock, **self.options)


def make_exposure_tensor(exposure: np.ndarray | None, unit: float, rows: int) -> Tensor | None:
    """Convert exposures to the tensor that a head takes: exposure / unit, float64. Shape: (rows,).

    `unit` is the exposure that counts as 1. If `exposure` is None, every row has an exposure of 1. If `unit` is 1 as
    well, return None, which heads read as an exposure of 1.
    """
    if exposure is None:
        return None if unit == 1.0 else torch.full((rows,), 1.0 / unit, dtype=torch.float64)
    return to_tensor(exposure / unit)


def to_tensor(values: np.ndarray) -> Tensor:
    """Convert a vector to a float64 tensor."""
    return torch.from_numpy(np.asarray(values, dtype=np.float64))
