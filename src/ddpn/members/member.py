"""The contract of everything that can be part of a predictor."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor
from torch.distributions import Distribution

from ddpn.members.network_options import NetworkOptions
from ddpn.networks.heads import Head
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import NO_LIMIT, Clock
from ddpn.runtime.errors import DDPNError, InputError
from ddpn.runtime.progress import inner_bar
from ddpn.tables.encoding.table import Column, kind_of, read_as_fitted, read_table

if TYPE_CHECKING:
    from ddpn.networks.training import RowStream, Runtime


class NotApplicableError(DDPNError):
    """Raised by `from_task` or `fit` if a kind of member cannot be used; it is left out with a warning."""


@dataclass(frozen=True)
class Task:
    """What a member is made for: all that is known before its fit but the rows.

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


class Member(ABC):
    """Fits rows, predicts a distribution per row, and can be saved as files. One subclass per kind, see `MEMBERS`.

    A subclass needs `fit`, `distribution`, `state` and `from_state`, and a `label` for tables and reports.
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
    #: Whether it reads tables by `ddpn.tables.encoding`: it then gets them as `PreparedTable`, which is read already.
    takes_prepared_tables: ClassVar[bool] = False
    #: Whether the fit was stopped early, with the best result so far kept.
    interrupted: bool = False
    #: Whether the fit was still improving when it ended, so that a larger model may learn more.
    is_underfitted: bool = False

    @classmethod
    def from_task(cls, task: Task) -> Self:
        """Make an unfitted member for a task; by default it does not depend on it.

        Parameters
        ----------
        task : Task
            The likelihood and what else is known. A `NotApplicableError` says that there is no such member.
        """
        return cls()

    @abstractmethod
    def fit(self, train: CountRows, validation: CountRows | None, seed: int, clock: Clock = NO_LIMIT) -> Self:
        """Fit the member to training rows.

        Parameters
        ----------
        train : CountRows
            Training rows.
        validation : CountRows or None
            Rows that may choose settings; None where there are too few.
        seed : int
            Seed of everything random.
        clock : Clock
            The time of the fit. A member that can end early, with what it has until then, watches `clock.left`. Others
            call `ddpn.runtime.deadlines.check_deadline` in long loops, which raises an error when the time is up.

        Returns
        -------
        self
        """

    @abstractmethod
    def distribution(self, X: Any, exposure: np.ndarray | None = None) -> Distribution:
        """The predicted distributions.

        Parameters
        ----------
        X : table
            Rows with the columns of `fit`.
        exposure : array, shape (rows,), optional
            Multiplies the location of the distributions. It is given wherever `fit` had exposures.

        Returns
        -------
        Distribution
            Of batch shape (rows, k): k distributions per row that are mixed equally.
        """

    @abstractmethod
    def state(self) -> dict[str, bytes]:
        """Everything `from_state` needs, as files by name. No pickle: JSON and safetensors."""

    @classmethod
    @abstractmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        """Rebuild the fitted member that `state` described.

        Parameters
        ----------
        files : mapping of str to bytes
            What `state` returned.
        """

    def fit_copies(self, train: CountRows, fold: np.ndarray, seed: int, clock: Clock = NO_LIMIT) -> "Sequence[Member]":
        """Fit a copy of this unfitted member per fold, each to the rows of the other folds.

        `fold` is the number of each row's fold, from 0 on. Copies are in the order of the folds that they left out.
        """
        number, copies = int(fold.max()) + 1, list[Member]()
        with inner_bar(f"{self.label}, folds", number) as bar:
            for k in range(number):
                own = clock.part(clock.left / (number - k))
                copies.append(self.copy_for_fold().fit(train.rows(fold != k), None, seed, own))
                bar.advance()
        return copies

    def copy_for_fold(self) -> Self:
        """Return an unfitted copy to fit to the rows outside of a fold."""
        return copy(self)

    @property
    def fits_copies_together(self) -> bool:
        """Whether `fit_copies` fits all copies at once, so that they cannot be fitted in different processes."""
        return type(self).fit_copies is not Member.fit_copies

    def parts(self, X: Any, exposure: np.ndarray | None = None) -> list[Distribution]:
        """The distributions of `distribution`, as one stack per part of a member that is a mixture of several.

        Parts have equal weights, and batch shape (rows, k): k distributions per row that are mixed equally.
        """
        return [self.distribution(X, exposure)]

    def facts(self) -> dict[str, Any]:
        """What `ddpn show` and the report show about it: values that JSON can hold, by name."""
        return {}


class TableReader(BaseEstimator):
    """Reads later tables as the one it was fitted to: knows the number, names and kinds of its columns."""

    def fit(self, X: Any, estimator: type[BaseEstimator] | None = None) -> list[Column]:
        """The columns of X, whose names and kinds are remembered; messages name the `estimator`, if given."""
        reader = self if estimator is None else estimator()
        table = read_table(reader, X, reset=True)
        self.__dict__.update({name: value for name, value in vars(reader).items() if name.endswith("_in_")})
        self.kinds_ = [kind_of(column) for column in table]
        return table

    def read(self, X: Any) -> list[Column]:
        """The columns of X in the order of fit."""
        return read_as_fitted(self, X)

    @property
    def names(self) -> list[str]:
        """The names of the columns; x0, x1, ... where they have none."""
        return list(map(str, getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"names": self.names if hasattr(self, "feature_names_in_") else None, "kinds": self.kinds_}

    @classmethod
    def from_dict(cls, known: dict[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        reader = cls()
        reader.kinds_, reader.n_features_in_ = known["kinds"], len(known["kinds"])
        if known["names"] is not None:
            if not all(isinstance(name, str) for name in known["names"]):
                raise TypeError("names of columns must be text")
            reader.feature_names_in_ = np.array(known["names"], dtype=object)
        return reader


@dataclass
class LevelTable:
    """How tables become matrices of numbers: the reader, and the known levels per category; None for numbers."""

    reader: TableReader
    levels: list[tuple[str, ...] | None]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"reader": self.reader.as_dict(), "levels": self.levels}

    @classmethod
    def from_dict(cls, known: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`, which may be among other entries."""
        reader = TableReader.from_dict(known["reader"])
        levels = [None if each is None else tuple(each) for each in known["levels"]]
        if len(levels) != len(reader.kinds_):
            raise InputError("The levels of a saved model must be those of its columns.")
        return cls(reader, levels)


def exposure_tensor(exposure: np.ndarray | None, unit: float, rows: int) -> Tensor | None:
    """Return the exposures that a head takes, divided by `unit`; without exposures, 1 / unit. Shape: (rows,)."""
    if exposure is None:
        return None if unit == 1.0 else torch.full((rows,), 1.0 / unit, dtype=torch.float64)
    return as_tensor(exposure / unit)


def as_tensor(values: np.ndarray) -> Tensor:
    """A float64 vector as a tensor."""
    return torch.from_numpy(np.asarray(values, dtype=np.float64))
