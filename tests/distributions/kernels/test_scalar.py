"""Test functions of one number that kernels share against the standard library."""

import math

import numpy as np

from ddpn.distributions.kernels.compiling import compile_kernel
from ddpn.distributions.kernels.scalar import exponential


def test_the_exponential_of_a_number_is_that_of_math():
    x = np.concatenate([np.linspace(-708.0, 650.0, 20_001), np.random.default_rng(3).uniform(-60.0, 1.0, 20_000)])
    np.testing.assert_allclose([exponential(value) for value in x], [math.exp(value) for value in x], rtol=4e-16)
    assert exponential(-730.0) == math.exp(-730.0) > 0.0
    assert exponential(-746.0) == exponential(-math.inf) == 0.0
    assert exponential(0.0) == 1.0


def compute_exponentials(x, results):
    for i in range(len(x)):
        results[i] = exponential(x[i])


def test_exponentials_of_several_numbers_are_those_of_numpy():
    x = np.linspace(-750.0, 500.0, 10_001)
    results = np.empty_like(x)
    compile_kernel(compute_exponentials)(x, results)
    np.testing.assert_allclose(results, np.exp(x), rtol=4e-16, atol=5e-324)  # down to the smallest number
