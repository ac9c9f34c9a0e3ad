"""The user's table: its columns read, grouped and described."""

from hashlib import sha256
from itertools import pairwise
from typing import Any

import numpy as np

from ddpn.analysis.explanations.grid import is_missing
from ddpn.analysis.report.numbers import percent
from ddpn.tables.encoding.table import Column, read_table

#: Ranges of a numeric column; values or levels that are groups of their own; levels listed in a description.
_BINS, _LEVELS, _LISTED = 5, 8, 4


def columns_of(model: Any, X: Any) -> list[Column]:
    """Every column as the model reads it."""
    return [column._replace(name=str(column.name)) for column in read_table(model, X, reset=False)]


def fingerprint(columns: list[Column], y: np.ndarray) -> str:
    """SHA-256 of names, kinds and values: the same for the same data on every machine."""
    digest = sha256()
    for name, values in {**{column.name: _plain(column) for column in columns}, "\0y": y}.items():
        is_text = values.dtype.kind not in "fiub"
        content = "\0".join(values).encode() if is_text else values.astype("<f8").tobytes()
        digest.update(f"{name}\0{'text' if is_text else 'number'}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _plain(column: Column) -> np.ndarray:
    if column.kind != "category":
        return column.values.astype(np.float64)
    return np.array([*column.levels, ""], dtype=object)[column.values]


def _common_levels(column: Column) -> list[int]:
    """Codes of the levels that occur, the most frequent first; equally frequent ones by name, in any order of rows."""
    number = np.bincount(column.values[~is_missing(column)].astype(int), minlength=len(column.levels))
    return sorted(np.flatnonzero(number).tolist(), key=lambda level: (-number[level], column.levels[level]))


def value_text(column: Column, row: int) -> str:
    """One cell as text."""
    if is_missing(column)[row]:
        return "missing"
    value = column.values[row]
    if column.kind == "category":
        return column.levels[int(value)]
    return ("yes" if value else "no") if column.kind == "flag" else f"{value:.6g}"


def description(column: Column) -> str:
    """The values of a column in a few words."""
    if column.kind == "category":
        order = _common_levels(column)
        shown = ", ".join(column.levels[level] for level in order[:_LISTED])
        return shown if len(order) <= _LISTED else f"{shown}, … ({len(order):,} levels)"
    known = column.values[~is_missing(column)]
    if not len(known):
        return "none"
    if column.kind == "flag":
        return f"{percent(float(known.mean()))} yes"
    if np.isin(known, (0.0, 1.0)).all():
        return f"0 or 1, {percent(float(known.mean()))} are 1"
    least, middle, most = (_short(value) for value in (known.min(), np.median(known), known.max()))
    return f"{least} to {most}, median {middle}"


def _short(value: float) -> str:
    """About four digits, without an exponent up to a billion."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"


def coded(column: Column) -> tuple[np.ndarray, list[str]]:
    """A group code per row, and the label of each code; rows without a value have the last one."""
    missing = is_missing(column)
    if column.kind == "category":
        order = _common_levels(column)
        kept = order if len(order) <= _LEVELS else order[: _LEVELS - 1]
        lookup = np.full(len(column.levels) + 1, len(kept))
        lookup[kept] = np.arange(len(kept))
        codes, labels = lookup[column.values.astype(int)], [*(column.levels[level] for level in kept), "others"]
    else:
        known = column.values[~missing]
        each = np.unique(known)
        if column.kind == "flag":
            each, labels = np.array([0.0, 1.0]), ["no", "yes"]
        elif len(each) <= _LEVELS:
            labels = [f"{value:.6g}" for value in each]
        else:
            each, labels = _ranges(known, each)
        codes = np.searchsorted(each, column.values)
    return np.where(missing, len(labels), codes), [*labels, "missing"]


def _ranges(known: np.ndarray, each: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Upper ends and labels of ranges with about equally many rows; equal values stay together."""
    quantiles = np.quantile(known, np.arange(1, _BINS) / _BINS, method="inverted_cdf")
    # The last range is not empty, even if most rows have the largest value.
    inner = np.unique(np.minimum(quantiles, each[-2]))
    ends = [f"{value:.4g}" for value in inner]
    return inner, [f"up to {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f"above {ends[-1]}"]
