"""CRPS of the Double Poisson beside the Negative Binomial of GluonTS, darts and PyTorch Forecasting, in their models.

Run in the environment of `make test-forecasting`, one library at a time if you like; results are kept and joined:

    DDPN_DATA=DATA .venv-forecasting/bin/python benchmarks/forecasting.py
    .venv-forecasting/bin/python benchmarks/forecasting.py --library darts --series under-dispersed --seeds 0 1 2

Both outputs have the same network, seed, series and number of steps. Forecasts are 200 sample paths of 7 steps.
"""

import argparse
import json
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ddpn import DoublePoisson, NegativeBinomial
from ddpn.datasets.sources import data_folder

SERIES, STEPS, HORIZON, CONTEXT, SAMPLES = 40, 200, 7, 21, 200
HIDDEN, BATCH, EPOCHS, BATCHES, RATE = 24, 32, 8, 40, 5e-3
#: darts sees counts as they are, up to 90 and more: at the rate of the others its network would need many more steps.
UNSCALED_RATE = 3e-2
START = pd.Timestamp("2024-01-01")
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
OUTPUTS = ("Double Poisson", "Negative Binomial")
#: Not darts's own: its Negative Binomial with the link of our likelihood, which tells the two effects apart.
LOG_LINK = "Negative Binomial, log link"


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


# Models: sample paths (samples, series, horizon) from the counts before the horizon -----------------------------------


def gluonts(train: np.ndarray, output: str, seed: int, folder: str) -> np.ndarray:
    """GluonTS's feed-forward network, whose series are divided by their mean."""
    from gluonts.dataset.common import ListDataset
    from gluonts.torch import SimpleFeedForwardEstimator
    from gluonts.torch.distributions import NegativeBinomialOutput
    from lightning.pytorch import seed_everything

    from ddpn.forecasting import DoublePoissonOutput

    seed_everything(seed, verbose=False)
    data = ListDataset([{"start": START, "target": row} for row in train], freq="D")
    estimator = SimpleFeedForwardEstimator(
        prediction_length=HORIZON,
        context_length=CONTEXT,
        hidden_dimensions=[HIDDEN],
        lr=RATE,
        batch_size=BATCH,
        num_batches_per_epoch=BATCHES,
        distr_output=DoublePoissonOutput() if output == "Double Poisson" else NegativeBinomialOutput(),
        trainer_kwargs=QUIET | {"max_epochs": EPOCHS, "default_root_dir": folder},
    )
    forecasts = estimator.train(data).predict(data)
    return np.stack([each.distribution.sample((SAMPLES,)).numpy() for each in forecasts], axis=1)


def darts(train: np.ndarray, output: str, seed: int, folder: str) -> np.ndarray:
    """An LSTM of darts, which sees the counts as they are."""
    from darts import TimeSeries
    from darts.models import RNNModel
    from darts.utils.likelihood_models.torch import NegativeBinomialLikelihood

    from ddpn.forecasting import DoublePoissonLikelihood

    class LogLink(NegativeBinomialLikelihood):
        def _params_from_output(self, model_output: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return model_output[..., 0].clamp(-14.0, 16.0).exp(), self.softplus(model_output[..., 1])

    kinds = dict(zip((*OUTPUTS, LOG_LINK), (DoublePoissonLikelihood, NegativeBinomialLikelihood, LogLink), strict=True))
    times = pd.date_range(START, periods=train.shape[1])
    series = [TimeSeries.from_times_and_values(times, row.astype(np.float32)) for row in train]
    model = RNNModel(
        model="LSTM",
        input_chunk_length=CONTEXT,
        training_length=CONTEXT + HORIZON,
        hidden_dim=HIDDEN,
        n_epochs=EPOCHS,
        batch_size=BATCH,
        optimizer_kwargs={"lr": UNSCALED_RATE},
        likelihood=kinds[output](),
        random_state=seed,
        work_dir=folder,
        pl_trainer_kwargs=QUIET | {"enable_checkpointing": False},
    )
    model.fit(series, max_samples_per_ts=BATCH * BATCHES // len(series))
    forecasts = model.predict(HORIZON, series=series, num_samples=SAMPLES, batch_size=len(series) * SAMPLES)
    return np.stack([each.all_values()[:, 0].T for each in forecasts], axis=1)


def pytorch_forecasting(train: np.ndarray, output: str, seed: int, folder: str) -> np.ndarray:
    """DeepAR of PyTorch Forecasting, whose series are divided by the mean of their context."""
    from lightning.pytorch import Trainer, seed_everything
    from pytorch_forecasting import DeepAR, NegativeBinomialDistributionLoss, TimeSeriesDataSet
    from pytorch_forecasting.data import EncoderNormalizer

    from ddpn.forecasting import DoublePoissonDistributionLoss

    seed_everything(seed, verbose=False)
    count, steps = train.shape
    # The horizon must be in the table, too; its counts are not used.
    y = np.pad(train, ((0, 0), (0, HORIZON))).ravel()
    names = np.repeat([f"{i:03d}" for i in range(count)], steps + HORIZON)
    table = pd.DataFrame({"y": y, "t": np.tile(np.arange(steps + HORIZON), count), "series": names})
    data = TimeSeriesDataSet(
        table[table.t < steps],
        time_idx="t",
        target="y",
        group_ids=["series"],
        max_encoder_length=CONTEXT,
        max_prediction_length=HORIZON,
        time_varying_unknown_reals=["y"],
        target_normalizer=EncoderNormalizer(center=False),
    )
    loss = DoublePoissonDistributionLoss() if output == "Double Poisson" else NegativeBinomialDistributionLoss()
    model = DeepAR.from_dataset(
        data, hidden_size=HIDDEN, rnn_layers=1, dropout=0.0, learning_rate=RATE, loss=loss, optimizer="adam"
    )
    options = QUIET | {"enable_checkpointing": False, "default_root_dir": folder}
    loader = data.to_dataloader(train=True, batch_size=BATCH, num_workers=0)
    Trainer(max_epochs=EPOCHS, limit_train_batches=BATCHES, gradient_clip_val=1.0, **options).fit(model, loader)
    test = TimeSeriesDataSet.from_dataset(data, table, predict=True).to_dataloader(train=False, batch_size=count)
    return model.predict(test, mode="samples", n_samples=SAMPLES, trainer_kwargs=options).permute(2, 0, 1).numpy()


MODELS = {
    "GluonTS, SimpleFeedForward": (gluonts, "gluonts"),
    "darts, RNNModel (LSTM)": (darts, "darts"),
    "PyTorch Forecasting, DeepAR": (pytorch_forecasting, "pytorch-forecasting"),
}


# Scores ------------------------------------------------------------------------------------------------------------


def sample_crps(samples: np.ndarray, y: np.ndarray) -> float:
    """Mean CRPS, estimated without bias: E|X - y| - E|X - X'| / 2 over pairs of different samples."""
    ordered, n = np.sort(samples, axis=0), len(samples)
    weight = (2.0 * np.arange(n) - n + 1.0).reshape(-1, *[1] * y.ndim)
    return float((np.abs(samples - y).mean(0) - (weight * ordered).sum(0) / (n * (n - 1.0))).mean())


def measured(model: str, series: str, seed: int) -> dict[str, Any]:
    """CRPS of all outputs and of the true distribution, and the seconds of CPU time of fit and forecast."""
    counts, dist = DATA[series](seed)
    train, future = counts[:, :-HORIZON], counts[:, -HORIZON:]
    row: dict[str, Any] = {"model": model, "series": series, "seed": seed}
    for output in (*OUTPUTS, LOG_LINK) if model.startswith("darts") else OUTPUTS:
        began = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            samples = MODELS[model][0](train, output, seed, folder)
        row[output], row[f"{output}, s"] = sample_crps(samples, future), time.process_time() - began
    if dist is not None:
        exact = dist.crps(torch.from_numpy(counts))
        row["truth"] = exact[:, -HORIZON:].mean().item()
    return row


PAGE = """# Double Poisson and Negative Binomial in forecasting libraries

`python benchmarks/forecasting.py` ({libraries}, one thread). Mean CRPS of {horizon}
days after {before}, by {samples} sample paths; {epochs} epochs of {batches} batches, one hidden layer of {hidden}, the
same for all outputs. Smaller is better. Truth is the CRPS of the distribution that the counts were drawn from. Seconds
are CPU time of fit and forecast, in the order of the columns.

Our likelihood for darts has a log link, darts's own Negative Binomial has softplus. One column has it with a log link,
which is not part of darts. This link and the rule for scales were chosen with the seeds 0 and 1 of these series.
"""
HEADING = """
| model | series | {seeds} | Double Poisson | Negative Binomial | the same, log link | truth | seconds |
|---|---|---|---|---|---|---|---|"""


def lines(rows: list[dict[str, Any]]) -> Iterable[str]:
    """The page: means over seeds, then every seed."""
    sizes = {"horizon": HORIZON, "before": STEPS - HORIZON, "samples": SAMPLES, "epochs": EPOCHS, "batches": BATCHES}
    names = (*(name for _, name in MODELS.values()), "torch")
    yield PAGE.format(libraries=", ".join(f"{name} {version(name)}" for name in names), hidden=HIDDEN, **sizes)
    yield "## Means over seeds\n" + HEADING.format(seeds="seeds")
    for model in MODELS:
        for series in DATA:
            chosen = [row for row in rows if (row["model"], row["series"]) == (model, series)]
            if chosen:
                yield _line(model, series, str(len(chosen)), pd.DataFrame(chosen).mean(numeric_only=True))
    yield "\n## Every seed\n" + HEADING.format(seeds="seed")
    for row in rows:
        yield _line(row["model"], row["series"], str(row["seed"]), row)


def _line(model: str, series: str, seed: str, row: Any) -> str:
    scores = {name: row[name] for name in (*OUTPUTS, LOG_LINK, "truth") if name in row}
    best = min(score for name, score in scores.items() if name != "truth")
    shown = {name: f"**{score:.3f}**" if score == best else f"{score:.3f}" for name, score in scores.items()}
    cells = [shown.get(name, "") for name in (*OUTPUTS, LOG_LINK, "truth")]
    seconds = ", ".join(f"{row[f'{name}, s']:.0f}" for name in scores if name != "truth")
    return f"| {model} | {series} | {seed} | {' | '.join(cells)} | {seconds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", nargs="+", choices=[name for _, name in MODELS.values()])
    parser.add_argument("--series", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--seeds", nargs="+", type=int, default=[3, 4])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    path = args.out / "forecasting.json"
    before = json.loads(path.read_text()) if path.exists() else []
    kept = {(row["model"], row["series"], row["seed"]): row for row in before}
    for model, (_, library) in MODELS.items():
        for series, seed in ((series, seed) for series in args.series for seed in args.seeds):
            if args.library is None or library in args.library:
                kept[model, series, seed] = row = measured(model, series, seed)
                print(row, flush=True)
                rows = [kept[key] for key in sorted(kept)]
                path.write_text(json.dumps(rows, indent=1) + "\n")
                (args.out / "forecasting.md").write_text("\n".join(lines(rows)) + "\n")


if __name__ == "__main__":
    main()
