"""From the columns of a training table to the encoding of each."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from ddpn.tables.encoding.categorical import CategoricalColumn, fit_category
from ddpn.tables.encoding.level_effects import LevelEffects, Targets, fit_effects
from ddpn.tables.encoding.numeric import (
    MAX_CODES,
    Distinct,
    NumericColumn,
    bin_edges,
    every_step,
    fit_flag,
    fit_number,
    integer_codes,
)
from ddpn.tables.encoding.steps import MAX_THRESHOLDS, best_cuts, candidates, thresholds_per_column
from ddpn.tables.encoding.table import Column

Encoded = NumericColumn | CategoricalColumn


def fit_columns(
    table: list[Column],
    weights: np.ndarray,
    min_weight: float,
    max_levels: int,
    effects: Mapping[int, LevelEffects] = MappingProxyType({}),
) -> tuple[list[Encoded], dict[int, Distinct]]:
    """Each column's plain encoding, and by position the distinct values of those that hold numbers."""
    columns: list[Encoded] = []
    numbers: dict[int, Distinct] = {}
    for j, (_, kind, x, levels) in enumerate(table):
        if kind == "category":
            columns.append(fit_category(x, levels, weights, min_weight, max_levels, effects.get(j)))
        elif kind == "flag":
            columns.append(fit_flag(x, weights))
        else:
            column, numbers[j] = fit_number(x.astype(np.float64), weights)
            columns.append(column)
    return columns, numbers


def level_effects(table: list[Column], target: Targets, more_than: float) -> dict[int, LevelEffects]:
    """By position the effects of categories with more levels than this that differ by more than chance."""
    found = {}
    for j, (_, kind, codes, levels) in enumerate(table):
        if kind == "category" and len(np.unique(codes[codes >= 0])) > more_than:
            found[j] = fit_effects(codes, levels, target)
    return {j: effects for j, effects in found.items() if effects is not None}


def add_bins(
    columns: list[Encoded], numbers: dict[int, Distinct], bins: int, max_codes: int = MAX_CODES
) -> list[Encoded]:
    """The columns with quantile bins and integer codes for every column of numbers."""
    edges = {j: {"edges": bin_edges(number, bins)} for j, number in numbers.items()}
    return _extended(columns, numbers, edges, max_codes)


def add_steps(
    columns: list[Encoded],
    numbers: dict[int, Distinct],
    table: list[Column],
    y: np.ndarray,
    weights: np.ndarray,
    count: int,
    max_codes: int = MAX_CODES,
) -> list[Encoded]:
    """The columns with the best `count` steps (all, if there are few values) and integer codes for numbers."""
    most = thresholds_per_column(len(table))
    thresholds = {j: candidates(column, most) for j, column in numbers.items()}
    codes = np.empty((len(y), len(table)), dtype=np.uint8)
    for j, (column, fitted) in enumerate(zip(table, columns, strict=True)):
        codes[:, j] = _tree_codes(column, fitted, thresholds.get(j))
    cuts = best_cuts(codes, y, weights, count)
    added = {}
    for j, number in numbers.items():
        few = len(number.values) <= count + 1
        added[j] = {"steps": every_step(number) if few else thresholds[j][cuts[j]]}
    return _extended(columns, numbers, added, max_codes)


def _tree_codes(column: Column, fitted: Encoded, thresholds: np.ndarray | None) -> np.ndarray:
    """Codes for the trees: the interval between thresholds, a flag, or a level's rank by frequency."""
    if isinstance(fitted, CategoricalColumn):
        rank = {level: j for j, level in enumerate(fitted.levels)}
        ranks = [*(rank.get(level, len(rank)) for level in column.levels), len(rank) + 1]
        return np.minimum(ranks, MAX_THRESHOLDS)[column.values]
    x = np.where(np.isnan(column.values), fitted.fill, column.values)
    return x if thresholds is None else np.searchsorted(thresholds, x)


def _extended(
    columns: list[Encoded], numbers: dict[int, Distinct], added: dict[int, dict[str, Any]], max_codes: int
) -> list[Encoded]:
    extended = list(columns)
    for j, inputs in added.items():
        codes = integer_codes(numbers[j], min(max_codes, MAX_CODES))
        extended[j] = replace(cast(NumericColumn, extended[j]), codes=codes, **inputs)
    return extended
