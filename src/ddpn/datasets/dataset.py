"""A data set: columns, counts, the rows of each part, and where it all comes from."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpn.datasets.checks import LARGEST
from ddpn.datasets.source import Source
from ddpn.datasets.split import Split
from ddpn.datasets.table import Table
from ddpn.errors import InputError

#: Numeric inputs from raw columns; statistics come from the training rows, unless its name says otherwise.
Encoding = Callable[[Table, NDArray[np.int64]], Table]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Counts `y` with the raw columns `X` they are predicted from, leak columns left out.

    `sample` says that these are some of the public file's rows and not all; `note` is one sentence for a table's foot.
    `root` is the folder that file names among the columns are below.
    """

    name: str
    X: Table
    y: NDArray[np.int64]
    split: Split
    licence: str
    citation: str
    note: str = ""
    sample: bool = False
    source: Source | None = None
    encodings: Mapping[str, Encoding] = field(default_factory=dict)
    root: Path | None = None

    def __post_init__(self) -> None:
        if not len(self.X) == len(self.y) == self.split.n:
            raise InputError(
                f"X, y and split must have the same rows, got {len(self.X)}, {len(self.y)} and {self.split.n}. "
                f"Split the data anew."
            )

    def features(self, name: str = "raw") -> Table:
        """The inputs of all rows: the raw columns, or one of `encodings`."""
        if name == "raw":
            return self.X
        if name not in self.encodings:
            known = ", ".join(["raw", *self.encodings])
            raise InputError(f"features of {self.name} must be one of {known}, got {name!r}. Choose one of them.")
        return self.encodings[name](self.X, self.split.train)

    def part(self, part: str, features: str = "raw") -> tuple[Table, NDArray[np.int64]]:
        """Inputs and counts of "train", "validation" or "test"."""
        if part not in ("train", "validation", "test"):
            raise InputError(f"part must be train, validation or test, got {part!r}. Choose one of the three.")
        rows = getattr(self.split, part)
        return self.features(features).rows(rows), self.y[rows]

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the raw columns and counts."""
        return self.X.fingerprint(self.y)

    def save_split(self, path: str | os.PathLike[str]) -> None:
        """Write the split to `path`, with the fingerprint of this data."""
        self.split.save(path, self.fingerprint)

    def with_split(self, path: str | os.PathLike[str]) -> "Dataset":
        """This data with the split of `path`, which must have been saved for it."""
        return replace(self, split=Split.load(path, self.fingerprint))


def as_counts(
    column: NDArray[np.floating[Any]], name: str, remedy: str = "Mend that row or fetch the file again."
) -> NDArray[np.int64]:
    """A column of non-negative integers, as integers."""
    bad = np.flatnonzero((column < 0) | (column != np.floor(column)))
    if len(bad):
        raise InputError(
            f"{name} must hold non-negative integers, got {column[bad[0]]:g} in row {bad[0] + 1}. {remedy}"
        )
    large = np.flatnonzero(column > LARGEST)
    if len(large):
        raise InputError(
            f"{name} must hold counts up to 2^53, got {column[large[0]]:g} in row {large[0] + 1}. {remedy}"
        )
    return column.astype(np.int64)
