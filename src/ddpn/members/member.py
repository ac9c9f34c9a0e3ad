"""`Member`, the base class of models that can be mixed, and `Task` and `MemberSpec`, which describe what to fit.

A cross-fitted member consists of copies. Each copy is a member that was fitted to the rows outside one fold.
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
    """Raised if a member cannot be fitted to a task, for example because the table has too many columns.

    `Member.choose_options` and `Member.fit` raise it. The mixture is then fitted without this member, and the user is
    warned.
    """


@dataclass(frozen=True)
class Task:
    """What members are fitted to, and how: the likelihood, the number of rows, the user's options and the device.

    `Member.choose_options` takes a task and returns the keyword arguments of `Member.fit`.

    Parameters
    ----------
    head : Head
        The likelihood of the networks.
    rows : int
        The number of training rows of one fit.
    stream : RowStream, optional
        All training rows of a table that is larger than memory. `Member.fit` then gets a sample of these rows.
    options : NetworkOptions
        The options of networks that the user has set.
    runtime : Runtime, optional
        The device on which networks are trained.
    checkpoint : Path, optional
        A file for the state of the networks' training. If training was interrupted, it continues from this file.
    verbose : bool
        Show progress.
    is_rough : bool
        True if an approximate optimum is accurate enough, as it is for a member of a mixture.
    monotone : mapping of str to int, optional
        Monotone constraints on the mean that trees predict, by numeric column: 1 if it must not decrease with the
        column, -1 if it must not increase.
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
    """The base class of fitted models that predict a distribution per row and can be saved as files.

    A subclass implements the class methods `fit` and `from_state`, which return a member, and the methods
    `distribution` and `state`. It also sets `label`, its name in tables and reports. Members are immutable. Their input
    is a `ColumnTable` with the columns of the training rows in the same order; `FeatureEncoder` can convert it to a
    matrix.

    Other attributes have defaults, given in parentheses:

    - `is_default`: True if the member is part of the default model, `members="auto"` (True);
    - `is_baseline`: True if the member serves for comparison only. It has a weight only if there are no other members
      (False);
    - `complexity`: the rank of the member by its number of parameters; networks have 5. Of two members that predict
      equally well, the verdict recommends the one with the lower rank (3);
    - `larger_than`: the name of another member, if this one is a larger version of it. The larger member is fitted only
      if the smaller one improved the mixture and was still improving when its fit ended (None);
    - `fold_options`: additional keyword arguments of `fit` for the copies of a cross-fitted member ({});
    - `fits_copies_together`: True if `fit_copies` fits all copies jointly, so that they cannot be divided among
      processes (False);
    - `interrupted`: True if the fit was stopped early. The member is then the best result so far (False);
    - `is_underfitted`: True if the fit was still improving when it ended, so that a larger model may learn more
      (False).
    """

    label: ClassVar[str] = ""
    is_default: ClassVar[bool] = True
    is_baseline: ClassVar[bool] = False
    complexity: ClassVar[int] = 3
    larger_than: ClassVar[str | None] = None
    fold_options: ClassVar[Mapping[str, Any]] = {}
    fits_copies_together: ClassVar[bool] = False
    interrupted: bool = False
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
        """Choose the keyword arguments of `fit` for a task. By default, there are none.

        Parameters
        ----------
        task : Task
            The likelihood, the number of rows, and the options of the user.

        Returns
        -------
        dict
            Keyword arguments of `fit`.

        Raises
        ------
        NotApplicableError
            If this member cannot be fitted to the task.
        """
        return {}

    @classmethod
    @abstractmethod
    def fit(cls, train: CountRows, validation: CountRows | None, seed: int, clock: Clock = NO_LIMIT) -> Self:
        """Fit a member to training rows.

        A subclass may have further keyword arguments, whose values `choose_options` returns.

        Parameters
        ----------
        train : CountRows
            Training rows. `X` is a `ColumnTable`; `weight` and `exposure` are arrays or None.
        validation : CountRows or None
            Rows for choosing settings, such as the number of epochs. None if there are too few rows.
        seed : int
            The seed of all random numbers.
        clock : Clock
            The time limit. A member that can stop early and keep its result so far checks `clock.left`. Other members
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
            Rows with the same columns as in `fit`. Any column may have missing values. Categorical columns may have
            levels that did not occur in `fit`.
        exposure : array, shape (rows,), optional
            The exposure of each row, which multiplies the location of its distribution. Required if `fit` had
            exposures.

        Returns
        -------
        Distribution
            A batch of shape (rows, k): k distributions per row, whose mixture with equal weights is the prediction.
        """

    @abstractmethod
    def state(self) -> dict[str, bytes]:
        """Return the fitted member as file contents by file name: JSON and safetensors, never pickles."""

    @classmethod
    @abstractmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        """Recreate a fitted member from the files that `state` returned.

        Parameters
        ----------
        files : mapping of str to bytes
            The result of `state`.
        """

    @property
    def schema(self) -> Schema | None:
        """The schema of the training table, or None if the member does not store it."""
        return None

    @property
    def levels(self) -> Mapping[str, Sequence[str]]:
        """The levels of each categorical column that the member distinguishes. It treats all other levels as unseen."""
        return {}

    @classmethod
    def fit_copies(
        cls, train: CountRows, fold: np.ndarray, seed: int, clock: Clock = NO_LIMIT, **options: Any
    ) -> list[Self]:
        """Fit one copy of the member per fold, each to the rows outside this fold.

        `fold` has the fold of each row of `train`, numbered from 0. `clock` is the time limit of all copies together.
        `seed` and `options` are passed to `fit`. Item k of the result is the copy that was fitted without fold k.
        """
        number, copies = int(fold.max()) + 1, list[Self]()
        with inner_bar(f"{cls.label}, folds", number) as bar:
            for k in range(number):
                copy_clock = clock.part(clock.left / (number - k))
                copies.append(cls.fit(train.rows(fold != k), None, seed, copy_clock, **options))
                bar.advance()
        return copies

    def predict_components(self, X: ColumnTable, exposure: np.ndarray | None = None) -> list[Distribution]:
        """Predict the components of each row: the distributions whose mixture with equal weights is the prediction.

        X has the columns of `fit`, and `exposure` the exposure of each row, or is None if `fit` had no exposures.
        Return a list of batches. A batch of shape (rows, k) holds k distributions per row. Most members return a single
        batch; a cross-fitted member returns the batches of all its copies.
        """
        return [self.distribution(X, exposure)]

    def get_facts(self) -> dict[str, Any]:
        """Return facts about the fitted member for `ddpn show` and reports, such as its number of trees.

        The values must be serialisable as JSON.
        """
        return {}


@dataclass(frozen=True)
class MemberSpec:
    """A member to be fitted: its name, its class `kind`, and `options`, the keyword arguments of `Member.fit`.

    A baseline (`is_baseline`) gets a weight only if there are no other members. A member that is `larger_than` another
    one is fitted only if the smaller one improved the mixture and was still improving when its fit ended.
    """

    name: str
    kind: type[Member]
    options: Mapping[str, Any] = field(default_factory=dict)
    is_baseline: bool = False
    larger_than: str | None = None

    @classmethod
    def from_task(cls, name: str, task: Task) -> Self:
        """Create the specification of a registered member for a task.

        `name` is the registered name of the member. Its `choose_options` determines the options. Raise a
        `NotApplicableError` if the member cannot be fitted to the task.
        """
        kind = MEMBERS[name]
        return cls(name, kind, kind.choose_options(task), kind.is_baseline, kind.larger_than)

    @property
    def label(self) -> str:
        """The name of the member in tables and messages."""
        return format_member_label(self.name, self.kind)

    @property
    def fold_options(self) -> dict[str, Any]:
        """The keyword arguments of `Member.fit` for one copy of a cross-fitted member.

        They are those in `options`, together with the class's own `Member.fold_options`, which take precedence. For
        example, boosted trees add `is_copy=True`, so that a copy has only one booster of the mean.
        """
        return {**self.options, **self.kind.fold_options}

    def fit(self, train: CountRows, validation: CountRows | None, seed: int, clock: Clock = NO_LIMIT) -> Member:
        """Fit the member to training rows; see `Member.fit` for the parameters."""
        return check_is_member(self.kind.fit(train, validation, seed, clock, **self.options), self.kind, "fit")


def check_is_member(value: object, kind: type[Member], method: str) -> Member:
    """Return `value`, the result of a class method of `kind`; raise a `TypeError` if it is not a fitted member."""
    if not isinstance(value, Member):
        raise TypeError(f"{kind.__name__}.{method} must return a member, got {type(value).__name__}.")
    return value


def collect_state(member: Member) -> dict[str, bytes]:
    """Return the files of a member, from its method `state`. Raise a `TypeError` if they are not bytes by file name."""
    files: object = member.state()
    what = f"{type(member).__name__}.state must return a dictionary of bytes by file name"
    if not isinstance(files, Mapping):
        raise TypeError(f"{what}, got {type(files).__name__}.")
    for name, content in files.items():
        if not (isinstance(name, str) and isinstance(content, bytes)):
            raise TypeError(f"{what}, got {type(content).__name__} for {name!r}.")
    return dict(files)


def is_shipped(kind: type[Member]) -> bool:
    """Return True if a class of members is part of ddpn, and False if a user has written it."""
    return kind.__module__.partition(".")[0] == "ddpn"


def predict_valid_components(member: Member, X: ColumnTable, exposure: np.ndarray | None = None) -> list[Distribution]:
    """Predict the components of each row of X by `Member.predict_components`, and check the shapes of the result.

    Raise a `NotApplicableError` if a batch is no distribution, or does not have the shape (rows, k). Other shapes may
    be broadcast, and would then mix up the distributions of different rows.
    """
    batches, rows = member.predict_components(X, exposure), len(X)
    for batch in batches:
        if not isinstance(batch, Distribution):
            raise NotApplicableError(
                f"{type(member).__name__} predicts a {type(batch).__name__}: it must be a torch distribution"
            )
        shape = tuple(batch.batch_shape)
        if len(shape) != 2 or shape[0] != rows or not shape[1]:
            raise NotApplicableError(
                f"{type(member).__name__} predicts distributions of batch shape {shape} for {rows} rows: it must be "
                f"({rows}, k), with k distributions per row"
            )
    return batches


def make_exposure_tensor(exposure: np.ndarray | None, unit: float, rows: int) -> Tensor | None:
    """Divide exposures by `unit`, and return them as a float64 tensor of shape (rows,), the input of a `Head`.

    If `exposure` is None, every row has an exposure of 1. If `unit` is 1 as well, return None, which has the same
    meaning for a `Head`.
    """
    if exposure is None:
        return None if unit == 1.0 else torch.full((rows,), 1.0 / unit, dtype=torch.float64)
    return to_tensor(exposure / unit)


def to_tensor(values: np.ndarray) -> Tensor:
    """Convert an array to a float64 tensor."""
    return torch.from_numpy(np.asarray(values, dtype=np.float64))
