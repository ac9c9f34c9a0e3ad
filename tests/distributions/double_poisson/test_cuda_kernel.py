"""The text of the CUDA kernel, compiled for the host by whatever C++ compiler there is, against the golden rows."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
import torch

from ddpn.distributions.double_poisson import cuda_kernel
from ddpn.distributions.double_poisson.normalizer import first_moments

_LOOP = """
#include <cmath>
using std::exp; using std::log; using std::log1p; using std::sqrt; using std::fmax; using std::rint; using std::floor;
%s
extern "C" void rows(long n, const double* mu, const double* gamma, double* out) {
  for (long i = 0; i < n; ++i) double_poisson<double>(mu[i], gamma[i], out[3 * i], out[3 * i + 1], out[3 * i + 2]);
}
"""


@pytest.fixture(scope="module")
def moments(tmp_path_factory):
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler on this machine")
    folder = tmp_path_factory.mktemp("fused")
    (folder / "rows.cpp").write_text(_LOOP % cuda_kernel.source())
    library = folder / "rows.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, folder / "rows.cpp"], check=True, timeout=120)
    call = ctypes.CDLL(str(library)).rows

    def of(mu, gamma):
        out = np.empty((len(mu), 3))
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in (mu, gamma, out)]
        call(ctypes.c_long(len(mu)), *pointers)
        return out.T

    return of


def test_golden_rows(moments, golden):
    mu, gamma = (np.ascontiguousarray(golden[name], dtype=np.float64) for name in ("mu", "gamma"))
    log_c, mean, _ = moments(mu, gamma)
    np.testing.assert_allclose(log_c, golden["log_c"], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(mean, golden["mean"], rtol=1e-7)


@pytest.mark.parametrize(
    ("log_mu", "log_gamma"),
    [((-14.0, 16.0), (-9.2, 9.2)), ((-2.0, 7.0), (-3.0, 3.0)), ((-6.0, 5.0), (-0.1, 0.1)), ((-1.0, 4.0), (-1.0, 2.5))],
)
def test_random_rows_equal_the_tensor_form(moments, log_mu, log_gamma):
    draw = np.random.default_rng(0)
    mu, gamma = (np.exp(draw.uniform(*ends, size=20_000)) for ends in (log_mu, log_gamma))
    got = moments(mu, gamma)
    expected = first_moments(torch.from_numpy(mu), torch.from_numpy(gamma))
    np.testing.assert_allclose(got[0], expected[0], rtol=2e-9, atol=2e-9)
    np.testing.assert_allclose(got[1], expected[1], rtol=2e-8)
    np.testing.assert_allclose(gamma * got[2], gamma * expected[2].numpy(), rtol=2e-8, atol=2e-9)
