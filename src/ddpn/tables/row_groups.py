"""Groups of rows that belong together, by the columns of `--group`: their labels, and what scores of new ones mean."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ddpn.tables.cells import cleaned, polars
from ddpn.tables.hashing import column_codes, hashed

#: In place of columns: rows whose inputs are all equal belong together.
EQUAL_INPUTS = "equal-inputs"


def group_labels_of(frame: Any, columns: Sequence[str], missing: Sequence[str], X: Any) -> np.ndarray | None:
    """The label of each row's group, equal where all group columns are; None if the table does not have them.

    A row with a missing value is a group of its own.

    Parameters
    ----------
    frame : polars DataFrame
        The table.
    columns : sequence of str
        The group columns; several are combined. `EQUAL_INPUTS` compares all of `X`.
    missing : sequence of str
        Words that stand for a missing value.
    X : polars DataFrame
        The inputs of the model.

    Returns
    -------
    array of uint64, shape (rows,), or None
        Hashes, which are the same for the same values in any table.
    """
    if is_by_inputs(columns, frame.columns):
        return hashed([column_codes(series) for series in X.iter_columns()], X.height)
    if not columns or not set(columns) <= set(frame.columns):
        return None
    cells = [_text(frame[name], missing) for name in columns]
    labels = hashed([column_codes(series) for series in cells], frame.height)
    alone = np.flatnonzero(np.any([series.is_null().to_numpy() for series in cells], axis=0))
    # Text of a column has no such character.
    own = polars().Series([f"\0{row}" for row in alone.tolist()], dtype=polars().String)
    labels[alone] = column_codes(own) if len(alone) else labels[alone]
    return labels


def is_by_inputs(columns: Sequence[str], present: Sequence[str]) -> bool:
    """Whether rows with equal inputs are the groups; a column of that name takes precedence."""
    return tuple(columns) == (EQUAL_INPUTS,) and EQUAL_INPUTS not in present


def missing_sentences(frame: Any, columns: Sequence[str], missing: Sequence[str]) -> list[str]:
    """A warning per group column that has missing values."""
    counts = {name: _text(frame[name], missing).null_count() for name in columns if name in frame.columns}
    return [
        f"Column {name} is missing in {count:,} rows: each of these rows is treated as a group of its own."
        for name, count in counts.items()
        if count
    ]


def _text(series: Any, missing: Sequence[str]) -> Any:
    """Cells as text, null where missing."""
    known = series.fill_nan(None) if series.dtype.is_float() else series
    return cleaned(known.cast(polars().String), missing)


def group_words(columns: Sequence[str]) -> str:
    """What the groups of some columns are called within a sentence.

    >>> group_words(["person"]), group_words(["person", "year"]), group_words(["equal-inputs"])
    ('the same person', 'the same person and year', 'equal inputs')
    """
    return "equal inputs" if tuple(columns) == (EQUAL_INPUTS,) else f"the same {' and '.join(columns)}"


def meaning_of(columns: Sequence[str], in_time: bool = False) -> str:
    """What the scores of test rows mean where rows are split by groups.

    >>> meaning_of(["person"])
    'Scores are for new groups: no value of person in the test rows occurs in the training rows.'
    """
    later = " that begin later" if in_time else ""
    if tuple(columns) == (EQUAL_INPUTS,):
        return f"Scores are for new inputs{later}: no test row has the same inputs as a training row."
    what = f"value of {columns[0]}" if len(columns) == 1 else f"combination of {' and '.join(columns)}"
    return f"Scores are for new groups{later}: no {what} in the test rows occurs in the training rows."
