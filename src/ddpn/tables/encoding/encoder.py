"""`TableEncoder`: converts tables to float32 matrices, the inputs of a network. It needs no scikit-learn."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self, cast

import numpy as np
from numpy.typing import ArrayLike

from ddpn.rows.checks import TableLike, check_vector, get_row_count, get_row_labels
from ddpn.rows.count_rows import take_rows
from ddpn.rows.splits import FOLDS, assign_folds, check_folds
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_choice, check_integer
from ddpn.tables.columns import ColumnTable, Kind
from ddpn.tables.encoding.categories import CategoryEncoding, fit_category, fit_effects, make_targets
from ddpn.tables.encoding.columns import ColumnPlan, Encoded
from ddpn.tables.encoding.numbers import (
    MAX_CODES,
    NumberEncoding,
    find_bin_edges,
    find_integer_codes,
    find_midpoints,
    fit_boolean,
    fit_number,
)
from ddpn.tables.encoding.out_of_fold import OutOfFoldEffects, has_effects
from ddpn.tables.encoding.steps import count_thresholds_per_column, encode_for_trees, find_best_cuts, list_thresholds
from ddpn.tables.reading import read_table
from ddpn.tables.schema import Schema

#: The default of `bins` by `numeric`. A few well chosen steps are better than many.
DEFAULT_BINS = {"standard": 0, "piecewise": 24, "steps": 12}
#: The most levels of a column without level effects, by `categorical`.
LEVELS_WITHOUT_EFFECT: dict[str, float] = {"one-hot": float("inf"), "auto": 50, "effects": 2}
#: The most inputs that bins, steps or codes may add in total, which limits the first layer for wide tables: from 427
#: columns on, the default number of bins is smaller.
MAX_INPUTS = 10_240


class TableEncoder:
    """Encode a table of numbers, booleans and text as finite float32 inputs of a network.

    Members use this class, and `FeatureEncoder` is the same encoder as a transformer of scikit-learn: see its options
    and what it does with each kind of column.

    Parameters
    ----------
    numeric, bins, categorical
        The options of `FeatureEncoder`.

    Attributes
    ----------
    schema_ : Schema
        The names and kinds of the columns of `fit`.
    columns_ : list of NumberEncoding or CategoryEncoding
        The fitted encoding of each column.
    """

    def __init__(
        self,
        *,
        numeric: str = "standard",
        bins: int | None = None,
        categorical: str = "one-hot",
    ) -> None:
        self.numeric = numeric
        self.bins = bins
        self.categorical = categorical

    def fit(
        self,
        X: TableLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> Self:
        """Fit the encoding of every column.

        Parameters
        ----------
        X : array-like or data frame
            The table.
        y : array-like, optional
            The counts. Required for "steps" and level effects, otherwise not used.
        sample_weight : array-like, optional
            The weight of each row. A weight of 2 equals giving the row twice. Rows of weight 0 are ignored.
        exposure : array-like, optional
            The known scale of each row. Level effects are then effects on the count per unit.

        Returns
        -------
        self
        """
        bins = self.resolve_bins()
        table = self.read_fitted_table(X)
        rows = len(table)
        checked_weight = check_vector("sample_weight", sample_weight, rows, allow_zero=True, labels=get_row_labels(X))
        weights = np.ones(rows) if checked_weight is None else checked_weight
        scale = check_vector("exposure", exposure, rows, allow_zero=False, labels=get_row_labels(X))
        target = _check_target(y, rows, self._uses_y) if self._uses_y else None
        if not weights.all():
            used = weights > 0.0
            table = table.rows(used)
            target = None if target is None else target[used]
            scale = None if scale is None else scale[used]
            weights = weights[used]
        self.set_schema(Schema.from_table(table))
        self.set_columns(self._fit_columns(table, target, scale, weights, bins))
        return self

    @property
    def _uses_y(self) -> str:
        """The option that requires y, such as 'numeric="steps"', for messages. "" if y is not required."""
        by_effects = "" if self.categorical == "one-hot" else f'categorical="{self.categorical}"'
        return 'numeric="steps"' if self.numeric == "steps" else by_effects

    def fit_blocks(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        exposure: ArrayLike | None,
        fold: np.ndarray | None,
        size: int,
    ) -> Iterator[np.ndarray]:
        """Fit the encoding of every column, and encode the rows in blocks, with level effects fitted to other folds.

        Parameters
        ----------
        X, y, sample_weight, exposure
            As for `fit`.
        fold : array of int, shape (rows,), optional
            The fold number of each row, from 0 on. Default: five random folds.
        size : int
            The number of rows per block.

        Returns
        -------
        iterator of arrays of float32, shape (rows of the block, inputs)
        """
        self.fit(X, y, sample_weight, exposure)
        rows = get_row_count(X)
        parts = [slice(start, start + size) for start in range(0, rows, size)]
        if not has_effects(self):
            return (self.encode(take_rows(X, part)) for part in parts)
        target = _check_target(y, rows, self._uses_y)
        weight = check_vector("sample_weight", sample_weight, rows, allow_zero=True)
        scale = check_vector("exposure", exposure, rows, allow_zero=False)
        folds = assign_folds(rows, FOLDS, 0) if fold is None else check_folds(fold, rows)
        effects = OutOfFoldEffects(self, X, target, weight, scale, folds)
        return (effects.encode(take_rows(X, part), folds[part]) for part in parts)

    def read_fitted_table(self, X: TableLike) -> ColumnTable:
        """Convert the table that is passed to `fit`, and detect the kinds of its columns."""
        return read_table(X)

    def set_schema(self, schema: Schema) -> None:
        """Set the names and kinds of the columns. Called by `fit` and when an encoder is loaded."""
        self.schema_ = schema

    def set_columns(self, columns: list[Encoded]) -> None:
        """Set the encodings of all columns. Called by `fit` and when an encoder is loaded."""
        self.columns_, self._plan = columns, ColumnPlan(columns)

    def _fit_columns(
        self, table: ColumnTable, y: np.ndarray | None, exposure: np.ndarray | None, weights: np.ndarray, bins: int
    ) -> list[Encoded]:
        """Fit the encoding of every column, with `bins` bins or indicators per column of numbers.

        All `weights` must be above 0. `y` is None if no encoding uses the counts.
        """
        target = None if y is None else make_targets(y, weights, exposure)
        n_numbers = table.kinds.count(Kind.NUMBER)
        max_inputs = max(1, MAX_INPUTS // max(1, n_numbers))
        bins = min(bins, max_inputs) if self.bins is None else bins
        columns: list[Encoded] = []
        # Only these are kept of columns of numbers: distinct values and their weights take more memory than a table.
        by_steps = self.numeric == "steps" and y is not None
        thresholds: dict[int, np.ndarray] = {}
        undecided: list[int] = []
        for j, cells in enumerate(table):
            if cells.is_category:
                is_long = np.count_nonzero(cells.count_levels()) > LEVELS_WITHOUT_EFFECT[self.categorical]
                effects = fit_effects(cells, target) if target is not None and is_long else None
                columns.append(fit_category(cells, weights, effects))
            elif cells.kind == Kind.BOOLEAN:
                columns.append(fit_boolean(cells.values, weights))
            else:
                column, number = fit_number(cells.values.astype(np.float64), weights)
                if self.numeric == "piecewise":
                    column = replace(column, edges=find_bin_edges(number, bins))
                elif by_steps:
                    thresholds[j] = list_thresholds(number, count_thresholds_per_column(len(table.columns)))
                    if len(number.values) > bins + 1:
                        undecided.append(j)
                    elif len(number.values) > 2:
                        column = replace(column, steps=find_midpoints(number.values))
                if by_steps or self.numeric == "piecewise":
                    column = replace(column, codes=find_integer_codes(number, min(max_inputs, MAX_CODES)))
                columns.append(column)
        if undecided and y is not None:
            cuts = find_best_cuts(encode_for_trees(columns, thresholds, table), y, weights, bins)
            for j in undecided:
                columns[j] = replace(cast(NumberEncoding, columns[j]), steps=thresholds[j][cuts[j]])
        return columns

    def encode(self, X: TableLike) -> np.ndarray:
        """Encode rows with the columns of `fit` as finite, C-contiguous float32. Shape: (rows, inputs)."""
        return self._plan.encode(self.schema_.parse(X))

    @property
    def levels(self) -> dict[str, tuple[str, ...]]:
        """The levels of each categorical column that have an input or an effect of their own, most frequent first.

        All other levels are encoded like unseen levels.
        """
        columns = zip(self.schema_.names, self.columns_, strict=True)
        return {name: column.known_levels for name, column in columns if isinstance(column, CategoryEncoding)}

    def list_input_names(self, column_names: Sequence[str] | None = None) -> list[str]:
        """List the name of every input, such as "age > 64.5" or "ward = B".

        `column_names` are the names of the columns. Default: those of the table of `fit`.
        """
        columns = zip(self.schema_.names if column_names is None else column_names, self.columns_, strict=True)
        return [name for column_name, column in columns for name in column.list_input_names(column_name)]

    @property
    def n_inputs(self) -> int:
        """The number of inputs per row."""
        return self._plan.width

    @property
    def numeric_inputs(self) -> list[int]:
        """The positions of the inputs that can be any number. All other inputs are 0 or 1."""
        return self._plan.numeric_inputs

    def resolve_bins(self) -> int:
        """Validate the options `numeric`, `categorical` and `bins`; return the number of bins or indicators per column.

        If `bins` is None, the number depends on `numeric`.
        """
        check_choice("numeric", self.numeric, DEFAULT_BINS)
        check_choice("categorical", self.categorical, LEVELS_WITHOUT_EFFECT)
        if self.bins is not None:
            check_integer("bins", self.bins, minimum=1)
        return DEFAULT_BINS[self.numeric] if self.bins is None else int(self.bins)


def _check_target(y: ArrayLike | None, rows: int, used_by: str) -> np.ndarray:
    """Validate y, and return it as float64 of shape (rows,). The error about a missing y names the option `used_by`."""
    if y is None:
        # scikit-learn's checks look for the words after the colon.
        raise InputError(f"y is missing: {used_by} requires y to be passed, but the target y is None.")
    target = np.atleast_1d(np.asarray(y))
    target = target[:, 0] if target.shape == (rows, 1) else target
    checked = check_vector("y", target, rows, allow_zero=True, labels=get_row_labels(y), allow_all_zero=True)
    assert checked is not None
    return checked
