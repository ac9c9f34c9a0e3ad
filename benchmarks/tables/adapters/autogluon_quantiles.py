"""AutoGluon with 39 quantiles, its default portfolio and a time limit of 60 s."""

import tempfile
from typing import Any

import numpy as np
from autogluon.tabular import TabularPredictor

from .common import Columns, Job, main, make_levels
from .frames import make_frame

LEVELS, SECONDS = make_levels(39), 60
LABEL = "(target)"


def fit(job: Job) -> Any:
    folder = tempfile.mkdtemp(dir=job.out)
    predictor = TabularPredictor(
        LABEL,
        problem_type="quantile",
        quantile_levels=LEVELS.round(6).tolist(),
        path=folder,
        verbosity=0,
        learner_kwargs={"random_state": job.seed},
    )
    data = make_frame(job.train).assign(**{LABEL: job.counts})
    predictor.fit(data, time_limit=SECONDS, num_cpus=job.threads, num_gpus=0)

    def predict(columns: Columns) -> dict[str, Any]:
        return {"levels": LEVELS, "quantiles": np.asarray(predictor.predict(make_frame(columns)), dtype=float)}

    return predict


if __name__ == "__main__":
    main(fit, ("autogluon.tabular",))
