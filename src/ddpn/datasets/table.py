"""Named columns, all of one length: what a file holds, with no data frame library needed to hold it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpn.errors import ConfigError, InputError

Column = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name: float64 numbers, or text as arrays of str objects.

    A table of numbers is an array to whoever asks for one (`numpy.asarray(table)`, scikit-learn, `CountRegressor`); one
    with text becomes a frame first, with `to_pandas` or `to_polars`.

    >>> table = Table({"age": np.array([31.0, 67.0]), "weight": np.array([80.0, 72.0])})
    >>> table.shape, table.rows([1])["age"]
    ((2, 2), array([67.]))
    """

    columns: Mapping[str, Column]

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.columns.items()}
        if not lengths or len(set(lengths.values())) > 1:
            raise InputError(f"columns must be one or more, of one length, got {lengths}. Give each a value a row.")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.columns)

    @property
    def text(self) -> tuple[str, ...]:
        """Names of the columns that hold text."""
        return tuple(name for name, column in self.columns.items() if column.dtype.kind not in "fiub")

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> Column:
        if name not in self.columns:
            raise InputError(f"name must be one of {', '.join(self.names)}, got {name!r}. Choose one of them.")
        return self.columns[name]

    def rows(self, index: Sequence[int] | NDArray[np.int64] | slice) -> "Table":
        """The table of these rows, in their order."""
        return Table({name: column[index] for name, column in self.columns.items()})

    @property
    def matrix(self) -> NDArray[np.float64]:
        """The columns side by side. Shape: (rows, columns)."""
        if self.text:
            raise InputError(
                f"columns must be numbers to make a matrix, got text in {', '.join(self.text)}. "
                f"Use to_pandas() or to_polars(), or a numeric feature set."
            )
        return np.column_stack([column.astype(np.float64) for column in self.columns.values()])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("copy must not be False: the columns lie apart. Pass copy=None.")
        return self.matrix if dtype is None else self.matrix.astype(dtype)

    def to_pandas(self) -> Any:
        """A pandas DataFrame of the columns."""
        return _library("pandas").DataFrame(dict(self.columns))

    def to_polars(self) -> Any:
        """A polars DataFrame of the columns."""
        polars = _library("polars")
        return polars.DataFrame({n: c.tolist() if n in self.text else c for n, c in self.columns.items()})

    def fingerprint(self, y: Column) -> str:
        """sha256 of names, kinds and values, y's included: the same for the same data on every machine."""
        digest = sha256()
        for name, column in {**self.columns, "\0y": y}.items():
            is_text = column.dtype.kind not in "fiub"
            values = "\0".join(column).encode() if is_text else column.astype("<f8").tobytes()
            digest.update(f"{name}\0{'text' if is_text else 'number'}\0{len(values)}\0".encode())
            digest.update(values)
        return digest.hexdigest()


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ConfigError(f"{name} must be installed for to_{name}(), got none. Run: pip install {name}") from None
