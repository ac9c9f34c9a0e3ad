"""`RowReader`: rows of JSON to the columns of a model, without a data frame."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from ddpn.features.canonical import canonical_number
from ddpn.features.table import Column, PreparedTable
from ddpn.serving.columns import CellError, ServedColumn
from ddpn.serving.problems import Problem, RequestError

#: Problems that one answer lists.
_MOST = 20


class Rows(NamedTuple):
    """Rows that were read: for each column of the requests, the value of each of its parts, row by row."""

    cells: list[list[tuple[Any, ...]]]
    size: int


class Inputs(NamedTuple):
    """What a predictor takes: the table, and exposures, upper bounds and group labels where the model has them."""

    table: PreparedTable
    exposure: np.ndarray | None
    upper: np.ndarray | None
    groups: np.ndarray | None


class RowReader:
    """Read rows of JSON by the columns of a model.

    Parameters
    ----------
    columns : sequence of ServedColumn
        All columns that a request may have.
    kinds : mapping of str to str
        The columns of the model in its order, each "number", "flag" or "category".
    """

    def __init__(self, columns: Sequence[ServedColumn], kinds: Mapping[str, str]) -> None:
        self.columns = tuple(columns)
        self._needed = [column for column in columns if column.is_required]
        self._names, self._kinds = frozenset(column.name for column in columns), dict(kinds)
        place = {name: (i, j) for i, column in enumerate(self._needed) for j, name in enumerate(column.parts)}
        self._places = [place[name] for name in kinds]
        self._roles = {column.kind: i for i, column in enumerate(self._needed) if not column.parts}

    def read(self, rows: Sequence[Any]) -> Rows:
        """Check every cell; raises a `RequestError` that names rows and columns.

        Parameters
        ----------
        rows : sequence
            What the client sent, of any types.
        """
        if not all(type(row) is dict and row.keys() <= self._names for row in rows):
            raise self._refusal(rows)
        try:
            return Rows([[column.read(row[column.name]) for row in rows] for column in self._needed], len(rows))
        except (CellError, KeyError):
            raise self._refusal(rows) from None

    def _refusal(self, rows: Sequence[Any]) -> RequestError:
        """The error about all cells that are wrong."""
        problems = [problem for i, row in enumerate(rows) for problem in self._problems(i, row)]
        more = len(problems) - _MOST
        return RequestError(problems[:_MOST], f" {more:,} more problems are not listed." if more > 0 else "")

    def _problems(self, i: int, row: Any) -> list[Problem]:
        if type(row) is not dict:
            return [Problem(f"rows[{i}] must be an object with a value per column.", row=i)]
        found = []
        for column in self._needed:
            if column.name not in row:
                remedy = "Send it" if column.kind in ("exposure", "upper") else "Send null if the value is missing"
                found.append(Problem(f"rows[{i}] has no column {column.name!r}. {remedy}.", row=i, column=column.name))
                continue
            try:
                column.read(row[column.name])
            except CellError as error:
                found.append(Problem(f"rows[{i}][{column.name!r}] must be {error}.", row=i, column=column.name))
        for name in row:
            if name not in self._names:
                near = get_close_matches(name, self._names, 1)
                hint = f"Did you mean {near[0]!r}?" if near else "Leave it out."
                found.append(Problem(f"rows[{i}] has an unknown column {name[:60]!r}. {hint}", row=i, column=name[:60]))
        return found

    def inputs(self, parts: Sequence[Rows]) -> Inputs:
        """The rows of several requests as one table.

        Parameters
        ----------
        parts : sequence of Rows
            What `read` returned.
        """
        joined = [[cell for part in parts for cell in part.cells[i]] for i in range(len(self._needed))]
        columns = []
        for (name, kind), (i, j) in zip(self._kinds.items(), self._places, strict=True):
            values = [cell[j] for cell in joined[i]]
            columns.append(_levels(name, values) if kind == "category" else Column(name, kind, np.array(values)))
        extra = {role: [cell[0] for cell in joined[i]] for role, i in self._roles.items()}
        exposure, upper = (np.array(extra[role]) if role in extra else None for role in ("exposure", "upper"))
        groups = np.array(extra["group"], dtype=object) if "group" in extra else None
        return Inputs(PreparedTable(columns), exposure, upper, groups)


def _levels(name: str, values: list[str | None]) -> Column:
    """A column of codes into the levels that occur, -1 where missing."""
    index: dict[str, int] = {}
    codes = [-1 if value is None else index.setdefault(value, len(index)) for value in values]
    return Column(name, "category", np.array(codes, dtype=np.int64), tuple(index))


def group_label(cell: Any) -> str:
    """The name of a group, as `ddpn.features.canonical.group_labels` has it."""
    return "missing" if cell is None else canonical_number(cell)
