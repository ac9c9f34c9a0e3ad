"""Losses with gradients in closed form: the same as automatic differentiation through the distribution's log_prob."""

import sys

import pytest
import torch

from ddpn.distributions import NegativeBinomial
from ddpn.heads import Head, NegativeBinomialHead, make_head
from ddpn.heads.scores import Counts

HEADS = {
    "poisson": {},
    "double_poisson": {},
    "negative_binomial": {},
    "mixed": {},
    "mixed of others": {"families": ("negative_binomial", "poisson", "negative_binomial")},
}
#: Raw outputs of a usual training, some beyond the clamps, and most far beyond them.
SCALES = (0.3, 3.0, 30.0)


@pytest.fixture(params=HEADS)
def closed(request) -> Head:
    return make_head(request.param.split()[0], **HEADS[request.param])


def _rows(head: Head, scale: float, seed: int = 0, shape: tuple[int, ...] = (40, 3)) -> tuple[torch.Tensor, ...]:
    """Raw outputs, counts (0, 1, usual, large) and exposures."""
    random = {"generator": torch.Generator().manual_seed(seed), "dtype": torch.float64}
    raw = 1.0 + scale * torch.randn(*shape, head.n_raw, **random)
    y = torch.randn(shape, **random).mul(3.0).exp().floor()
    y[:10], y[10:20], y[20:22] = 0.0, 1.0, 1e6
    return raw, y, 0.1 + 9.0 * torch.rand(shape, **random)


def _value_and_slope(loss, raw: torch.Tensor, weight: float | torch.Tensor = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    x = raw.detach().clone().requires_grad_()
    value = loss(x)
    return value.detach(), torch.autograd.grad((weight * value).sum(), x)[0]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("with_exposure", [False, True])
def test_value_and_gradient_are_those_of_log_prob(closed, scale, with_exposure):
    raw, y, exposure = _rows(closed, scale)
    exposure = exposure if with_exposure else None
    weight = torch.linspace(0.0, 2.0, len(raw), dtype=torch.float64).unsqueeze(1)
    found = _value_and_slope(lambda x: closed.loss(x, y, exposure), raw, weight)
    expected = _value_and_slope(lambda x: -closed.forward(x, exposure).log_prob(y), raw, weight)
    # A loss of 1e-5 is the difference of numbers near 1.
    torch.testing.assert_close(found[0], expected[0], rtol=1e-7, atol=1e-10)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-6, atol=1e-7 if scale == SCALES[-1] else 1e-10)


@pytest.mark.parametrize("beta", [0.5, 1.0])
@pytest.mark.parametrize("scale", SCALES)
def test_a_weight_by_gamma_has_no_gradient(beta, scale):
    head = make_head("double_poisson", beta=beta)
    raw, y, exposure = _rows(head, scale)
    found = _value_and_slope(lambda x: head.loss(x, y, exposure), raw)
    expected = _value_and_slope(lambda x: head.differentiable_loss(x, y, exposure), raw)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_it_is_what_losses_use(closed, monkeypatch):
    calls = []

    def spied(*args):
        calls.append(args[1].shape)
        return original(*args)

    original = type(closed).loss_and_gradient
    monkeypatch.setattr(type(closed), "loss_and_gradient", spied)
    raw, y, _ = _rows(closed, 0.3)
    closed.loss(raw, y)
    assert calls[0] == (closed.n_raw, 40, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_precision_and_layout_of_a_training_step(closed, dtype):
    """Members first in memory, counts shared by all members."""
    raw, y, _ = _rows(closed, 0.3)
    raw, y = raw.transpose(0, 1).contiguous().transpose(0, 1).to(dtype), y[:, :1].float()
    value, slope = _value_and_slope(lambda x: closed.loss(x, y), raw)
    expected = _value_and_slope(lambda x: closed.differentiable_loss(x, y), raw)
    assert (value.dtype, slope.dtype) == (torch.float32, dtype)
    torch.testing.assert_close((value, slope), expected, rtol=1e-5 if dtype == torch.float32 else 1e-2, atol=1e-5)


def test_raw_outputs_that_all_rows_share(closed):
    raw, y, exposure = _rows(closed, 0.3)
    for shared in (raw[0, 0], raw[0]):
        found = _value_and_slope(lambda x: closed.loss(x, y, exposure), shared)
        expected = _value_and_slope(lambda x: closed.differentiable_loss(x, y, exposure), shared)
        assert found[1].shape == shared.shape
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("scale", SCALES[:2])
def test_second_derivatives(closed, scale):
    raw, y, exposure = (x[18:24, 0] for x in _rows(closed, scale))
    y = y.clamp(max=50.0)
    found, expected = (
        torch.autograd.functional.hessian(lambda x, f=f: f(x, y, exposure).sum(), raw)
        for f in (closed.loss, closed.differentiable_loss)
    )
    assert expected.abs().max() > 0.0
    torch.testing.assert_close(found, expected)


def test_without_gradients_and_without_rows(closed):
    raw, y, _ = _rows(closed, 0.3)
    expected = closed.differentiable_loss(raw, y)
    with torch.no_grad():
        torch.testing.assert_close(closed.loss(raw, y), expected)
    empty = closed.loss(raw[:0].requires_grad_(), y[:0])
    assert empty.shape == (0, 3)


def test_a_gradient_in_the_exposures(closed):
    raw, y, exposure = _rows(closed, 0.3)
    x = exposure.requires_grad_()
    (slope,) = torch.autograd.grad(closed.loss(raw, y, x).sum(), x)
    assert slope.isfinite().all()
    assert slope.abs().max() > 0.0


def test_a_row_of_nan_stays_alone(closed):
    raw, y, _ = _rows(closed, 0.3)
    raw[3, 1] = torch.nan
    value, slope = _value_and_slope(lambda x: closed.loss(x, y), raw)
    assert value.isnan().nonzero().tolist() == [[3, 1]]
    assert slope.isnan().any(-1).nonzero().tolist() == [[3, 1]]


def test_another_distribution_of_a_subclass_is_not_passed_over():
    class Shifted(NegativeBinomialHead):
        """A Negative Binomial with another link."""

        name = "shifted"

        def forward(self, raw, exposure=None):
            return NegativeBinomial(raw[..., 0].exp() + 1.0, raw[..., 1].exp(), validate_args=False)

    raw, y = torch.zeros(5, 2, dtype=torch.float64), torch.arange(5.0, dtype=torch.float64)
    assert Shifted().loss_and_gradient(raw.T, Counts.of(y), None) is None
    torch.testing.assert_close(Shifted().loss(raw, y), -NegativeBinomial(2.0 + 0.0 * y, 1.0).log_prob(y))


@pytest.mark.parametrize("size", [1.0, 30.0], ids=["within the bounds", "beyond them"])
def test_derivatives_need_no_symbolic_mathematics(size, monkeypatch):
    """Torch imports sympy for gradients of several values, which takes a second of the first fit."""
    monkeypatch.setitem(sys.modules, "torch.fx.experimental.symbolic_shapes", None)  # to import it is an error
    raw = torch.tensor([[0.5, -0.5], [1.0, 0.5]]).double().mul_(size).requires_grad_()
    loss = make_head("double_poisson").loss(raw, torch.tensor([1.0, 2.0])).sum()
    (slopes,) = torch.autograd.grad(loss, raw, create_graph=True)
    assert torch.autograd.grad(slopes.sum(), raw)[0].isfinite().all()
