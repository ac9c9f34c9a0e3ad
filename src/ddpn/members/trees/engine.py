"""What boosting libraries have in common: boosters, and the fit of a mean in folds."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ddpn.deadlines import Clock
from ddpn.members.trees.table import Fold, TreeRows
from ddpn.registry import Registry

#: A clock without an end.
UNLIMITED = Clock()


class Settings(NamedTuple):
    """How trees are boosted.

    Leaves per tree, learning rate, rounds at most, rounds without gain before the end, seed, and the share of the
    columns that trees of the mean choose from, where the library can draw them.
    """

    leaves: int = 31
    rate: float = 0.05
    rounds: int = 1500
    patience: int = 20
    seed: int = 0
    share: float = 0.7


class Booster(ABC):
    """A fitted sum of trees. `chosen` are the columns of the matrix that it takes; None for all."""

    chosen: np.ndarray | None
    #: Rounds of boosting.
    rounds: int

    @abstractmethod
    def raw(self, matrix: np.ndarray) -> np.ndarray:
        """The sum of the trees for every row of the whole matrix; for a mean, the logarithm of the rate."""

    @abstractmethod
    def split(self, groups: np.ndarray) -> "list[Booster]":
        """The stumps by the group, 0, 1, ..., of the column that they split; the sum of all is the whole."""

    def contributions(self, matrix: np.ndarray) -> np.ndarray | None:
        """SHAP values of the sum, one column per column of the matrix; None where the library has none."""
        return None


class MeanFit(ABC):
    """Poisson boosting of a rate, one booster per fold, each of which predicts the rows it was not fitted to."""

    def __init__(self, rows: TreeRows, settings: Settings) -> None:
        self.rows, self.settings = rows, settings

    @abstractmethod
    def run(self, folds: int, clock: Clock = UNLIMITED) -> None:
        """Boost the first so many folds; what is there already is continued or kept.

        Boosting ends with the clock, where the library can be interrupted between rounds.
        """

    @abstractmethod
    def boosters(self) -> list[Booster]:
        """The boosters of the folds that were run, at their best rounds."""

    @abstractmethod
    def whole(self, part: Fold) -> Booster:
        """A booster of all rows, with as many rounds as were best for the held-out rows of the folds."""

    def held_out(self, folds: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the first so many folds, and the log rates that their boosters predict for them."""
        some = self.rows.folds[:folds]
        raw = [b.raw(self.rows.matrix[f.outer]) for b, f in zip(self.boosters()[:folds], some, strict=True)]
        return np.concatenate([fold.outer for fold in some]), np.concatenate(raw)

    def losses(self, folds: int) -> np.ndarray:
        """Weighted Poisson losses of the held-out rows of the first so many folds, in the order of the folds."""
        rows, raw = self.held_out(folds)
        return self.rows.weight[rows] * (np.exp(raw) - self.rows.rate[rows] * raw)


class Engine(ABC):
    """A boosting library."""

    name: ClassVar[str]

    @abstractmethod
    def mean_fit(self, rows: TreeRows, settings: Settings) -> MeanFit:
        """An unfitted mean."""

    @abstractmethod
    def to_files(self, boosters: Sequence[Booster]) -> dict[str, bytes]:
        """Boosters as files; no pickle."""

    @abstractmethod
    def from_files(self, files: Mapping[str, bytes], chosen: Sequence[Any], columns: Sequence[int]) -> list[Booster]:
        """The inverse, with the columns that each booster chose and how many it reads; raises an `InputError`."""


def has_lightgbm() -> bool:
    """Whether LightGBM, the extra `trees`, is installed."""
    return find_spec("lightgbm") is not None


#: Boosting libraries by name; each is imported on first use.
ENGINES = Registry(
    "engine",
    {
        "lightgbm": "ddpn.members.trees.lightgbm_engine:LightGBM",
        "scikit-learn": "ddpn.members.trees.sklearn_engine:ScikitLearn",
    },
)


def engine(name: str | None = None) -> Engine:
    """The engine of this name; by default LightGBM where it is installed, else scikit-learn's histogram boosting."""
    return ENGINES.find(name or ("lightgbm" if has_lightgbm() else "scikit-learn"))()
