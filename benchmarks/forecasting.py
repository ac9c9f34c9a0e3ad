"""CRPS of the Double Poisson beside the Negative Binomial of GluonTS, darts and PyTorch Forecasting, in their models.

Run in the environment of `make test-forecasting`. Cells that were measured before with the same settings and versions
are kept, so a run that was stopped continues, and libraries or series can be run one at a time:

    DDPN_DATA=DATA .venv-forecasting/bin/python benchmarks/forecasting.py
    .venv-forecasting/bin/python benchmarks/forecasting.py --library darts --series under-dispersed --seeds 3 4 5

Both outputs have the same network, seed, series and number of steps. Results go to benchmarks/results/forecasting.json,
the page to docs/results/forecasting.md.
"""

import argparse
import json
import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import forecasting_models as models
import numpy as np
import pandas as pd
import torch
from forecasting_models import HORIZON, LOG_LINK, MODELS, OUTPUTS
from forecasting_page import page

from ddpn import DoublePoisson, NegativeBinomial
from ddpn.datasets.sources import data_folder

SERIES, STEPS = 40, 200


# Series: counts (series, steps), and the distribution they were drawn from where it is known --------------------------


def _seasonal_means(rng: np.random.Generator, low: float, high: float) -> torch.Tensor:
    level = np.exp(rng.uniform(np.log(low), np.log(high), SERIES))[:, None]
    phase = rng.integers(0, 7, SERIES)[:, None]
    return torch.from_numpy(level * (1.0 + 0.5 * np.sin(2.0 * np.pi * (np.arange(STEPS) + phase) / 7.0)))


def under_dispersed(seed: int) -> tuple[np.ndarray, Any]:
    """Double Poisson with gamma 6, a variance of a sixth of the mean."""
    return _drawn(DoublePoisson(_seasonal_means(np.random.default_rng(seed), 3.0, 60.0), torch.tensor(6.0)), seed)


def over_dispersed(seed: int) -> tuple[np.ndarray, Any]:
    """Negative Binomial with alpha 0.5, a variance of mean + mean^2 / 2."""
    return _drawn(NegativeBinomial(_seasonal_means(np.random.default_rng(seed), 3.0, 60.0), torch.tensor(0.5)), seed)


def intermittent(seed: int) -> tuple[np.ndarray, Any]:
    """Negative Binomial with alpha 1 and means of 0.1 to 1: mostly zeros."""
    return _drawn(NegativeBinomial(_seasonal_means(np.random.default_rng(seed), 0.1, 1.0), torch.tensor(1.0)), seed)


def _drawn(dist: Any, seed: int) -> tuple[np.ndarray, Any]:
    return dist.sample(generator=torch.Generator().manual_seed(seed)).numpy(), dist


def bikes(seed: int) -> tuple[np.ndarray, None]:
    """Bike rentals: one series per hour of the day, the last 200 days; hours without a row had no rental."""
    table = pd.read_csv(data_folder() / "bike_sharing" / "hour.csv")
    daily = table.pivot(index="hr", columns="dteday", values="cnt").fillna(0.0)
    return daily.to_numpy()[:, -STEPS:], None


DATA: dict[str, Callable[[int], tuple[np.ndarray, Any]]] = {
    "under-dispersed": under_dispersed,
    "over-dispersed": over_dispersed,
    "intermittent": intermittent,
    "bike rentals": bikes,
}


# Scores ---------------------------------------------------------------------------------------------------------------


def sample_crps(samples: np.ndarray, y: np.ndarray) -> float:
    """Mean CRPS, estimated without bias: E|X - y| - E|X - X'| / 2 over pairs of different samples."""
    ordered, n = np.sort(samples, axis=0), len(samples)
    weight = (2.0 * np.arange(n) - n + 1.0).reshape(-1, *[1] * y.ndim)
    return float((np.abs(samples - y).mean(0) - (weight * ordered).sum(0) / (n * (n - 1.0))).mean())


def settings(library: str) -> dict[str, Any]:
    """What a result depends on beside its model, series and seed."""
    names = ("HORIZON", "CONTEXT", "SAMPLES", "HIDDEN", "BATCH", "EPOCHS", "BATCHES", "RATE", "UNSCALED_RATE")
    sizes = {"series": SERIES, "steps": STEPS} | {name.lower(): getattr(models, name) for name in names}
    return sizes | {"versions": {name: version(name) for name in (library, "torch")}}


def measured(model: str, series: str, seed: int) -> dict[str, Any]:
    """CRPS of all outputs and of the true distribution, and the seconds of CPU time of fit and forecast."""
    counts, dist = DATA[series](seed)
    train, future = counts[:, :-HORIZON], counts[:, -HORIZON:]
    forecast, library = MODELS[model]
    row: dict[str, Any] = {"model": model, "series": series, "seed": seed, "settings": settings(library)}
    for output in (*OUTPUTS, LOG_LINK) if library == "darts" else OUTPUTS:
        began = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            samples = forecast(train, output, seed, folder)
        row[output], row[f"{output}, s"] = sample_crps(samples, future), time.process_time() - began
    if dist is not None:
        row["truth"] = dist.crps(torch.from_numpy(counts))[:, -HORIZON:].mean().item()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    libraries = {library: model for model, (_, library) in MODELS.items()}
    parser.add_argument("--library", nargs="*", choices=list(libraries), default=list(libraries))
    parser.add_argument("--series", nargs="*", choices=list(DATA), default=list(DATA))
    parser.add_argument("--seeds", nargs="*", type=int, default=[3, 4])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--page", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    path = args.out / "forecasting.json"
    kept = json.loads(path.read_text()) if path.exists() else []
    rows = {(row["model"], row["series"], row["seed"]): row for row in kept}
    for key in (
        (libraries[name], series, seed) for name in args.library for series in args.series for seed in args.seeds
    ):
        if key in rows and rows[key]["settings"] == settings(MODELS[key[0]][1]):
            continue
        rows[key] = measured(*key)
        print(rows[key], flush=True)
        path.write_text(json.dumps([rows[each] for each in sorted(rows)], indent=1) + "\n")
    (args.page / "forecasting.md").write_text(page([rows[key] for key in sorted(rows)], list(DATA)))


if __name__ == "__main__":
    main()
