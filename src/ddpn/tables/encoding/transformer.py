"""`FeatureEncoder`: the encoder of tables as a transformer of scikit-learn."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from ddpn.rows.checks import TableLike, get_row_count
from ddpn.tables.columns import ColumnTable
from ddpn.tables.encoding.encoder import TableEncoder
from ddpn.tables.encoding.storage import load_encoder
from ddpn.tables.reading import read_table
from ddpn.tables.schema import Schema


class FeatureEncoder(TransformerMixin, TableEncoder, BaseEstimator):
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

    @classmethod
    def from_encoder(cls, encoder: TableEncoder) -> Self:
        """Make a transformer that encodes like a fitted encoder, such as that of a model's networks."""
        transformer = cls(numeric=encoder.numeric, bins=encoder.bins, categorical=encoder.categorical)
        transformer.set_schema(encoder.schema_)
        transformer.set_columns(encoder.columns_)
        return transformer

    def set_schema(self, schema: Schema) -> None:
        super().set_schema(schema)
        schema.set_names(self)

    def read_fitted_table(self, X: TableLike) -> ColumnTable:
        return read_table(X, type(self))  # so that scikit-learn's messages name this class

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

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> np.ndarray:
        """Return the name of every input, such as "age", "age > 64.5" or "ward = B".

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns, if the table of `fit` had none. Default: x0, x1, ...
        """
        check_is_fitted(self)
        names = OneToOneFeatureMixin.get_feature_names_out(self, input_features)
        return np.array(self.list_input_names(names), dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.target_tags.required = bool(self._uses_y)
        tags.target_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def encoder_from_bytes(content: bytes, source: str = "the content") -> FeatureEncoder:
    """Rebuild an encoder from the result of `encoder_to_bytes`.

    Any other content raises an `InputError`, which calls the file `source`.
    """
    return FeatureEncoder.from_encoder(load_encoder(content, source))
