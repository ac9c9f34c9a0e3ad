"""Test `DoublePoissonDistributionLoss` in PyTorch Forecasting's own models."""

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("pytorch_forecasting", reason="pytorch-forecasting is not installed: make test-forecasting")

from lightning.pytorch import Trainer, seed_everything
from pytorch_forecasting import DeepAR, NegativeBinomialDistributionLoss, TimeSeriesDataSet
from pytorch_forecasting.data import EncoderNormalizer, GroupNormalizer

from ddpn import ConfigError, DoublePoisson
from ddpn.forecasting import DoublePoissonDistributionLoss

pytestmark = pytest.mark.filterwarnings("ignore")
HORIZON = 7
QUIET = {
    "accelerator": "cpu",
    **dict.fromkeys(("enable_progress_bar", "enable_model_summary", "logger", "enable_checkpointing"), False),
}
SCALE = torch.tensor([[0.0, 2.0], [0.0, 30.0]])


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("transformation", [None, "log", "log1p", "logit", "count", "softplus", "relu"])
def test_normalizers_that_the_negative_binomial_refuses_are_refused(transformation, center):
    encoder = GroupNormalizer(transformation=transformation, center=center)
    raw = torch.randn(2, 3, 2)
    try:
        NegativeBinomialDistributionLoss().rescale_parameters(raw, SCALE, encoder)
        is_refused = False
    except AssertionError:
        is_refused = True
    if is_refused:
        with pytest.raises(ConfigError, match=r"target_normalizer must not .* for counts, got GroupNormalizer"):
            DoublePoissonDistributionLoss().rescale_parameters(raw, SCALE, encoder)
    else:
        assert DoublePoissonDistributionLoss().rescale_parameters(raw, SCALE, encoder).shape == (2, 3, 2)


def test_the_scale_multiplies_the_mean_and_the_excess_over_a_poisson():
    loss, raw = DoublePoissonDistributionLoss(), torch.randn(2, 3, 2)
    mu, gamma = loss.rescale_parameters(raw, SCALE, EncoderNormalizer(center=False)).unbind(-1)
    torch.testing.assert_close(mu, torch.nn.functional.softplus(raw[..., 0]) * SCALE[:, 1:])
    index = (-raw[..., 1]).exp()
    expected = torch.where(index > 1.0, 1.0 + SCALE[:, 1:] * (index - 1.0), index)
    torch.testing.assert_close(1.0 / gamma, expected, rtol=1e-4, atol=1e-4)
    log1p = EncoderNormalizer(center=False, transformation="log1p")
    mu, gamma = loss.rescale_parameters(0.1 * raw, SCALE, log1p).unbind(-1)
    torch.testing.assert_close(mu, (0.1 * raw[..., 0] * SCALE[:, 1:]).exp())
    torch.testing.assert_close(gamma, (0.1 * raw[..., 1]).exp())


def test_loss_mean_quantiles_and_samples_are_those_of_the_distribution():
    loss = DoublePoissonDistributionLoss(quantiles=[0.05, 0.5, 0.95])
    parameters = torch.tensor([[[3.0, 2.0], [50.0, 0.2]], [[0.1, 1.0], [900.0, 5.0]]], requires_grad=True)
    dist, y = DoublePoisson(*parameters.unbind(-1)), torch.tensor([[2.0, 70.0], [0.0, 880.0]])
    value = loss.loss(parameters, y)
    torch.testing.assert_close(value, -dist.log_prob(y))
    value.sum().backward()
    assert parameters.grad.isfinite().all()
    torch.testing.assert_close(loss.to_prediction(parameters), dist.mean)
    low, median, high = loss.to_quantiles(parameters).unbind(-1)
    assert torch.equal(median, dist.icdf(torch.tensor(0.5)))
    assert torch.equal(torch.stack([low, high]), torch.stack(dist.interval(0.9)))
    samples = loss.sample(parameters, 40)
    assert samples.shape == (2, 2, 40)
    assert torch.equal(samples, samples.round())


def test_under_dispersed_series_are_forecast_better_than_by_a_negative_binomial(series, tmp_path, compute_sample_crps):
    steps = series.shape[1]
    names = np.repeat([f"{i:02d}" for i in range(len(series))], steps)
    table = pd.DataFrame({"y": series.ravel(), "t": np.tile(np.arange(steps), len(series)), "name": names})
    data = TimeSeriesDataSet(
        table[table.t < steps - HORIZON],
        time_idx="t",
        target="y",
        group_ids=["name"],
        max_encoder_length=14,
        max_prediction_length=HORIZON,
        time_varying_unknown_reals=["y"],
        target_normalizer=EncoderNormalizer(center=False),
    )
    options, scores = QUIET | {"default_root_dir": tmp_path}, {}
    for kind in (DoublePoissonDistributionLoss, NegativeBinomialDistributionLoss):
        seed_everything(0, verbose=False)
        network = {"hidden_size": 16, "rnn_layers": 1, "dropout": 0.0, "learning_rate": 1e-2, "optimizer": "adam"}
        model = DeepAR.from_dataset(data, loss=kind(), **network)
        loader = data.to_dataloader(train=True, batch_size=32)
        Trainer(max_epochs=8, limit_train_batches=30, gradient_clip_val=1.0, **options).fit(model, loader)
        test = TimeSeriesDataSet.from_dataset(data, table, predict=True).to_dataloader(train=False, batch_size=12)
        samples = model.predict(test, mode="samples", n_samples=50, trainer_kwargs=dict(options)).numpy()
        assert (samples == samples.round()).all()
        assert (samples >= 0).all()
        scores[kind] = compute_sample_crps(samples.transpose(2, 0, 1), series[:, -HORIZON:])
    assert scores[DoublePoissonDistributionLoss] < 0.8 * scores[NegativeBinomialDistributionLoss]
