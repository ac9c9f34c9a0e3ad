"""Test a user's likelihood, registered in one line: in both estimators, at the command line and in the report."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm
import torch
from scipy import stats
from torch.distributions import constraints
from typer.testing import CliRunner

from ddpn import ConfigError, CountGLM, DDPNRegressor, InputError
from ddpn.cli import app
from ddpn.distributions import CountDistribution
from ddpn.networks.heads import HEADS, Head
from ddpn.networks.heads.clamps import log_mean


class Geometric(CountDistribution):
    """Failures before the first success, by their mean."""

    def __init__(self, mu):
        self.mu = mu
        super().__init__(mu.shape)

    def log_prob(self, y):
        return -torch.as_tensor(y) * torch.log1p(1.0 / self.mu) - torch.log1p(self.mu)

    def bracket(self, depth):
        return torch.zeros_like(self.mu), (depth / torch.log1p(1.0 / self.mu)).ceil()

    def rows(self, index):
        return Geometric(self.mu[index])


class GeometricHead(Head):
    """Geometric counts; raw = log mean."""

    name = "geometric"
    n_raw = 1
    support = constraints.nonnegative_integer

    def forward(self, raw, exposure=None):
        return Geometric(log_mean(raw[..., 0], exposure).exp())


@pytest.fixture(scope="module", autouse=True)
def register_geometric() -> Iterator[None]:
    """Register the likelihood, and undo it after these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(HEADS, "geometric", GeometricHead)
        yield


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, geometric counts and exposures."""
    rng = np.random.default_rng(2)
    X, exposure = rng.normal(size=(260, 2)), rng.uniform(0.5, 2.0, 260)
    mean = exposure * np.exp(1.0 + 0.5 * X[:, 0])
    return X, rng.geometric(1.0 / (1.0 + mean)) - 1, exposure


def test_networks_and_a_glm_predict_the_likelihood(quick, data, tmp_path):
    X, y, exposure = data
    model = quick(likelihood="geometric", mix_with=["glm"], epochs=2, training_options={"batch_size": 100})
    model.fit(X, y, exposure=exposure)
    assert set(model.predictor_.members) == {"networks", "glm"}
    one = model.predictor_.distribution(X[:1], exposure[:1], member="glm")
    mean = one.mean.item()
    counted = torch.arange(60.0, dtype=torch.float64)
    assert one.log_prob(counted).exp().numpy() == pytest.approx(stats.geom.pmf(counted + 1, 1.0 / (1.0 + mean)))
    with pytest.raises(ConfigError, match="beta is not an option of the likelihood geometric"):
        quick(likelihood="geometric", head_options={"beta": 0.5}).fit(X, y)
    model.save(tmp_path / "model")
    again = DDPNRegressor.load(tmp_path / "model")
    assert (again.predict(X, exposure) == model.predict(X, exposure)).all()


@pytest.mark.parametrize("likelihood", ["geometric", ["poisson", "geometric"]], ids=str)
def test_a_program_that_lacks_it_is_told_to_register_it(quick, data, tmp_path, monkeypatch, likelihood):
    X, y, _ = data
    quick(likelihood=likelihood, epochs=1).fit(X, y).save(tmp_path / "model")
    monkeypatch.delitem(HEADS, "geometric")
    with pytest.raises(InputError, match=r"the likelihood 'geometric', .*Register it first: .*\.HEADS\['geometric'\]"):
        DDPNRegressor.load(tmp_path / "model")


def test_the_glm_is_that_of_statsmodels(data):
    X, y, exposure = data
    model = CountGLM(likelihood="geometric").fit(X, y, exposure=exposure)
    family = sm.families.NegativeBinomial(alpha=1.0)
    peer = sm.GLM(y, sm.add_constant(X), family, exposure=exposure).fit(tol=1e-13)
    table = model.coefficient_table()
    np.testing.assert_allclose(table.estimate, peer.params, rtol=1e-5)
    assert table.parameter == ("raw 0",) * 3
    assert model.loglik_ == pytest.approx(peer.llf, rel=1e-9)


def test_the_command_line_and_the_report_take_the_likelihood(data, tmp_path, monkeypatch):
    X, y, exposure = data
    table = pl.DataFrame({"x": X[:, 0], "days": exposure, "visits": y})
    table.write_csv(tmp_path / "visits.csv")
    settings = 'n_networks = 1\nhidden = [8]\nnumeric = "standard"\nepochs = 2\ndevice = "cpu"\n'
    (tmp_path / "quick.toml").write_text(settings + "[training_options]\nbatch_size = 100\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def ddpn(*arguments: str, exit_code: int = 0) -> str:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == exit_code, result.output
        return result.output

    fit = ["fit", "visits.csv", "--target", "visits", "--exposure", "days", "--config", "quick.toml", "-o", "model"]
    assert "Did you mean 'geometric'" in ddpn(*fit, "--likelihood", "geometrc", exit_code=2)
    ddpn(*fit, "--likelihood", "geometric", "--compare-with", "constant")
    model = DDPNRegressor.load("model")
    assert model.head_.name == "geometric"
    assert set(model.predictor_.members) == {"networks", "glm", "constant"}
    assert "geometric" in ddpn("show", "model")
    ddpn("predict", "model", "visits.csv", "-o", "predictions.csv")
    mean = pl.read_csv("predictions.csv")["mean"].to_numpy()
    assert mean == pytest.approx(model.predict(table.select("x"), exposure))
    ddpn("report", "model", "visits.csv", "-o", "report.html")
    assert "geometric" in Path("report.html").read_text()
