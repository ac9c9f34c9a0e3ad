"""`Dataset`: the inputs, counts and split of a data set. Also defines functions that read and check its files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ddpn.rows.checks import check_counts
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_choice, check_integer, join_words
from ddpn.tables.files import read_file

#: The seed of the paper's splits, and their shares: of tables, and of larger data (texts, images, point clouds).
SEED = 1998
SHARES, LARGE_SHARES = (0.8, 0.1, 0.1), (0.7, 0.1, 0.2)
PARTS = ("train", "validation", "test")


class Split(NamedTuple):
    """The row numbers of the training, validation and test rows. Every row is in exactly one of the three arrays.

    Parameters
    ----------
    train, validation, test : array of int
        The row numbers, from 0.
    """

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]

    @property
    def n(self) -> int:
        """The total number of rows."""
        return sum(map(len, self))


def split(n: int, seed: int = SEED, shares: Sequence[float] = SHARES) -> Split:
    """Shuffle rows and split them into training, validation and test rows.

    By default, 80% are training rows, 10% validation rows and 10% test rows.

    Parameters
    ----------
    n : int
        The number of rows.
    seed : int
        Seed of the shuffle.
    shares : sequence of float
        Shares of training, validation and test rows, which sum to 1.

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


#: A function that computes numeric inputs, by name, from a table and the numbers of its training rows, whose means and
#: standard deviations scale the inputs.
Encoding = Callable[[Any, NDArray[np.int64]], Mapping[str, NDArray[np.float64]]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A count data set: inputs, counts and a split into training, validation and test rows.

    Columns from which the counts could be computed are left out of the inputs.

    Parameters
    ----------
    name : str
        The name of the data set.
    X : polars DataFrame or Tensor
        The inputs: a table, or a tensor of point clouds in the format of `ddpn.paper.inputs.pack`.
    y : array of int, shape (rows,)
        The counts.
    split : Split
        Training, validation and test rows.
    license, citation : str
        The license of the data, and the publication to cite.
    note : str
        A remark about the rows, which is printed below tables of results.
    sample : bool
        Whether the data set has only some rows of the public file.
    encodings : mapping
        The feature sets by name. Each is a function that computes numeric inputs from the table `X` and the row numbers
        of the training rows.
    root : Path, optional
        The folder of the image files. A column of `X` has their paths, relative to this folder.
    classes : tuple of str
        The names of the geometry classes 0, 1, ... of point clouds.
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

    def __len__(self) -> int:
        return len(self.y)

    def features(self, name: str = "raw") -> Any:
        """Return the inputs of all rows: those in the file, or numeric inputs that are computed from them.

        Parameters
        ----------
        name : str
            "raw" for `X`, or a name in `encodings`.
        """
        check_choice(f"features of {self.name}", name, ["raw", *self.encodings], InputError)
        return self.X if name == "raw" else type(self.X)(dict(self.encodings[name](self.X, self.split.train)))

    def part(self, part: str, features: str = "raw") -> tuple[Any, NDArray[np.int64]]:
        """Return the inputs and counts of the training, validation or test rows.

        Parameters
        ----------
        part : {"train", "validation", "test"}
            The part of the split.
        features : str
            "raw" for `X`, or a name in `encodings`.

        Returns
        -------
        X, y
        """
        rows = getattr(self.split, check_choice("part", part, PARTS, InputError))
        return self.features(features)[rows], self.y[rows]


@dataclass(frozen=True)
class Texts:
    """Texts without counts, which serve as out-of-distribution rows for a model of reviews.

    Parameters
    ----------
    texts : list of str
        The texts.
    license, citation, note, sample
        As in `Dataset`.
    """

    texts: list[str]
    license: str
    citation: str
    note: str = ""
    sample: bool = False

    def __len__(self) -> int:
        return len(self.texts)


def as_counts(column: Any, name: str) -> NDArray[np.int64]:
    """Convert a column to an integer array; raise an `InputError` if a value is not a count.

    `name` is the column name in the error message, which numbers rows from 1.
    """
    return check_counts(column, len(column), name=name, labels=np.arange(1, len(column) + 1)).astype(np.int64)


def read_columns(path: Path, *, numbers: Sequence[str] = (), texts: Sequence[str] = ()) -> Any:
    """Read the columns `numbers` (as Float64) and `texts` (as String) of a CSV file into a polars data frame.

    Columns keep the order of the file. A missing column raises an `InputError`, and so does a cell that is missing or,
    in a column of numbers, not a finite number.
    """
    import polars  # slow to import

    frame, names = read_file(str(path), as_text=texts), {*numbers, *texts}
    if missing := sorted(names - set(frame.columns)):
        raise InputError(f"{path} must have the columns {join_words(sorted(names), 40)}, got no {join_words(missing)}.")
    selected = frame.select([name for name in frame.columns if name in names])
    selected = selected.with_columns(polars.col(list(numbers)).cast(polars.Float64, strict=False))
    for column in selected:
        is_number = column.name in numbers
        bad = ~column.is_finite().fill_null(False) if is_number else column.is_null()
        if bad.any():
            must, row = "finite numbers" if is_number else "text", bad.arg_true()[0]
            value = frame[column.name][row]
            got = "none" if value is None else f"{value!r:.40}"
            raise InputError(f"Column {column.name} of {path} must hold {must}, got {got} at row {row + 1}.")
    return selected
