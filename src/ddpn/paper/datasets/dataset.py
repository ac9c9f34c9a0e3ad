"""`Dataset`: inputs, counts, the rows of each part, and where they come from."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpn.paper.datasets.splits import Split
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import LARGEST_COUNT, check_choice
from ddpn.sample import check_counts
from ddpn.tables.hashing import fingerprint

#: Numeric inputs from raw columns and the training rows, from which statistics are taken.
Encoding = Callable[[Any, NDArray[np.int64]], Mapping[str, NDArray[np.float64]]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Counts with the inputs they are predicted from; columns that leak the counts are left out.

    Parameters
    ----------
    name : str
        The name of the data set.
    X : polars DataFrame or Tensor
        The inputs: a table, or packed beams of point clouds.
    y : array of int
        The counts.
    split : Split
        Training, validation and test rows.
    license, citation : str
        The terms of the data, and what to cite.
    note : str
        One sentence for the foot of a table.
    sample : bool
        Whether these are only some rows of the public file.
    encodings : mapping
        Functions that make numeric feature sets of a table, by name.
    root : Path, optional
        The folder of the files that a column names.
    classes : tuple of str
        The geometry classes of point clouds, in the order of their numbers.
    """

    name: str
    X: Any
    y: NDArray[np.int64]
    split: Split
    license: str
    citation: str
    note: str = ""
    sample: bool = False
    encodings: Mapping[str, Encoding] = field(default_factory=dict)
    root: Path | None = None
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.X) == len(self.y) == self.split.n:
            lengths = f"{len(self.X)}, {len(self.y)} and {self.split.n}"
            raise InputError(f"X, y and split must have the same number of rows, got {lengths}.")

    def features(self, name: str = "raw") -> Any:
        """The inputs of all rows.

        Parameters
        ----------
        name : str
            "raw" for `X`, or a name in `encodings`.
        """
        check_choice(f"features of {self.name}", name, ["raw", *self.encodings], InputError)
        return self.X if name == "raw" else type(self.X)(dict(self.encodings[name](self.X, self.split.train)))

    def part(self, part: str, features: str = "raw") -> tuple[Any, NDArray[np.int64]]:
        """Inputs and counts of one part of the split.

        Parameters
        ----------
        part : {"train", "validation", "test"}
            Which part.
        features : str
            "raw" for `X`, or a name in `encodings`.

        Returns
        -------
        X, y
        """
        rows = self.split.rows(part)
        return self.features(features)[rows], self.y[rows]

    def images(self, part: str, **options: Any) -> Any:
        """The images of one part of the split, as `ddpn.paper.inputs.Images`.

        Parameters
        ----------
        part : {"train", "validation", "test"}
            Which part.
        **options
            Options of `Images`.
        """
        from ddpn.paper.inputs.images import Images

        if self.root is None:
            raise InputError(f"The data set {self.name} has no folder of images: its root is None.")
        X, y = self.part(part)
        return Images(self.root, X["file"].to_list(), y, **options)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the raw columns and counts."""
        return fingerprint({name: self.X[name].to_numpy() for name in self.X.columns}, self.y)

    def save_split(self, path: str | os.PathLike[str]) -> None:
        """Write the split to a file, with the fingerprint of this data.

        Parameters
        ----------
        path : path
            The file to write.
        """
        self.split.save(path, self.fingerprint)

    def with_split(self, path: str | os.PathLike[str]) -> "Dataset":
        """This data with another split, which must have been saved for it.

        Parameters
        ----------
        path : path
            A file that `save_split` wrote.
        """
        return replace(self, split=Split.load(path, self.fingerprint))


def as_counts(column: Any, name: str) -> NDArray[np.int64]:
    """A column of a file as integers; rows are numbered from 1."""
    counts = check_counts(column, len(column), name=name, labels=np.arange(1, len(column) + 1))
    if len(large := np.flatnonzero(counts > LARGEST_COUNT)):
        raise InputError(f"{name} must hold counts up to 2^53, got {counts[large[0]]:g} at row {large[0] + 1}.")
    return counts.astype(np.int64)
