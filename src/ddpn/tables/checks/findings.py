"""`TableFinding`: something in a table that makes scores or intervals misleading, as data for every interface."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class FindingKind(StrEnum):
    """What is or may be wrong with a table; interfaces offer a remedy for each kind."""

    #: Columns are made of the target.
    LEAK = "leak"
    #: Columns predict the target so well that they may be made of it.
    QUESTION = "question"
    #: Rows belong together, by the values of `columns`, or by all inputs where there are none.
    GROUPS = "groups"
    #: Rows that follow each other in the table belong together.
    ORDER = "order"
    #: Rows have a date, and were not split by it.
    DATE = "date"
    #: A value stands for "unknown", in one column or (without columns) in the target.
    MARKER = "marker"
    #: A column numbers or names the rows.
    IDENTIFIER = "identifier"


@dataclass(frozen=True)
class TableFinding:
    """What a check found in a table, without the remedy, which each interface words for itself.

    Parameters
    ----------
    kind : FindingKind
        What it is, which decides the remedy.
    statement : str
        What was seen, as one or more sentences.
    columns : tuple of str
        The columns that it is about; none for the target, and for groups by all inputs.
    value : str
        The value that stands for "unknown", where the finding is about one.
    are_near : bool
        Whether groups are of nearly equal values, and not of equal ones.
    """

    kind: FindingKind
    statement: str
    columns: tuple[str, ...] = ()
    value: str = ""
    are_near: bool = False


def are_whole_numbers(values: np.ndarray) -> bool:
    """Return True if there are values and all of them are integers."""
    return bool(len(values)) and bool((values == np.floor(values)).all())
