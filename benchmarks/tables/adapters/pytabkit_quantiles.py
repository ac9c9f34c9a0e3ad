"""RealMLP of pytabkit with its tuned defaults and the pinball loss of 39 quantiles; it holds out a fifth itself.

It accepts no missing numbers: they are replaced by the median of the training rows, with an indicator if the training
rows have missing values. With more than 10,000 training rows there are fewer epochs than its 256, so that there are as
many steps as with 10,000 rows.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from pytabkit import RealMLP_TD_Regressor

from .common import Columns, Job, main, make_levels
from .frames import make_frame

LEVELS = make_levels(39)
#: Its tuned number of epochs, and up to how many rows to fit it is kept.
EPOCHS, ROWS = 256, 10_000


def make_imputer(train: Columns) -> Callable[[Columns], Any]:
    """Return a function that replaces missing numbers by the medians of the rows to fit, with indicators."""
    numbers = [j for j, category in enumerate(train.is_category) if not category]
    missing = [j for j in numbers if np.isnan(train.values[j]).any()]
    medians = {j: np.nanmedian(v) if np.isfinite(v := train.values[j]).any() else 0.0 for j in numbers}

    def impute(columns: Columns) -> Any:
        data = make_frame(columns)
        indicators = {f"{columns.names[j]} (missing)": np.isnan(columns.values[j]).astype(float) for j in missing}
        return data.fillna({columns.names[j]: median for j, median in medians.items()}).assign(**indicators)

    return impute


def fit(job: Job) -> Any:
    loss = f"multi_pinball({','.join(f'{level:.6f}' for level in LEVELS)})"
    model = RealMLP_TD_Regressor(
        device="cpu",
        random_state=job.seed,
        n_threads=job.threads,
        train_metric_name=loss,
        val_metric_name=loss,
        n_epochs=min(EPOCHS, round(EPOCHS * ROWS / len(job.counts))),
        verbosity=0,
    )
    impute = make_imputer(job.train)
    model.fit(impute(job.train), job.counts.astype(np.float32))
    return lambda columns: {"levels": LEVELS, "quantiles": np.asarray(model.predict(impute(columns)))}


if __name__ == "__main__":
    main(fit, ("pytabkit", "torch"))
