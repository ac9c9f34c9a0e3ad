"""Test `DoublePoissonOutput` in GluonTS's own models."""

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("gluonts.torch", reason="gluonts is not installed: make test-forecasting")

from gluonts.dataset.common import ListDataset
from gluonts.model.predictor import Predictor
from gluonts.torch import DeepAREstimator, SimpleFeedForwardEstimator
from gluonts.torch.distributions import NegativeBinomialOutput
from lightning.pytorch import seed_everything

from ddpn import DoublePoisson, InputError
from ddpn.forecasting import DoublePoissonOutput

pytestmark = pytest.mark.filterwarnings("ignore")
HORIZON = 7


@pytest.fixture
def quiet_options(tmp_path):
    """Options of a Lightning trainer that writes into an empty folder and prints nothing."""
    names = ("enable_progress_bar", "enable_model_summary", "logger")
    return {"accelerator": "cpu", "default_root_dir": tmp_path, **dict.fromkeys(names, False)}


@pytest.fixture(scope="module")
def train(series):
    start = pd.Period("2024-01-01", "D")
    return ListDataset([{"start": start, "target": row[:-HORIZON]} for row in series], freq="D")


def make_feed_forward(output, quiet, epochs=6):
    seed_everything(0, verbose=False)
    return SimpleFeedForwardEstimator(
        prediction_length=HORIZON,
        context_length=21,
        hidden_dimensions=[16],
        lr=1e-2,
        distr_output=output,
        num_batches_per_epoch=30,
        trainer_kwargs=quiet | {"max_epochs": epochs},
    )


def test_a_scale_changes_the_parameters_and_not_the_arguments():
    torch.manual_seed(0)
    output = DoublePoissonOutput()
    arguments = output.domain_map(torch.randn(4, 5, 1), torch.randn(4, 5, 1))
    before = [x.clone() for x in arguments]
    scale = torch.tensor([[0.5], [1.0], [20.0], [900.0]])
    y = torch.poisson(scale.expand(4, 5))
    for _ in range(2):  # a second call finds the same
        dist = output.distribution(arguments, scale=scale)
        index = torch.where(before[1] < 1.0, 1.0 + scale * (1.0 / before[1] - 1.0), 1.0 / before[1])
        expected = DoublePoisson(before[0] * scale, 1.0 / index).log_prob(y)
        torch.testing.assert_close(dist.log_prob(y), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(output.loss(y, arguments, scale=scale), -expected, rtol=1e-4, atol=1e-4)
    assert all(torch.equal(now, then) for now, then in zip(arguments, before, strict=True))
    assert dist.batch_shape == (4, 5)
    assert output.event_shape == ()
    drawn = dist.sample((50,))
    assert (drawn >= 0).all()
    assert torch.equal(drawn, drawn.round())


def test_the_projection_of_a_network_gets_finite_gradients():
    output = DoublePoissonOutput(beta=0.5)
    projection = output.get_args_proj(in_features=3)
    loss = output.loss(torch.tensor([0.0, 4.0, 1000.0]), projection(100.0 * torch.randn(3, 3)), scale=torch.tensor(5.0))
    loss.sum().backward()
    assert all(weight.grad.isfinite().all() for weight in projection.parameters())


def test_values_that_are_no_counts_are_rejected():
    output = DoublePoissonOutput()
    with pytest.raises(InputError, match=r"y must hold non-negative integers, got 0\.5"):
        output.loss(torch.tensor([0.5]), output.domain_map(torch.zeros(1, 1), torch.zeros(1, 1)))


def test_under_dispersed_series_are_forecast_better_than_by_a_negative_binomial(
    train, series, means, quiet_options, compute_sample_crps
):
    future, scores = series[:, -HORIZON:], {}
    for name, output in (("ours", DoublePoissonOutput()), ("theirs", NegativeBinomialOutput())):
        forecasts = list(make_feed_forward(output, quiet_options).train(train).predict(train))
        samples = np.stack([forecast.distribution.sample((100,)).numpy() for forecast in forecasts], axis=1)
        scores[name] = compute_sample_crps(samples, future)
    truth = DoublePoisson(torch.from_numpy(means[:, -HORIZON:]), torch.tensor(8.0)).crps(torch.from_numpy(future))
    assert scores["ours"] < 0.8 * scores["theirs"]
    assert scores["ours"] < 2.0 * truth.mean().item()


def test_a_saved_predictor_forecasts_the_same(train, quiet_options, tmp_path):
    predictor = make_feed_forward(DoublePoissonOutput(), quiet_options, epochs=1).train(train)
    (tmp_path / "saved").mkdir()
    predictor.serialize(tmp_path / "saved")
    forecasts = [
        next(iter(forecaster.predict(train))) for forecaster in (predictor, Predictor.deserialize(tmp_path / "saved"))
    ]
    assert isinstance(forecasts[1].distribution, DoublePoisson)
    assert forecasts[0].mean == pytest.approx(forecasts[1].mean)
    assert forecasts[0].quantile(0.9) == pytest.approx(np.round(forecasts[0].quantile(0.9)))


def test_deepar_draws_paths_of_counts(train, quiet_options):
    seed_everything(0, verbose=False)
    estimator = DeepAREstimator(
        freq="D",
        prediction_length=3,
        context_length=7,
        num_layers=1,
        hidden_size=8,
        num_parallel_samples=20,
        distr_output=DoublePoissonOutput(),
        num_batches_per_epoch=2,
        trainer_kwargs=quiet_options | {"max_epochs": 1},
    )
    forecasts = list(estimator.train(train).predict(train))
    samples = np.stack([forecast.samples for forecast in forecasts])
    assert samples.shape == (12, 20, 3)
    assert (samples >= 0).all()
    assert (samples == samples.round()).all()
