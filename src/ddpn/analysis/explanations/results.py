"""Base classes of the results of explanations, which are shown as tables."""

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
    """Base class of the results of `effects`, `importance`, `contributions` and `explain`, which are shown as tables.

    A subclass implements `table`, and sets `library` to the library of the data frame that `to_frame` returns: "polars"
    or "pandas".
    """

    library: str

    @abstractmethod
    def table(self) -> Table:
        """Return the result as a table in long format: a dictionary of lists, keyed by the names of its columns."""

    def to_dict(self) -> JsonObject:
        """Return the whole result as a dictionary for JSON. By default, this is the `table`."""
        return self.table()

    def to_frame(self) -> "pd.DataFrame | pl.DataFrame":
        """Return the `table` as a data frame: a pandas frame if the explained rows were one, otherwise a polars frame.

        The values of the explained columns are converted to text, because the columns differ in type.
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
    """Protocol of a result about one column of X, such as an `Effect` or an `Importance`."""

    @property
    def name(self) -> str:
        """The name of the column of X."""

    def strength(self, of: str) -> float:
        """Return how much the column matters by the measure `of`, such as "mean" or "crps"."""


ResultT = TypeVar("ResultT", bound=ColumnResult)


class ByColumn(ExplanationResult, Generic[ResultT]):
    """Results for several columns of X, in their order: a sequence that can also be indexed by column name.

    `measures` are the names of the measures by which `by` can sort the results. The first is the default.
    """

    results: list[ResultT]
    measures: ClassVar[tuple[str, ...]]

    def __iter__(self) -> Iterator[ResultT]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, name: str | int) -> ResultT:
        if isinstance(name, int):
            return self.results[name]
        names = [one.name for one in self.results]
        return self.results[names.index(check_column(name, names, error=InputError))]

    def by(self, of: str | None = None) -> list[ResultT]:
        """Return the results of all columns, sorted by how much the column matters, the strongest first.

        Parameters
        ----------
        of : str, optional
            The measure by which to sort: one of `measures`. Default: the first of them.
        """
        measure = self.measures[0] if of is None else check_choice("of", of, self.measures)
        return sorted(self.results, key=lambda one: -one.strength(measure))
