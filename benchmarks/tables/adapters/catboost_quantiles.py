"""CatBoost with 39 quantiles at once (MultiQuantile): up to 1,000 rounds, early stopping on a tenth of the rows."""

from typing import Any

import numpy as np
from catboost import CatBoostRegressor, Pool

from .common import Columns, Job, hold_out_rows, main, make_levels

LEVELS = make_levels(39)


def fit(job: Job) -> Any:
    categories = np.flatnonzero(job.train.is_category).tolist()

    def make_pool(columns: Columns, y: np.ndarray | None = None) -> Pool:
        cells = columns.decode_levels()
        for j in categories:
            cells[:, j] = ["(missing)" if value is None else value for value in cells[:, j]]
        return Pool(cells, y, cat_features=categories)

    inner, outer = hold_out_rows(len(job.counts), job.seed)
    model = CatBoostRegressor(
        loss_function=f"MultiQuantile:alpha={','.join(f'{level:.6f}' for level in LEVELS)}",
        iterations=1000,
        early_stopping_rounds=50,
        random_seed=job.seed,
        thread_count=job.threads,
        allow_writing_files=False,
        verbose=False,
    )
    validation = make_pool(job.train.rows(outer), job.counts[outer])
    model.fit(make_pool(job.train.rows(inner), job.counts[inner]), eval_set=validation)
    return lambda columns: {"levels": LEVELS, "quantiles": model.predict(make_pool(columns), thread_count=job.threads)}


if __name__ == "__main__":
    main(fit, ("catboost",))
