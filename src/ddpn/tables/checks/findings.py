"""`TableFinding`: a problem of a table that makes scores or intervals misleading."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class FindingKind(StrEnum):
    """A kind of problem of a table. Each interface words its own remedy."""

    #: Columns are computed from the target.
    LEAK = "leak"
    #: Columns predict the target so well that they may be computed from it.
    QUESTION = "question"
    #: Rows belong together: they share the values of `columns` or, without columns, all inputs.
    GROUPS = "groups"
    #: Rows that follow each other in the table belong together.
    ORDER = "order"
    #: Rows have a date, but were not split by date.
    DATE = "date"
    #: A value stands for "unknown", in one column or (without columns) in the target.
    MARKER = "marker"
    #: A column numbers or names the rows.
    IDENTIFIER = "identifier"


@dataclass(frozen=True)
class TableFinding:
    """The result of a check of a table, without the remedy, which each interface words itself.

    Parameters
    ----------
    kind : FindingKind
        The kind of problem, which decides the remedy.
    statement : str
        The observation, in one or more sentences.
    columns : tuple of str
        The columns concerned; empty for the target, and for groups by all inputs.
    value : str
        The value that stands for "unknown", in findings of kind `MARKER`.
    are_near : bool
        True if the rows of a group have nearly equal values instead of equal ones.
    """

    kind: FindingKind
    statement: str
    columns: tuple[str, ...] = ()
    value: str = ""
    are_near: bool = False


def are_whole_numbers(values: np.ndarray) -> bool:
    """Return True if there are values and all of them are integers."""
    return bool(len(values)) and bool((values == np.floor(values)).all())
