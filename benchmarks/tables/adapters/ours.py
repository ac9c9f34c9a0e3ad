"""The models of this repository. A new one is one function and one line of `FACTORIES`.

Their predictions are distributions of `ddpn`, so they are scored here, by the function that scores all others, and the
scores are written instead of a prediction.
"""

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..scoring import score_rows
from .common import Columns, Job, time_fit, write_times


class NotAvailableError(Exception):
    """This version of the library does not have the requested model."""


def make_networks(seed: int) -> Any:
    from ddpn import DDPNRegressor

    return DDPNRegressor(mix_with=("glm",), random_state=seed, device="cpu")


def make_portfolio(seed: int) -> Any:
    """Make the default model of `ddpn fit`."""
    from ddpn import CountRegressor

    return CountRegressor(random_state=seed, device="cpu")


def make_trees(seed: int) -> Any:
    from ddpn import CountRegressor

    return CountRegressor(members=["trees"], random_state=seed)


def make_glm(seed: int) -> Any:
    """Make a Double Poisson GLM with one dispersion for all rows, and a small ridge penalty for rare levels."""
    from ddpn import CountGLM

    return CountGLM(likelihood="double_poisson", dispersion="constant", alpha=1e-3)


#: Estimators of scikit-learn's kind by name, each made from a seed.
FACTORIES: dict[str, Callable[[int], Any]] = {
    "networks": make_networks,
    "portfolio": make_portfolio,
    "boosted": make_trees,
    "glm": make_glm,
}
#: Estimators that refuse missing values get the complete matrix that the GLMs of other packages get.
COMPLETE = ("glm",)


def fit(job: Job) -> Callable[[Columns], Any]:
    from ddpn.runtime.errors import ConfigError

    name = job.options["factory"]
    model, inputs = FACTORIES[name](job.seed), Columns.decode_levels
    if name in COMPLETE:
        from .common import Design

        inputs = Design(job.train)  # type: ignore[assignment]
    try:
        model.fit(inputs(job.train), job.counts)
    except ConfigError as error:
        raise NotAvailableError(str(error)) from None
    # The distribution itself: `interval` of a prediction is calibrated, and the scorer calibrates all models alike.
    return lambda columns: model.predict_distribution(inputs(columns)).distribution


def import_all() -> None:
    """Import what a fit imports on first use, because the other adapters import their libraries at the top."""
    import lightgbm  # noqa: F401
    import numba  # noqa: F401

    from ddpn import CountGLM, CountRegressor, DDPNRegressor  # noqa: F401


def main() -> None:
    import torch

    job = Job.read(Path(sys.argv[1]))
    torch.set_num_threads(job.threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import_all()
            prediction, times = time_fit(fit, job)
        except NotAvailableError as error:
            (job.out / "skipped.txt").write_text(str(error), encoding="utf-8")
            return
        write_times(job, times, ("torch", "scikit-learn"))
        results = score_rows(prediction, job.test_counts)
    (job.out / "scores.json").write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()
