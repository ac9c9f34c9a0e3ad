"""What all results of explanations have in common: a table, and the first rows of the table as text."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import polars as pl

from ddpn.runtime.display import TextTable, value_text
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_choice, check_column
from ddpn.storage.contents import JsonObject

#: A table by columns, each of its own type.
Table = dict[str, list[Any]]


class ExplanationResult(ABC):
    """The result of an explanation. A subclass has a `table`."""

    @abstractmethod
    def table(self) -> Table:
        """Return a long table by columns, ready for a data frame or for JSON."""

    def to_dict(self) -> JsonObject:
        """Everything as plain values, ready for JSON: the `table`, if there is nothing else."""
        return self.table()

    def to_frame(self) -> pl.DataFrame:
        """Return the `table` as a polars data frame; cells of several columns, which have different types, are text."""
        table = self.table()
        if "value" in table:
            cells = (f"{cell:.10g}" if isinstance(cell, float) else str(cell) for cell in table["value"])
            table = table | {"value": list(cells)}
        return pl.DataFrame(table)

    def __repr__(self) -> str:
        return f"{type(self).__name__}\n{TextTable.from_columns(self.table())}"

    def _repr_html_(self) -> str:
        table = self.table()
        values = {name: [value_text(value) for value in table[name]] for name in table if name == "value"}
        return TextTable.from_columns(table | values).to_html()


class ColumnResult(Protocol):
    """The result of one column."""

    @property
    def name(self) -> str:
        """The column."""

    def strength(self, of: str) -> float:
        """Return how much the column matters by one of the measures."""


One = TypeVar("One", bound=ColumnResult)


class ByColumn(ExplanationResult, Generic[One]):
    """Results of several columns, in the order of the columns: a sequence that also takes names.

    `measures` are what they can be ordered by, the default first.
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
        """Return the results, the strongest first.

        Parameters
        ----------
        of : str, optional
            What to order by, one of `measures`. Default: the first of them.
        """
        measure = self.measures[0] if of is None else check_choice("of", of, self.measures)
        return sorted(self.results, key=lambda one: -one.strength(measure))
