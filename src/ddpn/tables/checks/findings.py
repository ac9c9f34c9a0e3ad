"""`TableFinding`: a problem of a table that makes scores or intervals misleading."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class FindingKind(StrEnum):
    """The kind of problem of a table. The command line and the estimators suggest a different remedy for each kind."""

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
    """A problem that a check of a table found.

    It does not say what to do, because the command line suggests options and the estimators suggest arguments.

    Parameters
    ----------
    kind : FindingKind
        The kind of problem.
    statement : str
        The problem, in one or more sentences.
    columns : tuple of str
        The columns that have the problem; empty for the target, and for groups of rows with equal inputs.
    value : str
        The value that stands for "unknown", in findings of kind `MARKER`.
    are_near : bool
        True if the rows of a group have nearly equal values instead of equal values.
    """

    kind: FindingKind
    statement: str
    columns: tuple[str, ...] = ()
    value: str = ""
    are_near: bool = False


def are_whole_numbers(values: np.ndarray) -> bool:
    """Return True if the array is not empty and all values are integers."""
    return bool(len(values)) and bool((values == np.floor(values)).all())
