"""`Dataset`: inputs, counts, the rows of each part, and where they come from; columns of its files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_choice, check_integer, listed
from ddpn.sample import check_counts
from ddpn.tables.files import read

#: The seed of the paper's splits, and their shares: of tables, and of larger data (texts, images, point clouds).
SEED = 1998
SHARES, LARGE_SHARES = (0.8, 0.1, 0.1), (0.7, 0.1, 0.2)
PARTS = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of three parts, which together are all rows, each once.

    Parameters
    ----------
    train, validation, test : array of int
        The row numbers of each part.
    """

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return iter((self.train, self.validation, self.test))

    @property
    def n(self) -> int:
        """The number of rows of the data."""
        return sum(len(part) for part in self)

    def rows(self, part: str) -> NDArray[np.int64]:
        """The row numbers of "train", "validation" or "test"."""
        return getattr(self, check_choice("part", part, PARTS, InputError))


def split(n: int, seed: int = SEED, shares: Sequence[float] = SHARES) -> Split:
    """Shuffle rows and cut them into training, validation and test rows.

    By default the first int(.8 n) train, those up to int(.9 n) validate, the rest test.

    Parameters
    ----------
    n : int
        The number of rows.
    seed : int
        Seed of the shuffle.
    shares : sequence of float
        Shares of the three parts, which sum to 1.

    Examples
    --------
    >>> split(10)
    Split(train=array([9, 8, 7, 4, 1, 0, 5, 6]), validation=array([3]), test=array([2]))
    """
    check_integer("n", n, 1, InputError)
    if len(shares) != 3 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
        raise InputError(f"shares must be those of train, validation and test, which sum to 1, got {tuple(shares)}.")
    rows = np.random.default_rng(check_integer("seed", seed, 0, InputError)).permutation(n)
    # .7 + .1 is a little less than .8 in floating point.
    return Split(*np.split(rows, [int(round(share, 9) * n) for share in (shares[0], shares[0] + shares[1])]))


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

    def files(self, part: str) -> list[Path]:
        """The image files of one part of the split.

        Parameters
        ----------
        part : {"train", "validation", "test"}
            Which part.
        """
        if self.root is None:
            raise InputError(f"The data set {self.name} has no folder of images: its root is None.")
        return [self.root / name for name in self.part(part)[0]["file"]]


def as_counts(column: Any, name: str) -> NDArray[np.int64]:
    """A column of a file as integers; rows are numbered from 1."""
    return check_counts(column, len(column), name=name, labels=np.arange(1, len(column) + 1)).astype(np.int64)


def read_columns(path: Path, *, numbers: Sequence[str] = (), texts: Sequence[str] = ()) -> Any:
    """These columns of a CSV file, complete, as Float64 and String in the order of the file; others are left out."""
    import polars  # slow to import

    frame, wanted = read(str(path), as_text=texts), {*numbers, *texts}
    if missing := sorted(wanted - set(frame.columns)):
        raise InputError(f"{path} must have the columns {listed(sorted(wanted), 40)}, got no {listed(missing)}.")
    found = frame.select([name for name in frame.columns if name in wanted])
    found = found.with_columns(polars.col(list(numbers)).cast(polars.Float64, strict=False))
    for column in found:
        is_number = column.name in numbers
        bad = ~column.is_finite().fill_null(False) if is_number else column.is_null()
        if bad.any():
            must, row = "finite numbers" if is_number else "text", bad.arg_true()[0]
            value = frame[column.name][row]
            got = "none" if value is None else f"{value!r:.40}"
            raise InputError(f"Column {column.name} of {path} must hold {must}, got {got} at row {row + 1}.")
    return found
