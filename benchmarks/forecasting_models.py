"""Forecasts by models of GluonTS, darts and PyTorch Forecasting, with a Double Poisson or their Negative Binomial.

Each function gives sample paths (samples, series, horizon) from the counts before the horizon, (series, steps).
"""

from typing import Any

import numpy as np
import pandas as pd
import torch

HORIZON, CONTEXT, SAMPLES = 7, 21, 200
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
