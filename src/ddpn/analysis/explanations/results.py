"""Base classes of the results of explanations: they have a table, and show its first rows as text."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from ddpn.runtime.display import TextTable, value_text
from ddpn.runtime.errors import InputError
from ddpn.runtime.frames import make_frame
from ddpn.runtime.validation import check_choice, check_column
from ddpn.storage.contents import JsonObject

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

#: A table by columns, which may have different types.
Table = dict[str, list[Any]]


class ExplanationResult(ABC):
    """Base of what `effects`, `importance`, `contributions` and `explain` return: a result that is shown as a table.

    A subclass implements `table`, and sets `library`: "polars" or "pandas", the data frames that `to_frame` returns.
    """

    library: str

    @abstractmethod
    def table(self) -> Table:
        """Return the result as a long table: lists of cells by the name of the table's column, ready for JSON."""

    def to_dict(self) -> JsonObject:
        """Return the whole result as plain values, ready for JSON. By default, this is the `table`."""
        return self.table()

    def to_frame(self) -> "pd.DataFrame | pl.DataFrame":
        """Return the `table` as a data frame: of pandas if the rows were one, else of polars.

        Values of different columns become text, because their types differ.
        """
        table = self.table()
        if "value" in table:
            cells = (f"{cell:.10g}" if isinstance(cell, float) else str(cell) for cell in table["value"])
            table = table | {"value": list(cells)}
        return make_frame(table, self.library)

    def __repr__(self) -> str:
        return f"{type(self).__name__}\n{TextTable.from_columns(self.table())}"

    def _repr_html_(self) -> str:
        table = self.table()
        values = {name: [value_text(value) for value in table[name]] for name in table if name == "value"}
        return TextTable.from_columns(table | values).to_html()


class ColumnResult(Protocol):
    """What an explanation says about one column of X, such as its `Effect` or its `Importance`."""

    @property
    def name(self) -> str:
        """The name of the column of X."""

    def strength(self, of: str) -> float:
        """Return how much the column matters, by the measure `of`, such as "mean" or "crps"."""


One = TypeVar("One", bound=ColumnResult)


class ByColumn(ExplanationResult, Generic[One]):
    """What an explanation says about several columns of X: a sequence that can also be indexed by a column's name.

    The results are in the order of the columns. `measures` are the measures of strength by which `by` can sort them.
    The first is the default.
    """

    results: list[One]
    measures: ClassVar[tuple[str, ...]]

    def __iter__(self) -> Iterator[One]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, name: str | int) -> One:
        if isinstance(name, int):
            return self.results[name]
        names = [one.name for one in self.results]
        return self.results[names.index(check_column(name, names, error=InputError))]

    def by(self, of: str | None = None) -> list[One]:
        """Return the results of all columns, sorted by a measure of strength, the strongest first.

        Parameters
        ----------
        of : str, optional
            One of `measures`. Default: the first one.
        """
        measure = self.measures[0] if of is None else check_choice("of", of, self.measures)
        return sorted(self.results, key=lambda one: -one.strength(measure))
