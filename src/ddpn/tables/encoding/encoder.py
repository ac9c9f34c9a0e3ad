"""`FeatureEncoder`: a scikit-learn transformer from tables to float32 matrices, the inputs of a network."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

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
    fit_boolean,
    fit_number,
    list_all_steps,
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


class FeatureEncoder(TransformerMixin, BaseEstimator):
    """Encode a table of numbers, booleans and text as finite float32 inputs of a network.

    - A number becomes its standardised value, which is linear up to 10 standard deviations and logarithmic beyond.
      Before numbers are standardised, a missing number becomes the median of the training rows (the lower one of the
      two middle values, if there are two).
    - A boolean stays 0 or 1. A missing boolean becomes the more frequent value of the training rows.
    - Text becomes one-hot inputs: one for each of the at most 100 most frequent levels that have at least 0.05% of the
      weight, and one for all rarer levels together. Unseen levels are encoded like rarer levels or, if there are none,
      as zeros.
    - A column of any type gets an indicator of missing values, if some of its values in the training rows are missing.
      Without this indicator, missing text is encoded like an unseen level.

    Fitting with integer weights equals fitting with repeated rows, bit for bit.

    Text columns with many levels may get one more input, the effect of the level on y (target encoding). It is the
    logarithm of the level's mean relative to the overall mean, shrunk towards 0 if the level has few rows. Unseen
    levels have the effect 0. `fit_transform` encodes each row with effects that were fitted to other folds. Do not call
    `transform` with the rows of `fit`: the effects in a row would contain its own target.

    Parameters
    ----------
    numeric : {"standard", "piecewise", "steps"}
        The inputs to add for columns of numbers with more than two values. "standard" adds none. "piecewise" adds
        piecewise-linear bins between weighted quantiles. "steps" adds indicators 1[x > t], whose thresholds t are the
        best cuts of boosted trees fitted to y. With bins or indicators, integer columns with at most 32 values also get
        a one-hot code, and tables of more than about 400 columns get fewer bins.
    bins : int, optional
        Bins or indicators per column. Default: 24 for "piecewise", 12 for "steps".
    categorical : {"one-hot", "auto", "effects"}
        The inputs to add for text. "one-hot" adds none, "auto" adds level effects for columns with more than 50 levels,
        and "effects" adds them for columns with more than two levels. Columns whose levels differ by chance alone get
        no level effects.

    Examples
    --------
    >>> encoder = FeatureEncoder().fit([[1.0, "a"], [3.0, "b"], [None, "a"]])
    >>> encoder.get_feature_names_out().tolist()
    ['x0', 'x0 is missing', 'x1 = a', 'x1 = b']
    >>> encoder.transform([[3.0, "b"], [None, "c"]]).round(2)
    array([[ 1.41,  0.  ,  0.  ,  1.  ],
           [-0.71,  1.  ,  0.  ,  0.  ]], dtype=float32)
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
    ) -> "FeatureEncoder":
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
        table = read_table(X, type(self))
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

    def fit_transform(
        self,
        X: TableLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        fold: np.ndarray | None = None,
    ) -> np.ndarray:
        """Fit the encoding of every column, and encode the rows with level effects that were fitted to other folds.

        Parameters
        ----------
        X : array-like or data frame
            The table.
        y : array-like, optional
            The counts. Required for "steps" and level effects, otherwise not used.
        sample_weight, exposure : array-like, optional
            The weight and the known scale of each row.
        fold : array of int, shape (rows,), optional
            The fold number of each row, from 0 on. Default: five random folds.

        Returns
        -------
        array of float32, shape (rows, inputs)
        """
        return next(self.fit_blocks(X, y, sample_weight, exposure, fold, get_row_count(X)))

    def fit_blocks(
        self,
        X: TableLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        exposure: ArrayLike | None,
        fold: np.ndarray | None,
        size: int,
    ) -> Iterator[np.ndarray]:
        """Fit the encoding of every column, and encode the rows as `fit_transform` does, but in blocks of rows.

        Parameters
        ----------
        X, y, sample_weight, exposure, fold
            As for `fit_transform`.
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

    def set_schema(self, schema: Schema) -> None:
        """Set the names and kinds of the columns. Called by `fit` and when an encoder is loaded."""
        self.schema_ = schema
        schema.set_names(self)

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
                    if len(number.values) <= bins + 1:
                        column = replace(column, steps=list_all_steps(number))
                    else:
                        undecided.append(j)
                if by_steps or self.numeric == "piecewise":
                    column = replace(column, codes=find_integer_codes(number, min(max_inputs, MAX_CODES)))
                columns.append(column)
        if undecided and y is not None:
            cuts = find_best_cuts(encode_for_trees(columns, thresholds, table), y, weights, bins)
            for j in undecided:
                columns[j] = replace(cast(NumberEncoding, columns[j]), steps=thresholds[j][cuts[j]])
        return columns

    def transform(self, X: TableLike) -> np.ndarray:
        """Encode rows.

        Parameters
        ----------
        X : array-like or data frame
            Rows with the columns of `fit`.

        Returns
        -------
        array of float32, shape (rows, inputs)
            Finite and C-contiguous.
        """
        check_is_fitted(self)
        return self.encode(X)

    def encode(self, X: TableLike) -> np.ndarray:
        """Encode rows like `transform`, without checking that the encoder is fitted.

        The result is always an array, even if scikit-learn's `set_output` asks for a data frame.
        """
        return self._plan.encode(self.schema_.parse(X))

    @property
    def levels(self) -> dict[str, tuple[str, ...]]:
        """The levels of each categorical column that have an input or an effect of their own, most frequent first.

        All other levels are encoded like unseen levels.
        """
        columns = zip(self.schema_.names, self.columns_, strict=True)
        return {name: column.known_levels for name, column in columns if isinstance(column, CategoryEncoding)}

    @property
    def n_inputs(self) -> int:
        """The number of inputs per row."""
        check_is_fitted(self)
        return self._plan.width

    @property
    def numeric_inputs(self) -> list[int]:
        """The positions of the inputs that can be any number. All other inputs are 0 or 1."""
        check_is_fitted(self)
        return self._plan.numeric_inputs

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> np.ndarray:
        """Return the name of every input, such as "age", "age > 64.5" or "ward = B".

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns, if the table of `fit` had none. Default: x0, x1, ...
        """
        check_is_fitted(self)
        names = OneToOneFeatureMixin.get_feature_names_out(self, input_features)
        join_words = [
            out for name, column in zip(names, self.columns_, strict=True) for out in column.list_input_names(name)
        ]
        return np.array(join_words, dtype=object)

    def resolve_bins(self) -> int:
        """Validate the options `numeric`, `categorical` and `bins`; return the number of bins or indicators per column.

        If `bins` is None, the number depends on `numeric`.
        """
        check_choice("numeric", self.numeric, DEFAULT_BINS)
        check_choice("categorical", self.categorical, LEVELS_WITHOUT_EFFECT)
        if self.bins is not None:
            check_integer("bins", self.bins, minimum=1)
        return DEFAULT_BINS[self.numeric] if self.bins is None else int(self.bins)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.target_tags.required = bool(self._uses_y)
        tags.target_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = []
        return tags


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
