"""Test `DoublePoissonLikelihood` in darts's own models."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import kl_divergence

pytest.importorskip("darts.utils.likelihood_models.torch", reason="darts is not installed: make test-forecasting")

from darts import TimeSeries
from darts.models import RNNModel
from darts.utils.likelihood_models.torch import NegativeBinomialLikelihood
from darts.utils.serialization import safe_globals

from ddpn import ConfigError, DoublePoisson, InputError
from ddpn.forecasting import DoublePoissonLikelihood
from ddpn.forecasting.darts import DoublePoissonType

pytestmark = pytest.mark.filterwarnings("ignore")
HORIZON = 7
TRAINER = {
    "accelerator": "cpu",
    **dict.fromkeys(("enable_progress_bar", "enable_model_summary", "logger", "enable_checkpointing"), False),
}


@pytest.fixture(scope="module")
def train(series):
    times = pd.date_range("2024-01-01", periods=series.shape[1] - HORIZON)
    return [TimeSeries.from_times_and_values(times, row[:-HORIZON].astype(np.float32)) for row in series]


def make_lstm(likelihood, folder, epochs):
    return RNNModel(
        model="LSTM",
        input_chunk_length=14,
        training_length=21,
        hidden_dim=12,
        n_epochs=epochs,
        optimizer_kwargs={"lr": 2e-2},
        likelihood=likelihood,
        random_state=0,
        work_dir=str(folder),
        pl_trainer_kwargs=TRAINER,
    )


def test_parameters_have_names_and_an_order():
    likelihood = DoublePoissonLikelihood()
    assert likelihood.num_parameters == 2
    assert likelihood.type.value == "doublepoisson"
    names = likelihood.component_names(components=["a", "b"])
    assert names == ["a_mu", "a_gamma", "b_mu", "b_gamma"]
    raw = torch.randn(3, 4, 2, 2)
    parameters = likelihood.predict_likelihood_parameters(raw)
    assert parameters.shape == (3, 4, 4)
    torch.testing.assert_close(parameters, raw.exp().flatten(2))
    softplus = DoublePoissonLikelihood(link="softplus").predict_likelihood_parameters(raw)
    torch.testing.assert_close(softplus[..., 0], torch.nn.functional.softplus(raw[..., 0, 0]))
    assert likelihood == DoublePoissonLikelihood()
    assert likelihood != DoublePoissonLikelihood(link="softplus")


def test_the_loss_is_the_mean_negative_log_likelihood():
    raw, y = torch.randn(5, 3, 1, 2, requires_grad=True), torch.poisson(torch.full((5, 3, 1), 3.0))
    weight = torch.rand(5, 3, 1)
    likelihood = DoublePoissonLikelihood()
    loss = likelihood.compute_loss(raw, y, weight)
    expected = -(weight * DoublePoisson(raw[..., 0].exp(), raw[..., 1].exp()).log_prob(y)).mean()
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert raw.grad.isfinite().all()
    drawn = likelihood.sample(raw.detach())
    assert drawn.shape == (5, 3, 1)
    assert torch.equal(drawn, drawn.round())


def test_a_prior_adds_its_divergence_to_the_loss():
    # Within the range where links do not bend raw outputs.
    raw, y = torch.randn(5, 3, 2, 2).clamp(-2.0, 2.0), torch.poisson(torch.full((5, 3, 2), 3.0))
    plain = DoublePoissonLikelihood().compute_loss(raw, y, None)
    both = DoublePoissonLikelihood(prior_mu=[20.0, 2.0], prior_gamma=5.0, prior_strength=7.0).compute_loss(raw, y, None)
    prior = DoublePoisson(torch.tensor([20.0, 2.0]), torch.tensor(5.0)).expand((5, 3, 2))
    divergence = kl_divergence(prior, DoublePoisson(*raw.exp().unbind(-1))).mean()
    torch.testing.assert_close(both, plain + 7.0 * divergence)
    # What is not given is as predicted.
    half = DoublePoissonLikelihood(prior_mu=raw[..., 0].exp().mean().item()).compute_loss(raw, y, None)
    assert plain < half < both


def test_invalid_arguments_are_rejected():
    with pytest.raises(InputError, match="prior_gamma must be positive, got -1"):
        DoublePoissonLikelihood(prior_gamma=-1)
    with pytest.raises(ConfigError, match="link must be 'log' or 'softplus', got 'identity'"):
        DoublePoissonLikelihood(link="identity")


def test_under_dispersed_series_are_forecast_better_than_by_a_negative_binomial(
    train, series, tmp_path, compute_sample_crps
):
    future, scores = series[:, -HORIZON:], {}
    for kind in (DoublePoissonLikelihood, NegativeBinomialLikelihood):
        model = make_lstm(kind(), tmp_path, epochs=6)
        model.fit(train)
        forecasts = model.predict(HORIZON, series=train, num_samples=50, batch_size=600)
        samples = np.stack([forecast.all_values()[:, 0].T for forecast in forecasts], axis=1)
        assert (samples == samples.round()).all()
        assert (samples >= 0).all()
        scores[kind] = compute_sample_crps(samples, future)
    assert scores[DoublePoissonLikelihood] < 0.8 * scores[NegativeBinomialLikelihood]


def test_a_saved_model_predicts_the_same_parameters(train, tmp_path):
    model = make_lstm(DoublePoissonLikelihood(), tmp_path, epochs=1)
    model.fit(train, max_samples_per_ts=4)
    model.save(str(tmp_path / "model.pt"))
    with safe_globals([DoublePoissonLikelihood, DoublePoissonType]):
        loaded = RNNModel.load(str(tmp_path / "model.pt"))
    tables = [
        forecaster.predict(1, series=train[0], predict_likelihood_parameters=True).to_dataframe()
        for forecaster in (model, loaded)
    ]
    assert list(tables[0].columns) == ["0_mu", "0_gamma"]
    pd.testing.assert_frame_equal(*tables)
