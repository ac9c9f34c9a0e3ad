"""Test what the mixed head, a mixture of families per row, adds to the contract of every head."""

import numpy as np
import pytest
import torch

from ddpn import DDPNRegressor
from ddpn.networks.heads import HEADS, PoissonHead, make_head
from ddpn.runtime.errors import ConfigError


def test_components_start_apart_with_equal_weights():
    y = torch.tensor(np.random.default_rng(0).poisson(4.0, 500))
    head = make_head("poisson", components=3)
    low, middle, high, *logits = head.start(y).tolist()
    assert middle == pytest.approx(y.double().mean().log().item(), abs=1e-4)
    assert (high - middle, middle - low) == (pytest.approx(0.5), pytest.approx(0.5))
    assert logits == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("likelihood", "options", "message"),
    [
        ([], {}, "families"),
        (["poisson", "gaussian"], {}, "counts.*'gaussian'"),
        (["poisson", "poison"], {}, "Did you mean 'poisson'"),
        ("mixed", {"families": "poisson"}, "list of likelihoods"),
        ("mixed", {"components": 2}, "components needs a single likelihood"),
        ("mixed", {"beta": 0.5}, "beta needs a single likelihood"),
        ("mixed", {"family": 1}, "Did you mean 'families'"),
        ("double_poisson", {"components": 2, "beta": 0.5}, "components cannot be combined with `beta`"),
        ("poisson", {"components": 0}, "components must be"),
        ("gaussian", {"components": 2}, "counts.*'gaussian'"),
    ],
)
def test_families_that_cannot_be_mixed_are_refused(likelihood, options, message):
    with pytest.raises(ConfigError, match=message):
        make_head(likelihood, **options)


@pytest.fixture(scope="module")
def counts_with_two_humps():
    """Counts of mean 2 or 20, whatever the features: no distribution with one hump fits."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 2))
    y = np.where(rng.random(800) < 0.4, rng.poisson(2.0, 800), rng.poisson(20.0, 800))
    return X, y


def test_a_mixed_head_fits_counts_with_two_humps(counts_with_two_humps):
    X, y = counts_with_two_humps
    options = {"n_networks": 1, "hidden": (8,), "numeric": "standard", "epochs": 25, "random_state": 0}
    options |= {"training_options": {"batch_size": 100, "lr": 0.02}, "preset": "default"}
    nll = {}
    for likelihood in ("double_poisson", "mixed"):
        model = DDPNRegressor(likelihood=likelihood, **options).fit(X[:600], y[:600])
        nll[likelihood] = model.nll(X[600:], y[600:])
    truth = -np.log(0.4 * compute_poisson_pmf(2.0, y[600:]) + 0.6 * compute_poisson_pmf(20.0, y[600:])).mean()
    assert nll["mixed"] < truth + 0.1 < nll["double_poisson"] - 0.1

    dist = model.predict_distribution(X[600:610]).distribution
    torch.testing.assert_close(dist.aleatoric + dist.epistemic, dist.variance)
    assert (dist.epistemic == 0).all()  # of one network: its own components are no disagreement


def compute_poisson_pmf(mean: float, y: np.ndarray) -> np.ndarray:
    from scipy.stats import poisson

    return poisson.pmf(y, mean)


def test_a_likelihood_with_a_loss_of_its_own_keeps_it_in_a_mixture(monkeypatch):
    class Bounded(PoissonHead):
        """A Poisson whose loss is at most 1."""

        def loss(self, raw, y, exposure=None):
            return super().loss(raw, y, exposure).clamp(max=1.0)

    monkeypatch.setitem(HEADS, "bounded", Bounded)
    head = make_head(["bounded", "negative_binomial"])
    raw = torch.zeros(1, head.n_raw, dtype=torch.float64)
    assert head.loss(raw, torch.tensor([9.0])).item() <= 1.0 + np.log(2.0)
