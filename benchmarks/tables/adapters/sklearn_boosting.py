"""scikit-learn's histogram gradient boosting with a Poisson loss and its defaults; predictions are Poisson."""

from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from .common import Job, main

#: Levels of a category that scikit-learn's trees can hold; rarer ones are missing values.
LEVELS = 254


def fit(job: Job) -> Any:
    categories = np.array(job.train.is_category)
    X = job.train.codes()
    X[:, categories] = np.where(X[:, categories] >= LEVELS, np.nan, X[:, categories])
    model = HistGradientBoostingRegressor(
        loss="poisson", categorical_features=categories if categories.any() else None, random_state=job.seed
    )
    model.fit(X, job.counts)
    return lambda columns: {"family": "poisson", "mean": np.maximum(model.predict(columns.codes()), 1e-9)}


if __name__ == "__main__":
    main(fit, ("scikit-learn",))
