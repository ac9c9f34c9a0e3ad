"""The kind that each column had in fit, and later columns as that kind where this can be done without guessing."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ddpn.runtime.errors import InputError
from ddpn.sample import RowError, row_labels, rows_named
from ddpn.tables.encoding.canonical import canonical_number, flag_of, have_numbers, number_of
from ddpn.tables.encoding.table import Column, read_table

#: The kind of a category with levels such as 1 or 2.5: there 1, 1.0 and "01" are the same level.
WITH_NUMBERS = "category with numbers"
_WORDS = {"number": "numbers", "flag": "booleans", "category": "text", WITH_NUMBERS: "text"}


def kind_of(column: Column) -> str:
    """The kind to hold later columns to."""
    is_numeric = column.kind == "category" and have_numbers(column.levels)
    return WITH_NUMBERS if is_numeric else column.kind


def read_as_fitted(estimator: Any, X: Any) -> list[Column]:
    """The columns of X, in the order and of the kinds (`kinds_`) of fit."""
    table = read_table(estimator, X, reset=False)
    with rows_named(row_labels(X)):
        return [as_fitted(column, kind) for column, kind in zip(table, estimator.kinds_, strict=True)]


def as_fitted(column: Column, kind: str) -> Column:
    """The column as the kind it had in fit; raises an `InputError` if that would be a guess."""
    name, found, values, _ = column
    if (found == kind and kind != "flag") or (found, kind) == ("flag", "number"):
        return column
    missing = values == -1 if found == "category" else np.isnan(values)
    is_category = kind in ("category", WITH_NUMBERS)
    if missing.all():  # a column with no value has no kind
        return Column(name, "category" if is_category else kind, np.full(len(values), -1 if is_category else np.nan))
    if kind == WITH_NUMBERS:
        return _as_levels(column, missing)
    if found == "category" and kind == "number":
        return _as_values(column, kind, number_of)
    if kind == "flag":
        return _as_values(column, kind, flag_of) if found == "category" else _checked_flags(column)
    raise InputError(f"column {name!r} must hold {_WORDS[kind]} as in fit, got {_WORDS[found]}.")


def _as_levels(column: Column, missing: np.ndarray) -> Column:
    """Numbers, booleans and text as levels, of which those that are numbers have one form."""
    known, places = column.levels, column.values
    if column.kind != "category":
        unique, inverse = np.unique(column.values[~missing], return_inverse=True)
        known, places = unique.tolist(), np.full(len(missing), -1)
        places[~missing] = inverse
    index: dict[str, int] = {}
    target = [index.setdefault(canonical_number(level), len(index)) for level in known]
    # The last entry serves code -1.
    return Column(column.name, "category", np.array([*target, -1])[places], tuple(index))


def _as_values(column: Column, kind: str, value_of: Callable[[str], float | None]) -> Column:
    """Levels of text as the values that they spell."""
    values = [value_of(level) for level in column.levels]
    codes = np.unique(column.values)
    for code in codes[codes >= 0].tolist():
        if values[code] is None:
            got = f"column {column.name!r} must hold {_WORDS[kind]} as in fit, got {column.levels[code]!r}"
            raise RowError(got, column.values == code)
    spelled = np.array([*(np.nan if value is None else value for value in values), np.nan])
    return Column(column.name, kind, spelled[column.values])


def _checked_flags(column: Column) -> Column:
    values = column.values
    wrong = ~np.isnan(values) & (values != 0) & (values != 1)
    if wrong.any():
        raise RowError(f"column {column.name!r} must hold booleans as in fit, got {values[wrong][0]:g}", wrong)
    return column
