"""Test the Double Binomial head: the contract for counts of a known total, and its messages."""

import itertools

import numpy as np
import pytest
import statsmodels.api as sm
import torch

from ddpn import ConfigError, DoubleBinomial, InputError
from ddpn.networks.heads import DoubleBinomialHead, make_head

RAWS = torch.tensor(list(itertools.product((-50.0, -3.0, 0.0, 3.0, 50.0), repeat=2))).unsqueeze(1)
TOTALS = torch.tensor([1.0, 12.0, 300.0, 1e6])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loss_and_gradient_are_finite_everywhere(compute_slopes, dtype):
    head, raw = DoubleBinomialHead(), RAWS.to(dtype).expand(-1, 4, 2)
    for y in (torch.zeros(4), TOTALS, torch.floor(TOTALS / 3)):
        assert torch.isfinite(head.loss(raw, y, TOTALS)).all()
        assert torch.isfinite(compute_slopes(head, raw, y, TOTALS)).all()
        assert head.loss(raw, y, TOTALS).dtype == dtype
    dist = head(raw, TOTALS)
    assert isinstance(dist, DoubleBinomial)
    assert ((dist.mean >= 0) & (dist.mean <= TOTALS)).all()
    assert (dist.mu < TOTALS).all()


def test_the_total_of_all_rows_is_an_option():
    raw, y = torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(0)), torch.arange(5).unsqueeze(1)
    loss = DoubleBinomialHead().loss(raw, y, torch.full((5, 1), 12.0))
    assert torch.equal(DoubleBinomialHead(total=12).loss(raw, y), loss)
    assert make_head("double_binomial", total=12).options == {"total": 12}


def test_gradient_is_that_of_the_loss():
    raw = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    y, n = torch.tensor([0, 1, 2, 3, 12, 80]), torch.tensor([1.0, 4.0, 2.0, 12.0, 12.0, 200.0])
    assert torch.autograd.gradcheck(lambda r: DoubleBinomialHead().loss(r, y, n), raw, atol=1e-5)
    assert torch.autograd.gradgradcheck(lambda r: DoubleBinomialHead().loss(r, y, n), raw, atol=1e-4)


def test_start_is_statsmodels_binomial_fit_for_binomial_counts():
    rng = np.random.default_rng(2)
    n = rng.integers(1, 60, 2000)
    y = rng.binomial(n, 0.3)
    share = sm.GLM(np.c_[y, n - y], np.ones(2000), family=sm.families.Binomial()).fit().params[0]
    start = DoubleBinomialHead().start(torch.tensor(y), None, torch.tensor(n))
    assert start.tolist() == pytest.approx([share, 0.0], abs=0.05)


def test_start_takes_weights_as_repetitions(compute_slopes):
    head, y = DoubleBinomialHead(total=12), torch.tensor([2, 3, 5, 4, 9, 8])
    times = torch.tensor([1, 2, 3, 1, 0, 2])
    start = head.start(y, times)
    torch.testing.assert_close(start, head.start(y.repeat_interleave(times)), rtol=1e-5, atol=1e-5)
    assert (compute_slopes(head, start.expand(9, -1), y.repeat_interleave(times)).mean(0).abs() < 1e-6).all()


@pytest.mark.parametrize("y", [[0] * 9, [12] * 9, [3] * 9, [4], [0] * 99 + [1], [0, 12] * 9])
def test_the_start_of_degenerate_targets_is_finite(y):
    head, y = DoubleBinomialHead(total=12), torch.tensor(y)
    raw = head.start(y)
    assert torch.isfinite(raw).all()
    assert torch.isfinite(head.loss(raw, y)).all()
    assert head(raw).mean.item() == pytest.approx(y.double().mean().item(), abs=1e-2)


def test_bad_totals_are_reported():
    head, y = DoubleBinomialHead(), np.array([1.0, 13.0])
    with pytest.raises(InputError, match="needs the total of every row: pass it as exposure"):
        head.check_targets(y, None)
    with pytest.raises(InputError, match="y must be at most the total, got 13 of 12 at row 5"):
        head.check_targets(y, np.array([12.0, 12.0]), labels=[4, 5])
    with pytest.raises(InputError, match=r"integers of at least 1, got 12\.5 at row 0"):
        head.check_targets(y, np.array([12.5, 14.0]))
    with pytest.raises(InputError, match="needs the total of every row"):
        head(torch.zeros(3, 2))
    with pytest.raises(InputError, match=r"exposure must hold integers of at least 1, got 0\.5"):
        head(torch.zeros(3, 2), torch.full((3,), 0.5))
    with pytest.raises(ConfigError, match="total must be an integer of at least 1, got 0"):
        DoubleBinomialHead(total=0)


def test_a_double_binomial_is_no_component_of_a_mixture():
    for refused in ({"components": 2, "total": 3}, {"components": 2}):
        with pytest.raises(ConfigError):
            make_head("double_binomial", **refused)
    with pytest.raises(ConfigError, match="families must be likelihoods of unbounded counts"):
        make_head(["poisson", "double_binomial"])
