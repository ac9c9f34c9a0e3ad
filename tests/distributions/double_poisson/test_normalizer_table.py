"""log c from a table against the sums over counts."""

import pytest
import torch

from ddpn.distributions.double_poisson.normalizer_table import by_table, exact
from ddpn.heads import make_head


def both(log_mu, log_gamma):
    return (torch.stack(method(log_mu, log_gamma)) for method in (by_table, exact))


@pytest.mark.parametrize(
    ("log_mu", "log_gamma"),
    [((-9.0, 15.0), (-7.0, 6.0)), ((-3.0, 4.0), (-2.0, 2.5)), ((4.0, 9.0), (-5.0, 5.0)), ((-1.5, 0.5), (1.0, 1.4))],
    ids=["everywhere and beyond", "usual counts", "large counts", "where gamma leaves the table"],
)
def test_the_table_has_the_errors_it_promises(log_mu, log_gamma):
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(2, 20_000, generator=generator, dtype=torch.float64)
    log_mu, log_gamma = (low + (high - low) * u for u, (low, high) in zip(points, (log_mu, log_gamma), strict=True))
    found, expected = both(log_mu, log_gamma)
    error = (found - expected).abs().amax(1)
    assert error[0] < 2e-6
    assert error[1:].max() < 1e-5


def test_slopes_are_those_of_the_value():
    log_mu, log_gamma = torch.tensor([1.3, -0.7, 5.0]).double(), torch.tensor([-0.4, 0.9, -2.0]).double()
    step = 0.01
    found = by_table(log_mu, log_gamma)
    by_mu = (by_table(log_mu + step, log_gamma).value - by_table(log_mu - step, log_gamma).value) / (2.0 * step)
    by_gamma = (by_table(log_mu, log_gamma + step).value - by_table(log_mu, log_gamma - step).value) / (2.0 * step)
    torch.testing.assert_close(found.by_log_mu, by_mu, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found.by_log_gamma, by_gamma, rtol=1e-3, atol=1e-4)


def test_rows_beyond_the_table_and_of_nan_leave_the_others_alone():
    log_mu = torch.tensor([1.0, float("nan"), 30.0, 2.0, float("-inf")]).double()
    log_gamma = torch.tensor([0.0, 0.0, 0.0, 3.0, 0.0]).double()
    found = torch.stack(by_table(log_mu, log_gamma))
    assert torch.equal(found[:, 0], torch.stack(by_table(log_mu[:1], log_gamma[:1])).squeeze(1))
    assert torch.equal(found[:, 3], torch.stack(exact(log_mu[3:4], log_gamma[3:4])).squeeze(1))
    assert found[:, 1].isnan().all()


@pytest.mark.parametrize("likelihood", ["double_poisson", "mixed"])
def test_losses_in_float32_are_those_in_float64(likelihood):
    head, generator = make_head(likelihood), torch.Generator().manual_seed(1)
    raw = torch.randn(2_000, head.n_raw, generator=generator, dtype=torch.float64)
    y = torch.poisson(raw[:, 0].exp().clamp(max=50.0), generator=generator)
    found = {}
    for dtype in (torch.float32, torch.float64):
        x = raw.float().to(dtype).requires_grad_()
        loss = head.loss(x, y)
        found[dtype] = loss.detach().double(), torch.autograd.grad(loss.sum(), x)[0].double()
    for rough, precise in zip(*found.values(), strict=True):
        torch.testing.assert_close(rough, precise, rtol=1e-5, atol=2e-5)
