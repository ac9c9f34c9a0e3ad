"""The text of the kernel for quantiles of mixtures, compiled for the host by whatever C++ compiler there is."""

import ctypes
import shutil
import subprocess
from functools import cache

import numpy as np
import pytest
import torch

from ddpn.distributions import DoublePoisson, Mixture, NegativeBinomial, Poisson, Truncated, cuda_mixtures
from ddpn.distributions.quantiles import LookedUp

_LOOP = """
#include <cmath>
using std::exp; using std::log; using std::log1p; using std::fabs; using std::fmin; using std::nan;
#define __global__
struct Place { int x; };
static Place blockIdx = {0}, blockDim = {1}, threadIdx = {0};
%s
extern "C" void rows(const void** in, int n, int levels) {
  for (threadIdx.x = 0; threadIdx.x < n + 2; ++threadIdx.x)
    mixture_quantiles(%s, n, levels);
}
"""
_TYPES = ["const double*"] * 10 + ["const long long*", "double*", "bool*", "double*", "bool*"]
LEVELS = torch.tensor([0.05, 0.5, 1e-9, 0.95, 1.0, 0.0], dtype=torch.float64)


@pytest.fixture(scope="module")
def on_host(tmp_path_factory):
    """Runs the kernel for the rows of a mixture and levels, in the order of the rows reversed."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler on this machine")

    @cache
    def compiled(source):
        folder = tmp_path_factory.mktemp("mixture")
        arguments = ", ".join(f"({kind})in[{i}]" for i, kind in enumerate(_TYPES))
        (folder / "rows.cpp").write_text(_LOOP % (source, arguments))
        library = folder / "rows.so"
        command = [compiler, "-O1", "-fpermissive", "-shared", "-fPIC", "-o", library, folder / "rows.cpp"]
        subprocess.run(command, check=True, timeout=120)
        return ctypes.CDLL(str(library))

    def of(mixture, q):
        given = cuda_mixtures.parameters(mixture)
        rows, levels = q.shape
        order = torch.arange(rows).flip(0)
        found = LookedUp(
            torch.zeros(rows, levels, dtype=torch.float64),
            torch.zeros(rows, levels, dtype=torch.bool),
            torch.zeros(rows, dtype=torch.float64),
            torch.zeros(rows, dtype=torch.bool),
        )
        kept = [*given, *cuda_mixtures.constants(torch.device("cpu")), q.contiguous(), order, *found]
        pointers = (ctypes.c_void_p * len(kept))(*(x.data_ptr() for x in kept))
        library = compiled(cuda_mixtures.source(len(given[0]), len(given[4])))
        library.rows(pointers, ctypes.c_int(rows), ctypes.c_int(levels))
        return found

    return of


def drawn(scale, rows=200):
    rng = np.random.default_rng(8)
    mu = torch.from_numpy(scale * np.exp(rng.normal(0.0, 0.5, (rows, 4))))
    gamma, alpha = torch.from_numpy(np.exp(rng.normal(0.0, 1.0, (2, rows, 4))))
    weights = torch.from_numpy(rng.dirichlet(np.ones(7), rows))
    weights[: rows // 4, 0] = 0.0
    parts = [DoublePoisson(mu, gamma), NegativeBinomial(mu[:, :2], alpha[:, :2]), Poisson(mu[:, :1])]
    return Mixture.concatenate(parts, weights / weights.sum(1, keepdim=True))


@pytest.mark.parametrize("scale", [0.05, 3.0, 60.0, 300.0])
def test_quantiles_and_modes_are_those_of_the_cpu(on_host, scale):
    mixture = drawn(scale)
    q = LEVELS.expand(len(mixture.mean), -1)
    found = on_host(mixture._family_rows(mixture.batch_shape), q)
    assert found.reached.float().mean() > 0.9
    expected = mixture.icdf(LEVELS.unsqueeze(1))
    for j, level in enumerate(LEVELS.tolist()):
        if 0.0 < level < 1.0:
            sure = found.sure[:, j] & found.reached
            assert sure.float().mean() > 0.9
            assert torch.equal(found.counts[sure, j], expected[j, sure])
        else:
            assert found.sure[:, j].all()
    has_mode = ~found.mode.isnan()
    assert has_mode.float().mean() > 0.9
    assert torch.equal(found.mode[has_mode], mixture.mode[has_mode])


def test_levels_right_at_a_step_of_the_cdf_are_not_sure(on_host):
    mixture = drawn(3.0)
    q = torch.stack([mixture.cdf(torch.tensor(float(y))) for y in (2, 4)], dim=1)
    found = on_host(mixture._family_rows(mixture.batch_shape), q)
    assert not found.sure.any()
    assert ((found.counts - torch.tensor([2.0, 4.0])).abs() <= 1.0).all()


def test_rows_that_reach_too_far_are_left_out(on_host):
    mu = torch.tensor([[3.0, 4.0], [9e3, 3.0], [50.0, 60.0]], dtype=torch.float64)
    mixture = Mixture(DoublePoisson(mu, torch.tensor([[1.0, 1.0], [1.0, 1.0], [1e5, 1.0]], dtype=torch.float64)))
    found = on_host(mixture._family_rows(mixture.batch_shape), LEVELS.expand(3, -1))
    assert found.reached.tolist() == [True, False, False]
    assert found.mode.isnan().tolist() == [False, True, True]


def test_other_families_have_no_kernel():
    mixture = Mixture.concatenate([Truncated(Poisson(torch.ones(2, 1)), low=1), Poisson(torch.ones(2, 1))])
    assert cuda_mixtures.parameters(mixture._family_rows(mixture.batch_shape)) is None
