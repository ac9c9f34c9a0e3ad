"""Groups of rows that belong together, such as the rows of one person: validate, number and describe them."""

from collections.abc import Sequence

import numpy as np

from ddpn.rows.checks import to_array
from ddpn.runtime.errors import InputError

#: Stands for column names: rows with equal or nearly equal inputs form a group.
EQUAL_INPUTS = "equal-inputs"


def check_groups(groups: object, n: int) -> np.ndarray | None:
    """Validate one group label per row and return the labels as text, or None if `groups` is None.

    `n` is the number of rows. A row with a missing label becomes a group of its own.
    """
    labels = check_labels(groups, n, "groups")
    if labels is None:
        return None
    is_missing = np.array([label is None or label != label for label in labels.tolist()])
    names = np.array([f"{type(label).__name__} {label}" for label in labels.tolist()], dtype=object)
    names[is_missing] = [f"row {row}" for row in np.flatnonzero(is_missing)]
    return names.astype(str)


def check_labels(values: object, n: int, name: str) -> np.ndarray | None:
    """Convert one label per row to an array, or return None if `values` is None.

    Raise an `InputError`, which calls the argument `name`, unless there are `n` labels.
    """
    if values is None:
        return None
    labels = to_array(values)
    if labels.shape != (n,):
        raise InputError(argument=name, must="have one label per row of X", got=f"shape {labels.shape} for {n} rows")
    return labels


def encode_groups(rows: int, group: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Encode group labels as integers; return the group number of each row and the size of each group.

    `rows` is the number of rows, and `group` has the label of each row. If it is None, each row is a group of its own.
    """
    if group is None:
        return np.arange(rows), np.ones(rows, dtype=np.int64)
    _, codes, sizes = np.unique(np.asarray(group), return_inverse=True, return_counts=True)
    return codes.ravel(), sizes


def is_grouped_by_inputs(columns: Sequence[str], table_columns: Sequence[str]) -> bool:
    """Return True if the user asked for groups of rows with equal inputs, by the word "equal-inputs".

    `columns` are the group columns that the user named, and `table_columns` all columns of the table. If the table has
    a column of the name "equal-inputs", that column is meant instead.
    """
    return tuple(columns) == (EQUAL_INPUTS,) and EQUAL_INPUTS not in table_columns


def describe_groups(columns: Sequence[str]) -> str:
    """Describe what the rows of a group have in common, as a phrase such as "the same person".

    `columns` are the group columns, or the word "equal-inputs".

    >>> describe_groups(["person"]), describe_groups(["person", "year"]), describe_groups(["equal-inputs"])
    ('the same person', 'the same person and year', 'equal inputs')
    """
    return "equal inputs" if tuple(columns) == (EQUAL_INPUTS,) else f"the same {' and '.join(columns)}"


def describe_scores(columns: Sequence[str], subject: str = "new groups", is_out_of_fold: bool = False) -> str:
    """Describe in a sentence that scores are valid for new groups, because rows of a group were not divided by splits.

    Parameters
    ----------
    columns : sequence of str
        The group columns, or the word "equal-inputs".
    subject : str
        What the sentence calls the groups that are scored.
    is_out_of_fold : bool
        True if the scores are of out-of-fold predictions. False if they are of test rows.

    Examples
    --------
    >>> describe_scores(["person"])
    'Scores are for new groups: no value of person in the test rows occurs in the training rows.'
    """
    if is_out_of_fold:
        kind, shared = (
            ("inputs", "with its inputs") if tuple(columns) == (EQUAL_INPUTS,) else ("groups", "of its group")
        )
        return f"Scores are for new {kind}: every row was predicted by models that had seen no other row {shared}."
    if tuple(columns) == (EQUAL_INPUTS,):
        subject = subject.replace("groups", "inputs")
        return f"Scores are for {subject}: no test row has the same inputs as a training row."
    shared = f"value of {columns[0]}" if len(columns) == 1 else f"combination of {' and '.join(columns)}"
    return f"Scores are for {subject}: no {shared} in the test rows occurs in the training rows."
