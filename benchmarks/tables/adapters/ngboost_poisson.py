"""NGBoost with a Poisson: up to 2,000 rounds, early stopping on a tenth of the rows; indicators for categories."""

from typing import Any

import numpy as np
from ngboost import NGBRegressor
from ngboost.distns import Poisson

from .common import Columns, Design, Job, hold_out_rows, main


def fit(job: Job) -> Any:
    design = Design(job.train, standard=False)
    X, y = design(job.train), job.counts.astype(int)
    inner, outer = hold_out_rows(len(y), job.seed)
    model = NGBRegressor(
        Dist=Poisson,
        n_estimators=2000,
        learning_rate=0.03,
        early_stopping_rounds=50,
        random_state=job.seed,
        verbose=False,
    )
    model.fit(X[inner], y[inner], X_val=X[outer], Y_val=y[outer])

    def predict(columns: Columns) -> dict[str, Any]:
        mean = model.pred_dist(design(columns)).params["mu"]
        return {"family": "poisson", "mean": np.maximum(mean, 1e-9)}

    return predict


if __name__ == "__main__":
    main(fit, ("ngboost",))
