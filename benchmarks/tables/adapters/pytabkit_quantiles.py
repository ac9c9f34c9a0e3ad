"""RealMLP of pytabkit with its tuned defaults and the pinball loss of 39 quantiles; it holds out its own fifth."""

from typing import Any

import numpy as np
from pytabkit import RealMLP_TD_Regressor

from .common import Job, levels_of, main
from .frames import frame

LEVELS = levels_of(39)


def fit(job: Job) -> Any:
    loss = f"multi_pinball({','.join(f'{level:.6f}' for level in LEVELS)})"
    model = RealMLP_TD_Regressor(
        device="cpu",
        random_state=job.seed,
        n_threads=job.threads,
        train_metric_name=loss,
        val_metric_name=loss,
        verbosity=0,
    )
    model.fit(frame(job.train), job.counts.astype(np.float32))
    return lambda columns: {"levels": LEVELS, "quantiles": np.asarray(model.predict(frame(columns)))}


if __name__ == "__main__":
    main(fit, ("pytabkit", "torch"))
