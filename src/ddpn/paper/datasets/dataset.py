"""Data sets: inputs, counts and their split; where they come from, how they are downloaded and loaded.

The three parts of a split are the training, validation and test rows.
"""

import errno
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from ddpn.rows.checks import check_counts
from ddpn.runtime.errors import ConfigError, DDPNError, InputError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.validation import Registry, check_choice, check_integer, join_words
from ddpn.storage.files import hash_file, lock, write_bytes
from ddpn.tables.files import read_file

#: The seed of the paper's splits, and their shares: of tables, and of larger data (texts, images, point clouds).
SEED = 1998
SHARES, LARGE_SHARES = (0.8, 0.1, 0.1), (0.7, 0.1, 0.2)
PARTS = ("train", "validation", "test")


class Split(NamedTuple):
    """The row numbers of training, validation and test rows. Every row of a data set is in one of them.

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
        """The number of rows of all three parts together."""
        return sum(map(len, self))


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


#: A function that computes numeric inputs, by name, from a table and the numbers of its training rows, whose means and
#: standard deviations scale the inputs.
Encoding = Callable[[Any, NDArray[np.int64]], Mapping[str, NDArray[np.float64]]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Counts and the inputs from which they are predicted, with a split. Columns that leak the counts are left out.

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
        Feature sets: functions that convert a table to numeric inputs, by name.
    root : Path, optional
        The folder of the image files whose paths are a column of `X`.
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

    def __len__(self) -> int:
        return len(self.y)

    def features(self, name: str = "raw") -> Any:
        """Return the inputs of all rows.

        Parameters
        ----------
        name : str
            "raw" for `X`, or a name in `encodings`.
        """
        check_choice(f"features of {self.name}", name, ["raw", *self.encodings], InputError)
        return self.X if name == "raw" else type(self.X)(dict(self.encodings[name](self.X, self.split.train)))

    def part(self, part: str, features: str = "raw") -> tuple[Any, NDArray[np.int64]]:
        """Return inputs and counts of one part of the split.

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
        rows = getattr(self.split, check_choice("part", part, PARTS, InputError))
        return self.features(features)[rows], self.y[rows]


@dataclass(frozen=True)
class Texts:
    """Texts without counts: out-of-distribution rows.

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
    """Convert a column of a file, called `name` in messages, to integer counts. Messages number rows from 1."""
    return check_counts(column, len(column), name=name, labels=np.arange(1, len(column) + 1)).astype(np.int64)


def read_columns(path: Path, *, numbers: Sequence[str] = (), texts: Sequence[str] = ()) -> Any:
    """Read columns of a CSV file: `numbers` as Float64 and `texts` as String, in the order of the file.

    A missing value raises an `InputError`.
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


# Sources: all data sets by name, and downloads by pooch ---------------------------------------------------------------


#: Attempts after the first one that fails.
_RETRIES = 2


@dataclass(frozen=True)
class Source:
    """The origin of a data set: its entry in `catalogue.toml`, which explains these fields."""

    loader: str
    url: str
    license: str
    citation: str
    files: tuple[str, ...] = ()
    size: int = 0
    sha256: str | None = None
    archive: str | None = None
    unverified: bool = False
    rows: int = 0

    def describe_rows(self, n: int, what: str) -> str:
        """Write a sentence that compares `n`, the number of loaded rows, with the paper's; return "" if they are equal.

        `what` is the noun for rows, such as "images".
        """
        if n == self.rows:
            return ""
        return f"{n:,} {'of the' if n < self.rows else 'instead of the'} {self.rows:,} {what} of the paper's data"


_CATALOGUE = tomllib.loads((files(__package__) / "catalogue.toml").read_text(encoding="utf-8"))
#: Every data set by name.
SOURCES = {name: Source(**row | {"files": tuple(row.get("files", ()))}) for name, row in _CATALOGUE.items()}
#: The loader of each data set.
DATASETS = Registry("data set", {name: source.loader for name, source in SOURCES.items()})


def data_folder() -> Path:
    """Return the folder of all data sets: `DDPN_DATA`, or `ddpn` in the platform's cache folder."""
    if folder := os.environ.get("DDPN_DATA"):
        return Path(folder).expanduser()
    return import_extra("platformdirs", "data").user_cache_path("ddpn", appauthor=False, opinion=False)


def fetch(source: Source) -> Path:
    """Return the path of the source's first file, downloaded if it is missing, with a verified checksum if it is known.

    Processes that need the same file wait for each other.
    """
    path = data_folder() / source.files[0]
    if not path.is_file():
        try:
            with lock(path.with_name(f"{path.name}.lock")):
                # Another process may have downloaded it while this one waited.
                if not path.is_file():
                    _download(source, path)
        except OSError as error:
            raise InputError(_failure(source, path, error)) from error
    if source.sha256 is not None and (checksum := hash_file(path)) != source.sha256:
        raise InputError(
            f"{path} must have the SHA-256 {source.sha256}, got {checksum}. "
            f"Delete the file to have it downloaded again from {source.url}."
        )
    return path


def _download(source: Source, path: Path) -> None:
    """Download to `path`, or unpack it from an archive. pooch keeps a file only if its checksum is right."""
    pooch = import_extra("pooch", "data")
    name, sha256 = (path.name, source.sha256) if source.archive is None else (f"{path.name}.zip", source.archive)
    cache = pooch.create(path.parent, "", registry={name: sha256}, urls={name: source.url}, retry_if_failed=_RETRIES)
    try:
        downloaded = Path(cache.fetch(name))
    except ValueError as error:
        raise InputError(
            f"{source.url} sent a file with a wrong checksum, expected SHA-256 {sha256}. If it does so again, "
            f"the file at this address has changed."
        ) from error
    if source.archive is not None:
        with ZipFile(downloaded) as members:
            write_bytes(path, members.read(path.name))
        downloaded.unlink()


def _failure(source: Source, path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk is full: {path.parent} needs {source.size:,} bytes. Free some space, or set DDPN_DATA."
    # Only errors of requests have this attribute: None where the server did not answer or the connection broke.
    if not hasattr(error, "response"):
        return f"Cannot write to {path.parent}: {error}. Set DDPN_DATA to another folder."
    response = error.response
    why = "no connection" if response is None else f"status {response.status_code} {response.reason}"
    checks = f" ({source.size} bytes, SHA-256 {source.sha256})" if source.sha256 else ""
    return (
        f"Cannot download {source.url}: {why}. Download it on a machine with a network and put {path.name}{checks} "
        f"into {path.parent}, or set DDPN_DATA to its parent folder."
    )


@dataclass(frozen=True)
class DatasetStatus:
    """The status of a data set: where it comes from, and whether the data folder has it.

    Attributes
    ----------
    name, address, license : str
        The name of the data set, where it comes from, and its license.
    state : str
        "available", "missing" or "damaged: <reason>".
    rows : int or None
        The number of rows that can be loaded; None if the data set is missing or damaged.
    sample : bool
        Whether the data folder has only a sample of the rows of the public file.
    """

    name: str
    address: str
    license: str
    state: str
    rows: int | None = None
    sample: bool = False


def load(name: str = "rand_health") -> Any:
    """Load a data set by its name.

    Parameters
    ----------
    name : str
        A name in `ddpn.paper.datasets.DATASETS`, such as "rand_health" or "bike_sharing".

    Returns
    -------
    Dataset, or `Texts` for "bible"

    Examples
    --------
    >>> load("rand_health").y[:5]
    array([0, 2, 0, 0, 0])
    """
    return DATASETS.find(name)()


def dataset_status() -> list[DatasetStatus]:
    """Return the status of every data set. Nothing is downloaded."""
    folder, statuses = data_folder(), []
    for name, source in SOURCES.items():
        status = missing = DatasetStatus(name, source.url, source.license, "missing")
        if not source.files or any((folder / file).is_file() for file in source.files):
            try:
                data = load(name)
                # The license of the file that is there: the reviews may be others than the paper's.
                more: dict[str, Any] = {"license": data.license, "rows": len(data), "sample": data.sample}
                status = replace(missing, state="available", **more)
            except ConfigError:
                status = missing  # a package that is not installed
            except DDPNError as error:
                status = replace(missing, state=f"damaged: {error}")
        statuses.append(status)
    return statuses


def download(name: str) -> str:
    """Download a data set unless the data folder has it; return a line on its number of rows and its location.

    If it cannot be downloaded automatically, the error says which file to put into which folder.

    Parameters
    ----------
    name : str
        A name that `load` takes.
    """
    DATASETS.find(name)
    source = SOURCES[name]
    path = fetch(source) if source.sha256 or source.unverified else None
    data = load(name)
    location = path or (data_folder() if source.files else "inside statsmodels")
    note = f" ({data.note})" if data.note else ""
    return f"{name}: {len(data):,}{' (sample)' if data.sample else ''} rows, {location}{note}"
