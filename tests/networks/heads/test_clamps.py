"""Test clamps: the identity inside, bounded outside, never flat."""

import math

import pytest
import torch

from ddpn.networks.heads import HEADS, make_head
from ddpn.networks.heads.clamps import LOG_ALPHA, LOG_GAMMA, LOG_MU, LOG_VARIANCE, bend, unbend

RANGES = [LOG_MU, LOG_GAMMA, LOG_ALPHA, LOG_VARIANCE]
DTYPES = [torch.float32, torch.float64]


def compute_slope(x, low, high):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(bend(x, low, high).sum(), x)[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_values_inside_are_unchanged(low, high, dtype):
    inside = torch.linspace(low, high, 1001, dtype=dtype)
    assert torch.equal(bend(inside, low, high), inside)
    # Also in company of values outside, where the bending is computed.
    mixed = torch.cat([inside, torch.tensor([low - 30.0, high + 30.0], dtype=dtype)])
    assert torch.equal(bend(mixed, low, high)[:-2], inside)
    assert torch.equal(compute_slope(mixed, low, high)[:-2], torch.ones_like(inside))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_values_outside_are_bounded_and_never_flat(low, high, dtype):
    x = torch.tensor([low - 1e3, low - 50.0, low - 1.0, high + 1.0, high + 50.0, high + 1e3], dtype=dtype)
    value = bend(x, low, high)
    assert (value > low - math.pi / 2 - 1e-5).all()
    assert (value < high + math.pi / 2 + 1e-5).all()
    assert (compute_slope(x, low, high) > 1e-7).all()
    assert (value.diff() > 0).all()


def test_value_slope_and_curvature_are_continuous():
    def derivatives(at: float) -> list[float]:
        x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
        # A companion far out keeps the bending in the graph on both sides.
        value = bend(torch.stack([x, torch.full_like(x, 99.0)]), -1.0, 1.0)[0]
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        (second,) = torch.autograd.grad(first, x)
        return [value.item(), first.item(), second.item()]

    for bound in (-1.0, 1.0):
        assert derivatives(bound - 1e-6) == pytest.approx(derivatives(bound + 1e-6), abs=1e-5)


def test_gradients_of_clamps_are_those_of_differences():
    x = torch.tensor([-3.0, -0.5, 0.5, 1.7, 4.0], dtype=torch.float64, requires_grad=True)
    high = torch.tensor([1.0, 1.0, 0.2, 1.5, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: bend(a, -1.0, b), (x, high))
    assert torch.autograd.gradgradcheck(lambda a, b: bend(a, -1.0, b), (x, high))


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_unbend_inverts_bend(low, high):
    reachable = torch.linspace(low - 1.0, high + 1.0, 201, dtype=torch.float64)
    torch.testing.assert_close(bend(unbend(reachable, low, high), low, high), reachable, rtol=0, atol=1e-12)
    beyond = torch.tensor([-torch.inf, low - 2.0, high + 2.0, torch.inf], dtype=torch.float64)
    assert torch.equal(unbend(beyond, low, high).isfinite(), torch.ones(4, dtype=torch.bool))


@pytest.mark.parametrize(
    ("mu", "gamma"),
    [(1e-6, 1.0), (1e-4, 1.0), (0.01, 2.0), (0.3, 20.0), (3.0, 65.0), (1e6, 1.0), (8e6, 1.1e-4), (8e6, 9e3)],
)
def test_clamps_leave_ordinary_distributions_alone(mu, gamma):
    """Small means, Poisson distributions, counts all equal to 3 (gamma = 65) and corners come out as they went in."""
    raw = torch.tensor([mu, gamma], dtype=torch.float64).log()
    dist = make_head("double_poisson")(raw)
    assert dist.mu.item() == pytest.approx(mu, rel=1e-12)
    assert dist.gamma.item() == pytest.approx(gamma, rel=1e-12)


@pytest.mark.parametrize(
    "name", ["poisson", "double_poisson", "negative_binomial", "double_binomial", "hurdle_poisson"]
)
def test_a_mean_that_drifted_away_returns(name):
    """Start 24 beyond both bounds under clipped gradients, where a hard clamp would have no gradient at all."""
    head = make_head(name, **({"total": 12} if HEADS[name].exposure_is_total else {}))
    y = torch.tensor([3.0, 5.0, 7.0])
    raw = torch.zeros(2, 1, head.n_raw)
    raw[:, 0, 0] = torch.tensor([-40.0, 40.0])
    if head.parameter_names[-1] == "logit pi":
        raw[..., -1] = -9.0  # no zeros of their own
    for step in range(50):
        raw.requires_grad_()
        (slope,) = torch.autograd.grad(head.loss(raw, y).sum(), raw)
        raw = raw.detach().clone()
        raw[..., 0] -= 2.0 * (1.0 - step / 50) * slope[..., 0].sign()
    assert head(raw).mean.flatten().tolist() == pytest.approx([5.0, 5.0], rel=0.1)
