"""Covariate shift: how much more frequent rows like each calibration row are among new rows."""

from typing import Any

import numpy as np

from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import is_number
from ddpn.sample import row_count
from ddpn.tables.encoding import FeatureEncoder

#: Folds by which a row is scored by a classifier that has not seen it.
_FOLDS = 5


def density_ratio(X: Any, X_new: Any, limit: float = 20.0, seed: int = 0) -> np.ndarray:
    """The estimated density of new rows over that of calibration rows, at each calibration row; 1 on average.

    As `sample_weight` of `fit_intervals` these make intervals cover what is asked on rows like the new ones, where the
    features are distributed differently but the counts given the features are not (weighted conformal prediction,
    Tibshirani et al. 2019). A logistic regression distinguishes both sorts of rows; every row is scored by one that
    was fitted to other rows.

    Parameters
    ----------
    X : table
        Calibration rows.
    X_new : table
        Rows like those to predict, with the same columns; their counts are not needed.
    limit : float
        Weights lie between 1 / limit and limit, so that no row outweighs all others.
    seed : int
        Seed of the folds.

    Returns
    -------
    ndarray
        One weight per row of X.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> weight = density_ratio(rng.normal(0.0, 1.0, (500, 1)), rng.normal(1.0, 1.0, (500, 1)))
    >>> weight.shape, round(float(weight.mean()), 6)
    ((500,), 1.0)
    """
    from sklearn.linear_model import LogisticRegression  # slow to import
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    if not is_number(limit) or not 1.0 < limit < np.inf:
        raise ConfigError(f"limit must be a finite number above 1, got {limit!r}.")
    n, new = row_count(X), row_count(X_new)
    encoder = FeatureEncoder().fit(X)
    inputs = np.concatenate([encoder.transform(X), encoder.transform(X_new)])
    is_new = np.arange(n + new) >= n
    folds = StratifiedKFold(min(_FOLDS, n, new), shuffle=True, random_state=seed)
    odds = cross_val_predict(LogisticRegression(max_iter=1000), inputs, is_new, cv=folds, method="decision_function")
    weight = np.clip(np.exp(odds[:n]) * n / new, 1.0 / limit, limit)
    return weight / weight.mean()
