"""TabPFN or TabICL with 99 quantiles, if a user has installed it: their weights come from a model hub.

They run in the Python that runs the benchmark, and are skipped where the package is missing.
"""

from importlib import import_module
from typing import Any

import numpy as np

from .common import Columns, Job, levels_of, main
from .frames import frame

LEVELS = levels_of(99)


def fit(job: Job) -> Any:
    package = job.options["package"]
    name = {"tabpfn": "TabPFNRegressor", "tabicl": "TabICLRegressor"}[package]
    model = getattr(import_module(package), name)(random_state=job.seed)
    model.fit(frame(job.train), job.counts)
    levels = LEVELS.tolist()

    def predict(columns: Columns) -> dict[str, Any]:
        option = {"quantiles": levels} if package == "tabpfn" else {"alphas": levels}
        found = np.asarray(model.predict(frame(columns), output_type="quantiles", **option))
        # TabPFN returns a list of quantiles, TabICL a row per row.
        return {"levels": LEVELS, "quantiles": found if found.shape[0] == len(columns) else found.T}

    return predict


if __name__ == "__main__":
    main(fit)
