"""Test what users of heads and distributions may rely on, whichever way a result is computed."""

import numpy as np
import pytest
import torch

from ddpn.distributions import Censored, DoublePoisson, Mixture, NegativeBinomial, Truncated
from ddpn.export.families import add_head
from ddpn.networks.heads import HEADS, DoublePoissonHead, MixedHead, NegativeBinomialHead, PoissonHead
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError


def make_tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# A subclass that overrides `forward` is never bypassed ---------------------------------------------------------------


class NarrowNegativeBinomialHead(NegativeBinomialHead):
    """A Negative Binomial with a third of the dispersion."""

    def forward(self, raw, exposure=None):
        return super().forward(raw - torch.tensor([0.0, np.log(3.0)], dtype=raw.dtype), exposure)


class NarrowDoublePoissonHead(DoublePoissonHead):
    """A Double Poisson with twice the gamma."""

    def forward(self, raw, exposure=None):
        return super().forward(raw + torch.tensor([0.0, np.log(2.0)], dtype=raw.dtype), exposure)


class HalvedPoissonHead(PoissonHead):
    """A Poisson with half the mean."""

    def forward(self, raw, exposure=None):
        return super().forward(raw - np.log(2.0), exposure)


CHANGED = [NarrowNegativeBinomialHead, NarrowDoublePoissonHead, HalvedPoissonHead]


@pytest.fixture
def register_changed_heads(monkeypatch):
    for kind in CHANGED:
        monkeypatch.setitem(HEADS, kind.__name__, kind)


@pytest.mark.parametrize("kind", CHANGED)
def test_losses_starts_and_derivatives_are_those_of_the_overridden_forward(kind):
    head, y = kind(), make_tensor(0, 2, 5, 1)
    raw = torch.tensor([[0.4, -0.8][: head.n_raw]], dtype=torch.float64).repeat(4, 1).requires_grad_()
    expected = -head.forward(raw, None).log_prob(y)
    torch.testing.assert_close(head.loss(raw, y), expected)
    with torch.no_grad():
        torch.testing.assert_close(head.loss(raw, y), expected.detach())
    gradient = head.gradient(raw.detach(), CountRows(None, y))
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), raw)[0])
    start = head.start(y)
    assert head(start).mean.item() == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize("kind", CHANGED)
def test_a_mixture_uses_the_overridden_forward_with_and_without_gradients(kind, register_changed_heads):
    head = MixedHead(families=(kind.__name__,) * 2)
    raw = torch.linspace(-1.0, 1.5, 3 * head.n_raw, dtype=torch.float64).reshape(3, -1)
    with torch.no_grad():
        without = head(raw).variance
    with_gradients = head(raw.clone().requires_grad_()).variance
    torch.testing.assert_close(without, with_gradients.detach(), rtol=1e-8, atol=0)
    components = kind()(raw[:, : 2 * kind.n_raw].unflatten(1, (2, -1)))
    torch.testing.assert_close(without, Mixture(components, head(raw).weights).variance, rtol=1e-8, atol=0)


@pytest.mark.parametrize("options", [{"beta": 0.5}, {"objective": "paper"}])
def test_an_objective_that_the_overridden_forward_does_not_have_is_refused(options):
    raw, y = torch.zeros(2, 2), make_tensor(1, 2)
    with pytest.raises(ConfigError, match="has no effect in NarrowDoublePoissonHead"):
        NarrowDoublePoissonHead(**options).loss(raw, y)

    class Weighted(NarrowDoublePoissonHead):
        def loss(self, raw, y, exposure=None):
            return self.beta * torch.ones_like(y)

    assert Weighted(**options).loss(raw, y).shape == y.shape


def test_a_head_that_is_renamed_only_keeps_its_derivatives():
    class Renamed(NegativeBinomialHead):
        name = "renamed"

    raw, sample = torch.zeros(3, 2, dtype=torch.float64), CountRows(None, make_tensor(0, 1, 4))
    for name in ("gradient", "curvature"):
        renamed, original = (getattr(head, name)(raw, sample) for head in (Renamed(), NegativeBinomialHead()))
        torch.testing.assert_close(renamed, original)


def test_a_head_with_a_forward_of_its_own_is_not_exported_as_its_base():
    from ddpn.export.graph import Graph

    raw = Graph().constant(np.zeros((1, 1, 2)))
    with pytest.raises(ConfigError, match="negative_binomial"):
        add_head(NarrowNegativeBinomialHead(), raw, None)


# Results do not depend on what was asked before ----------------------------------------------------------------------


def make_mixture() -> Mixture:
    raw = torch.linspace(-2.0, 2.5, 200 * 9, dtype=torch.float64)[torch.randperm(1800, generator=torch.manual_seed(0))]
    return MixedHead()(raw.reshape(200, 9))


def test_component_means_do_not_depend_on_the_order_of_calls():
    first, second = make_mixture(), make_mixture()
    alone = [stack.mean for stack in first.components]
    second.variance, second.mean, second.epistemic, second.interval(0.9)
    for before, after in zip(alone, (stack.mean for stack in second.components), strict=True):
        assert torch.equal(before, after)
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.variance, second.variance)


def test_means_of_nested_mixtures_do_not_depend_on_the_order_of_calls():
    first, second = (Mixture([make_mixture(), make_mixture()], weights=[0.3, 0.7]) for _ in range(2))
    [stack.mean for stack in first._flatten().components]
    first.interval(0.9)
    torch.testing.assert_close(first.variance, second.variance, rtol=0, atol=0)
    torch.testing.assert_close(first.mean, make_mixture().mean, rtol=1e-9, atol=0)
    torch.testing.assert_close(first.variance, make_mixture().variance, rtol=1e-9, atol=0)


MADE = {
    "double_poisson": lambda x: DoublePoisson(x, 2.0),
    "negative_binomial": lambda x: NegativeBinomial(x, 0.5),
    "mixture": lambda x: Mixture([DoublePoisson(x, 2.0), NegativeBinomial(x, 0.5)]),
    "stack": lambda x: Mixture(DoublePoisson(torch.stack([x, x], dim=-1), make_tensor(0.5, 2.0))),
    "censored": lambda x: Censored(DoublePoisson(x, 2.0), 9),
    "truncated": lambda x: Truncated(NegativeBinomial(x, 0.5), 1, 30),
}


@pytest.mark.parametrize("name", MADE)
def test_a_parameter_that_changes_in_place_changes_every_result(name):
    def results(dist):
        y = torch.tensor([3.0, 8.0], dtype=torch.float64)
        parts = (dist.mean, dist.variance, dist.cdf(y), dist.crps(y), dist.entropy(), *dist.interval(0.9), dist.mode)
        return [part.clone() for part in parts]

    dist = MADE[name](make_tensor(4.0, 6.0))
    results(dist)
    for location in _list_locations(dist):
        location.mul_(2.0)
    for changed, fresh in zip(results(dist), results(MADE[name](make_tensor(8.0, 12.0))), strict=True):
        torch.testing.assert_close(changed, fresh)


def _list_locations(dist) -> list[torch.Tensor]:
    """List the memory of all means."""
    if hasattr(dist, "mu"):
        return [dist.mu]
    parts = getattr(dist, "components", getattr(dist, "base", None))
    locations = [mu for part in (parts if isinstance(parts, tuple) else (parts,)) for mu in _list_locations(part)]
    return list({mu.data_ptr(): mu for mu in locations}.values())
