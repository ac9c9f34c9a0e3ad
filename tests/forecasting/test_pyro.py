"""`ddpn.forecasting.pyro.DoublePoisson` in Pyro's models and algorithms."""

import pytest
import torch

pytest.importorskip("pyro", reason="pyro-ppl is not installed: make test-forecasting")

import pyro
from pyro.infer import SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoDelta

import ddpn
from ddpn.forecasting.pyro import DoublePoisson
from ddpn.networks.heads import make_head

pytestmark = pytest.mark.filterwarnings("ignore")


def model(rows, y=None):
    mu = pyro.sample("mu", pyro.distributions.LogNormal(1.0, 2.0))
    gamma = pyro.sample("gamma", pyro.distributions.LogNormal(0.0, 2.0))
    with pyro.plate("rows", rows):
        return pyro.sample("y", DoublePoisson(mu, gamma), obs=y)


def test_batches_events_and_masks():
    dist = DoublePoisson(torch.tensor([2.0, 5.0]), 3.0)
    assert dist.shape((4,)) == (4, 2)
    assert isinstance(dist.expand((3, 2)), DoublePoisson)
    assert dist.to_event(1).log_prob(torch.tensor([2.0, 4.0])).shape == ()
    y, mask = torch.tensor([2.0, 4.0]), torch.tensor([True, False])
    wanted = ddpn.DoublePoisson(torch.tensor([2.0, 5.0]), 3.0).log_prob(y)
    torch.testing.assert_close(dist.mask(mask).log_prob(y), torch.where(mask, wanted, 0.0))
    drawn = dist()
    assert torch.equal(drawn, drawn.round())


def test_variational_inference_finds_the_maximum_of_the_likelihood():
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    y = ddpn.DoublePoisson(torch.full((1000,), 9.0), 4.0).sample()
    guide = AutoDelta(model)
    steps = SVI(model, guide, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO())
    for _ in range(250):
        steps.step(len(y), y)
    found = guide.median()
    # The priors are wide: they move the maximum of 1,000 rows by less than 1%.
    mu, gamma = make_head("double_poisson").start(y.double()).exp().tolist()
    assert found["mu"].item() == pytest.approx(mu, rel=0.01)
    assert found["gamma"].item() == pytest.approx(gamma, rel=0.01)


def test_prior_predictive_draws_are_counts():
    pyro.set_rng_seed(0)
    draws = Predictive(model, num_samples=20)(3)["y"]
    assert draws.shape == (20, 3)
    assert torch.equal(draws, draws.round())
