"""Test the contract of every head of the registry with every option."""

import itertools

import numpy as np
import pytest
import torch
from torch.distributions import Distribution

from ddpn.distributions import CountDistribution
from ddpn.networks.heads import HEADS, Head, MixedHead, make_head
from ddpn.networks.heads.zeros import ZeroHead

#: Raw outputs far beyond any clamp, and where networks live.
EXTREMES = (-50.0, -3.0, 0.0, 3.0, 50.0)
COUNTS = (0.0, 1.0, 17.0, 1e7)


def is_likelihood(head: Head) -> bool:
    options = head.options
    weighted = options.get("beta", 0.0) > 0 or options.get("objective", "exact") != "exact"
    return (head.has_glm or isinstance(head, MixedHead)) and not weighted


def draw_raw(head: Head, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(*shape, head.n_raw, dtype=dtype, generator=generator)


def make_degenerate_targets() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "all zero": np.zeros(40),
        "all three": np.full(40, 3.0),
        "one outlier of 1e7": np.append(rng.poisson(3.0, 29), 1e7),
        "mean 1e-3": np.append(np.zeros(999), 1.0),
    }


def test_distribution_and_loss_have_the_shape_of_the_rows(head):
    raw = draw_raw(head, 7, 5)
    dist = head(raw)
    assert isinstance(dist, Distribution)
    assert dist.batch_shape == (7, 5)
    assert dist.event_shape == ()
    for y_shape in ((7, 1), (7, 5), (1,), ()):
        assert head.loss(raw, torch.full(y_shape, 2)).shape == (7, 5)
    assert len(head.projection_inputs) == head.n_raw
    assert set(head.projection_inputs) <= {"features", "detached"}
    assert head.projection_inputs[0] == "features"
    assert type(dist.support) is type(head.support)
    assert dist.sample().shape == (7, 5)


def test_half_precision_is_computed_in_float32(head):
    y = torch.arange(6)
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        kept = torch.float64 if dtype == torch.float64 else torch.float32
        raw = draw_raw(head, 6, dtype=torch.float32).to(dtype)
        assert head(raw).mean.dtype == kept
        assert head.loss(raw, y).dtype == kept
        # Half precision is promoted before any link, so results are those of the rounded numbers in float32.
        torch.testing.assert_close(head.loss(raw, y), head.loss(raw.to(kept), y), rtol=0, atol=0)


def test_float32_keeps_its_digits(head):
    if isinstance(head, MixedHead):
        pytest.skip("its start is no good fit; its families are tested")
    # Counts of 1e4 and a good fit: terms of 1e5 cancel to about 1.
    y = torch.tensor([9_900, 10_000, 10_250])
    raw = head.start(y).expand(3, -1)
    exact, single = head.loss(raw, y), head.loss(raw.float(), y)
    # Rounding log mu itself, by 5e-7, moves the loss by that times gamma |mu - y|, which is 1,000 at most here.
    torch.testing.assert_close(single.double(), exact, rtol=0, atol=6e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loss_and_gradient_are_finite_everywhere(head, compute_slopes, dtype):
    if head.n_raw <= 3:
        grid = list(itertools.product(*[EXTREMES] * head.n_raw))
    else:
        grid = np.random.default_rng(0).choice(EXTREMES, size=(500, head.n_raw)).tolist()
    raw = torch.tensor(grid, dtype=dtype).unsqueeze(1)
    y = torch.tensor(COUNTS, dtype=dtype)
    raw = raw.expand(-1, len(COUNTS), -1)
    assert torch.isfinite(head.loss(raw, y)).all()
    assert torch.isfinite(compute_slopes(head, raw, y)).all()
    dist = head(raw)
    assert torch.isfinite(dist.mean).all()
    assert (dist.variance >= 0).all()


def test_loss_is_the_negative_log_likelihood_of_the_distribution(head):
    if not is_likelihood(head):
        pytest.skip("an objective of its own")
    raw, y = 2.0 * draw_raw(head, 200, 4), torch.arange(200.0, dtype=torch.float64).unsqueeze(1)
    exposure = torch.linspace(0.2, 5.0, 200, dtype=torch.float64).unsqueeze(1)
    torch.testing.assert_close(head.loss(raw, y), -head(raw).log_prob(y), rtol=1e-10, atol=1e-9)
    torch.testing.assert_close(head.loss(raw, y, exposure), -head(raw, exposure).log_prob(y), rtol=1e-10, atol=1e-9)


def test_gradient_is_that_of_the_loss(head):
    """Compare with finite differences at points inside the clamps, except where gradients are stopped."""
    stops = not head.has_glm and not isinstance(head, MixedHead)
    if stops or head.options.get("beta", 0.0):
        pytest.skip("stops gradients")
    raw = (0.5 * draw_raw(head, 6) + 0.5).requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 5, 8])
    assert torch.autograd.gradcheck(lambda r: head.loss(r, y), raw, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_doubling_exposure_doubles_the_location(head, scale):
    raw = 0.5 * draw_raw(head, 5)
    for j, name in enumerate(head.parameter_names if head.is_count else ()):
        if "gamma" in name or "alpha" in name:
            raw[:, j] = -1.0  # a dispersion that no bound on mu / gamma touches
    once, twice = (head(raw, torch.full((5,), scale * k)) for k in (1.0, 2.0))
    for low, high in zip(list_locations(once), list_locations(twice), strict=True):
        torch.testing.assert_close(high, 2.0 * low, rtol=1e-14, atol=0)
    for location, default in zip(list_locations(head(raw, torch.ones(5))), list_locations(head(raw)), strict=True):
        torch.testing.assert_close(location, default, rtol=0, atol=0)


def list_locations(dist) -> list[torch.Tensor]:
    """Return the location of a distribution, or of every stack of a mixture."""
    parts = getattr(dist, "components", getattr(dist, "base", dist))
    return [part.loc if hasattr(part, "loc") else part.mu for part in (parts if isinstance(parts, tuple) else (parts,))]


def add_zeros(head, y: torch.Tensor) -> torch.Tensor:
    """Add zeros for heads that have a probability of zeros: without any, the best logit pi is infinite."""
    return torch.where(torch.arange(len(y)) % 3 == 0, 0, y) if isinstance(head, ZeroHead) else y


@pytest.mark.parametrize("varied", [False, True], ids=["plain", "weights and exposures"])
def test_start_minimises_the_loss(head, counts_of_variance_18, varied):
    if isinstance(head, MixedHead):
        pytest.skip("starts beside the minimum")
    y = add_zeros(head, counts_of_variance_18)
    exposure, weight = torch.ones(len(y)), torch.ones(len(y))
    if varied:
        exposure, weight = torch.linspace(0.3, 3.0, len(y)), torch.linspace(0.0, 2.0, len(y))
    raw = (head.start(y, weight, exposure) if varied else head.start(y)).requires_grad_()
    assert (raw.shape, raw.dtype) == ((head.n_raw,), torch.float64)
    loss = (weight * head.loss(raw, y, exposure if varied else None)).sum() / weight.sum()
    (slope,) = torch.autograd.grad(loss, raw)
    assert (slope.abs() < 1e-6).all()


def test_the_default_start_finds_the_same_fit(head, counts_of_variance_18):
    """Compare with the search that heads without a `start` of their own inherit."""
    if isinstance(head, MixedHead) or head.options.get("beta", 0.0) or type(head).start is Head.start:
        pytest.skip("starts elsewhere than at the minimum of its loss, or has no start of its own")
    # Mean 9 and variance 18: not more over-dispersed than a Double Poisson can be with an exposure.
    y = add_zeros(head, counts_of_variance_18 + 3)
    exposure = torch.linspace(0.8, 1.25, len(y))
    start, default = head.start(y, None, exposure), Head.start(head, y, None, exposure)
    assert default.shape == start.shape
    assert default.dtype == torch.float64
    best, searched = (head.loss(raw, y, exposure).mean().item() for raw in (start, default))
    assert searched == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize("name", make_degenerate_targets())
def test_the_start_of_degenerate_targets_is_finite(starting_head, compute_slopes, name):
    head = starting_head
    y = torch.tensor(make_degenerate_targets()[name], dtype=torch.float64)
    raw = head.start(y)
    assert torch.isfinite(raw).all()
    dist = head(raw)
    assert torch.isfinite(dist.mean)
    assert torch.isfinite(head.loss(raw, y)).all()
    assert torch.isfinite(compute_slopes(head, raw.float().expand(len(y), -1), y)).all()
    if not isinstance(head, ZeroHead | MixedHead) or name in ("all three", "one outlier of 1e7"):
        # With an exposure, equal counts are not merged. The other heads begin with fits of these.
        few = y[-30:]
        with_exposure = head.start(few, torch.ones(len(few)), torch.full((len(few),), 2.0))
        assert torch.isfinite(with_exposure).all()
    if head.options == head.option_defaults() and name in ("all zero", "one outlier of 1e7"):
        assert torch.isfinite(Head.start(head, y)).all()


def test_options_rebuild_the_head(head):
    again = HEADS[head.name](**head.options)
    assert again.options == head.options
    assert repr(again) == repr(head)
    raw, y = draw_raw(head, 4), torch.arange(4)
    torch.testing.assert_close(again.loss(raw, y), head.loss(raw, y), rtol=0, atol=0)
    assert head.is_count == isinstance(head(raw), CountDistribution)
    assert len(head.parameter_names) == head.n_raw


def test_no_head_reads_values_of_tensors(head):
    """The host must not wait for a GPU: tensors on `meta` have no values, and reading one raises."""
    raw = torch.zeros(6, 5, head.n_raw, device="meta", requires_grad=True)
    y, exposure = torch.zeros(6, 1, device="meta"), torch.ones(6, 1, device="meta")
    dist = head(raw, exposure)
    assert dist.batch_shape == (6, 5)
    if getattr(dist, "torch_log_prob", head) is not None:  # else a GPU's tensors are copied to the host
        head.loss(raw, y, exposure).sum().backward()
        assert raw.grad.shape == raw.shape


def test_nan_stays_nan(head):
    """No clamp may turn the NaN of a diverged network into a number."""
    raw = torch.full((2, head.n_raw), torch.nan)
    assert torch.isnan(head.loss(raw, torch.tensor([1.0, 2.0]))).all()


def test_likelihoods_of_counts_can_be_mixed(head):
    if not head.is_count or isinstance(head, MixedHead):
        return
    mixed, y = make_head(["poisson", head.name]), torch.tensor([0, 1, 1, 7, 20])
    assert torch.isfinite(mixed.loss(mixed.start(y), y)).all()


def test_the_contract_is_small():
    assert Head.__abstractmethods__ == {"forward"}
