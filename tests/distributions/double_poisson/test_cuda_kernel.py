"""The texts of the CUDA kernels, compiled for the host by whatever C++ compiler there is, against the golden rows."""

import ctypes
import shutil
import subprocess
from functools import cache

import numpy as np
import pytest
import torch

from ddpn.distributions import DoublePoisson
from ddpn.distributions.double_poisson import cuda_kernel, cuda_scores
from ddpn.distributions.double_poisson.normalizer import first_moments

_LOOP = """
#include <cmath>
using std::exp; using std::log; using std::log1p; using std::sqrt; using std::fmax; using std::fmin; using std::fabs;
using std::rint; using std::floor;
%s
extern "C" void rows(long n, const double* in, double* out) {
  for (long i = 0; i < n; ++i) %s<double>(%s);
}
"""
RANGES = [
    ((-14.0, 16.0), (-9.2, 9.2)),
    ((-2.0, 7.0), (-3.0, 3.0)),
    ((-6.0, 5.0), (-0.1, 0.1)),
    ((-1.0, 4.0), (-1.0, 2.5)),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compiles a kernel's last function, with so many vectors in and out."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler on this machine")

    def of(source, name, inputs, outputs):
        folder = tmp_path_factory.mktemp(name)
        given = [f"in[{inputs} * i + {j}]" for j in range(inputs)] + [
            f"out[{outputs} * i + {j}]" for j in range(outputs)
        ]
        (folder / "rows.cpp").write_text(_LOOP % (source, name, ", ".join(given)))
        library = folder / "rows.so"
        command = [compiler, "-O1", "-shared", "-fPIC", "-o", library, folder / "rows.cpp"]
        subprocess.run(command, check=True, timeout=120)
        call = ctypes.CDLL(str(library)).rows

        def rows(*vectors):
            given = np.ascontiguousarray(np.stack(vectors, axis=1), dtype=np.float64)
            out = np.empty((len(given), outputs))
            call(ctypes.c_long(len(given)), *(ctypes.c_void_p(x.ctypes.data) for x in (given, out)))
            return out.T

        return rows

    return of


@pytest.fixture(scope="module")
def moments(compiled):
    return compiled(cuda_kernel.source(), "double_poisson", 2, 3)


@pytest.fixture(scope="module")
def sides(compiled):
    return compiled(cuda_scores.sides_source(), "double_poisson_sides", 3, 2)


@pytest.fixture(scope="module")
def crps(compiled):
    return compiled(cuda_scores.crps_source(), "double_poisson_crps", 3, 2)


@pytest.fixture(scope="module")
def spread_of(compiled):
    return compiled(cuda_scores.spread_source(), "double_poisson_spread", 2, 2)


@cache
def rows_within(log_mu, log_gamma, rows=10_000):
    """mu, gamma, their distribution with its mean and standard deviation, and draws from a standard normal."""
    draw = np.random.default_rng(0)
    mu, gamma = (np.exp(draw.uniform(*ends, size=rows)) for ends in (log_mu, log_gamma))
    dist = DoublePoisson(torch.from_numpy(mu), torch.from_numpy(gamma))
    return mu, gamma, dist, dist.mean.numpy(), dist.variance.sqrt().numpy(), draw.normal(size=rows)


def drawn(log_mu, log_gamma, spread):
    """mu, gamma, their distribution, and counts so many standard deviations around its mean."""
    mu, gamma, dist, mean, deviation, noise = rows_within(log_mu, log_gamma)
    return mu, gamma, dist, np.floor(np.maximum(mean + (spread * deviation + 1.0) * noise, 0.0))


def test_golden_rows(moments, golden):
    mu, gamma = (np.ascontiguousarray(golden[name], dtype=np.float64) for name in ("mu", "gamma"))
    log_c, mean, _ = moments(mu, gamma)
    np.testing.assert_allclose(log_c, golden["log_c"], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(mean, golden["mean"], rtol=1e-7)


@pytest.mark.parametrize(("log_mu", "log_gamma"), RANGES)
def test_random_rows_equal_the_tensor_form(moments, log_mu, log_gamma):
    draw = np.random.default_rng(0)
    mu, gamma = (np.exp(draw.uniform(*ends, size=20_000)) for ends in (log_mu, log_gamma))
    got = moments(mu, gamma)
    expected = first_moments(torch.from_numpy(mu), torch.from_numpy(gamma))
    np.testing.assert_allclose(got[0], expected[0], rtol=2e-9, atol=2e-9)
    np.testing.assert_allclose(got[1], expected[1], rtol=2e-8)
    np.testing.assert_allclose(gamma * got[2], gamma * expected[2].numpy(), rtol=2e-8, atol=2e-9)


@pytest.mark.parametrize("spread", [1.0, 6.0])
@pytest.mark.parametrize(("log_mu", "log_gamma"), [*RANGES, ((4.0, 12.0), (-9.0, 1.0)), ((3.0, 5.0), (0.0, 6.0))])
def test_sides_and_crps_equal_the_tensor_form(sides, crps, log_mu, log_gamma, spread):
    mu, gamma, dist, y = drawn(log_mu, log_gamma, spread)
    counts = torch.from_numpy(y)
    for got, expected in zip(sides(y, mu, gamma), dist._flat().sides(counts), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-7, atol=1e-280)
    np.testing.assert_allclose(crps(y, mu, gamma)[0], dist.crps(counts), rtol=2e-7, atol=1e-280)


def test_golden_scores(sides, crps, golden):
    for i in range(1, 4):
        y, mu, gamma = (np.ascontiguousarray(golden[name], dtype=np.float64) for name in (f"y{i}", "mu", "gamma"))
        np.testing.assert_allclose(sides(y, mu, gamma)[0], golden[f"cdf{i}"], rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(crps(y, mu, gamma)[0], golden[f"crps{i}"], rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize(("log_mu", "log_gamma"), RANGES)
def test_mean_and_variance_equal_the_tensor_form(spread_of, log_mu, log_gamma):
    mu, gamma, dist, _ = drawn(log_mu, log_gamma, 1.0)
    mean, variance = spread_of(mu, gamma)
    np.testing.assert_allclose(mean, dist.mean, rtol=2e-8)
    np.testing.assert_allclose(variance, dist.variance, rtol=2e-8, atol=1e-280)


def test_kinds_of_work_fit_a_byte(compiled):
    order = compiled(cuda_scores.order_source(), "double_poisson_order", 3, 2)
    kinds = [order(y, mu, gamma)[0] for mu, gamma, _, y in (drawn(*ranges, 6.0) for ranges in RANGES)]
    assert all(((kind >= 0.0) & (kind < 128.0) & (kind == np.floor(kind))).all() for kind in kinds)
    assert len(np.unique(np.concatenate(kinds))) > 20
