"""Test scores and errors of points of every distribution against scipy, scoringrules and R."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Exponential, Normal

from ddpn.distributions import DoublePoisson, Mixture, NegativeBinomial, Poisson
from ddpn.distributions.mixture import ContinuousMixture
from ddpn.metrics import (
    absolute_error,
    crps,
    nll,
    point,
)
from ddpn.runtime.errors import DDPNError

MU = torch.tensor([0.4, 6.0, 30.0], dtype=torch.float64)
NORMAL, NORMALS = Normal(MU, MU.sqrt()), Mixture(Normal(MU.unsqueeze(-1) * torch.tensor([0.8, 1.3]).double(), 2.0))
Y = torch.tensor([1.0, 4.0, 41.0], dtype=torch.float64)


def test_scores_of_normals_are_those_of_scoringrules_and_scipy(scoringrules):
    loc, scale, y = MU.numpy(), MU.sqrt().numpy(), Y.numpy()
    np.testing.assert_allclose(crps(NORMAL, Y).numpy(), scoringrules.crps_normal(y, loc, scale), rtol=1e-12)
    np.testing.assert_allclose(nll(NORMAL, Y).numpy(), -stats.norm.logpdf(y, loc, scale), rtol=1e-12)


def test_scores_of_mixtures_of_normals_are_those_of_scoringrules_and_scipy(scoringrules):
    loc, scale = NORMALS.components.loc.numpy(), NORMALS.components.scale.numpy()
    np.testing.assert_allclose(crps(NORMALS, Y).numpy(), scoringrules.crps_mixnorm(Y.numpy(), loc, scale), rtol=1e-10)
    density = stats.norm.pdf(Y.numpy()[:, None], loc, scale).mean(-1)
    np.testing.assert_allclose(nll(NORMALS, Y).numpy(), -np.log(density), rtol=1e-12)


def test_nll_takes_any_torch_distribution():
    torch.testing.assert_close(nll(Exponential(2.0), torch.tensor(3.0)), torch.tensor(6.0 - math.log(2)))


def test_gradients_of_nll_flow_and_those_of_count_crps_are_refused():
    mu = torch.tensor([2.0, 5.0], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1.0, 9.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda m: nll(DoublePoisson(m, 0.7), y), (mu,))
    assert torch.autograd.gradcheck(lambda m: crps(Normal(m, 0.7), y), (mu,))
    with pytest.raises(DDPNError, match="no gradient"):
        crps(DoublePoisson(mu, 0.7), y).sum().backward()


def test_scores_are_those_of_surveillance(read_reference_rows):
    """Compare log score, ranked probability and squared error with R's surveillance package."""
    for name, rows in read_reference_rows("surveillance_scores.csv").items():
        mu, y = (torch.tensor([float(row[key]) for row in rows], dtype=torch.float64) for key in ("mu", "y"))
        dist = Poisson(mu)
        if name == "negative_binomial":
            dist = NegativeBinomial(mu, 1 / torch.tensor([float(row["size"]) for row in rows], dtype=torch.float64))
        pairs = {"logs": nll, "rps": crps, "ses": lambda dist, y: (point(dist, "mean") - y).square()}
        for key, score in pairs.items():
            expected = [float(row[key]) for row in rows]
            # Long windows are scored by quadrature, to 6e-8.
            rtol = 6e-8 if key == "rps" else 1e-11
            np.testing.assert_allclose(score(dist, y).numpy(), expected, rtol=rtol, err_msg=f"{name} {key}")


# Points ----------------------------------------------------------------------------------------------------------


def test_points_of_a_skewed_distribution_are_those_of_scipy():
    mu, r = np.array([0.3, 4.3, 301.0]), 2.0
    dist = NegativeBinomial(torch.from_numpy(mu), torch.tensor(1 / r, dtype=torch.float64))
    peer = stats.nbinom(r, r / (r + mu))
    np.testing.assert_allclose(point(dist, "mean").numpy(), peer.mean(), rtol=1e-12)
    np.testing.assert_array_equal(point(dist, "median").numpy(), peer.median())
    pmf = stats.nbinom.pmf(np.arange(2000)[:, None], r, r / (r + mu))
    np.testing.assert_array_equal(point(dist, "mode").numpy(), pmf.argmax(0))


def test_errors_are_those_of_the_point(dist, y):
    for statistic in ("mean", "median") if isinstance(dist, ContinuousMixture) else ("mean", "median", "mode"):
        gap = point(dist, statistic).numpy() - y.numpy()
        np.testing.assert_allclose(absolute_error(dist, y, statistic).numpy(), np.abs(gap), rtol=1e-14)


def test_the_default_is_the_point_that_makes_the_error_least():
    """Summed over the distribution itself, no other count has a smaller mean |z - y|."""
    dist = NegativeBinomial(torch.tensor(7.0, dtype=torch.float64), 0.8)
    z = torch.arange(400)
    pmf = stats.nbinom.pmf(z.numpy(), 1 / 0.8, 1 / (1 + 0.8 * 7.0))
    absolute, others = (pmf * absolute_error(dist, z).numpy()).sum(), np.arange(30)
    assert absolute == pytest.approx((pmf * np.abs(z.numpy() - others[:, None])).sum(1).min(), rel=1e-12)
    for statistic in ("mean", "mode"):
        assert (pmf * absolute_error(dist, z, statistic).numpy()).sum() > absolute
