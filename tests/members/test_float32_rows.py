"""Networks on many rows in float32: close to float64, and in float64 where digits would be lost."""

import numpy as np
import pytest
import torch

from ddpn.heads import make_head
from ddpn.members import float32_rows
from ddpn.members.float32_rows import FLOAT32_ROWS, LARGEST, TOLERANCE, float32_allowed
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Networks
from ddpn.sample import Sample

ROWS = FLOAT32_ROWS + 300


def fitted(likelihood: str = "mixed", **options) -> tuple[Networks, np.ndarray]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(ROWS, 3))
    sample = Sample(X, rng.poisson(np.exp(0.5 * X[:, 0])).astype(float))
    chosen = NetworkOptions(**{"members": 2, "hidden": (16, 12), "epochs": 2, "numeric": "piecewise", **options})
    return Networks(make_head(likelihood), chosen).fit(sample.rows(slice(0, 300)), None, seed=1), X


@pytest.fixture(scope="module")
def trained() -> tuple[Networks, np.ndarray]:
    return fitted()


@pytest.fixture
def member(trained) -> tuple[Networks, np.ndarray]:
    """A copy whose weights a test may change."""
    networks, X = trained
    return Networks.from_state(networks.state()), X


def in_float32(networks: Networks, X: np.ndarray, exposure: np.ndarray | None = None) -> torch.Tensor:
    with float32_allowed():
        return networks.raw(X, exposure)


def test_raw_outputs_are_close_to_those_in_float64(trained):
    networks, X = trained
    found, exact = in_float32(networks, X), networks.raw(X)
    assert (found.dtype, exact.dtype) == (torch.float32, torch.float64)
    assert found.shape == exact.shape
    gap = (found - exact).abs()
    assert 0.0 < gap.max() <= TOLERANCE


def test_float32_is_for_many_rows_where_a_caller_allows_it(trained):
    networks, X = trained
    assert in_float32(networks, X[:FLOAT32_ROWS]).dtype == torch.float32
    assert in_float32(networks, X[: FLOAT32_ROWS - 1]).dtype == torch.float64
    with float32_allowed(False):
        assert networks.raw(X).dtype == torch.float64
    assert networks.raw(X).dtype == torch.float64


def test_rows_with_inputs_beyond_the_limit_are_predicted_in_float64(trained):
    networks, X = trained
    far = np.array([3, 700, ROWS - 1])
    new = X.copy()
    new[far, [0, 1, 2]] = 1e300, -500.0, 1e9
    found, exact = in_float32(networks, new), networks.raw(new)
    torch.testing.assert_close(found[far], exact[far].float(), rtol=0.0, atol=0.0)
    assert (found - exact).abs().max() <= TOLERANCE


def test_large_means_are_predicted_in_float64(member):
    networks, X = member
    exposure = np.ones(ROWS)
    large = np.array([5, 600, 1200])
    exposure[large] = 1e6
    found, exact = in_float32(networks, X, exposure), networks.raw(X, exposure)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found[large], exact[large], rtol=1e-12, atol=1e-13)
    assert 0.0 < (found - exact).abs().max() <= TOLERANCE
    with torch.no_grad():
        networks.model.projection.bias[..., 0] += 2.0 * np.log(LARGEST)
    found = in_float32(networks, X)
    torch.testing.assert_close(found, networks.raw(X), rtol=0.0, atol=0.0)


def test_narrow_distributions_and_long_tails_count_as_large():
    head = make_head("mixed")
    raw = torch.zeros(1, head.n_raw, 4)
    raw[0, 0] = torch.tensor([0.0, 6.0, 6.0, 0.0])  # log mu
    raw[0, 1] = torch.tensor([8.0, 0.0, 2.0, 0.0])  # log gamma
    raw[0, 5] = torch.tensor([0.0, 6.0, 0.0, 8.0])  # log alpha
    assert float32_rows.is_large(head, raw, None).tolist() == [True, False, True, True]
    assert float32_rows.is_large(head, raw.fill_(torch.nan), None).all()


def test_networks_that_lose_digits_predict_in_float64(member):
    networks, X = member
    with torch.no_grad():
        networks.model.projection.weight[..., -1] *= 1e4  # of a logit
    exact = networks.raw(X)
    torch.testing.assert_close(in_float32(networks, X), exact, rtol=0.0, atol=0.0)


def test_sampled_rows_are_spread_over_all(monkeypatch):
    lost = np.zeros(2000, dtype=bool)
    lost[[0, 900]] = True
    sample, rest = float32_rows.rows_for_float64(lost)
    assert rest.tolist() == [0, 900]
    assert len(sample) >= 15
    assert 0 not in sample
    assert np.diff(sample).max() <= 200


@pytest.mark.parametrize("likelihood", ["double_poisson", "gaussian"])
def test_parameters_have_to_be_exponentials(likelihood):
    networks, X = fitted(likelihood, epochs=1)
    expected = torch.float32 if likelihood == "double_poisson" else torch.float64
    assert in_float32(networks, X).dtype == expected
