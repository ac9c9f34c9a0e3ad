"""Test kernels on disk: an edited constant makes a new kernel, and an unchanged file is read again."""

import importlib
import sys
import time
from typing import NamedTuple

import numba
import numpy as np
import pytest

from ddpn.distributions.families.negative_binomial import NegativeBinomialFamily
from ddpn.distributions.families.poisson import PoissonFamily
from ddpn.distributions.kernels import compiling
from ddpn.distributions.kernels.compiling import compile_kernel, read_clock_without_compiling
from ddpn.distributions.kernels.loops import compute_normalised_log_probs

FILE = """
from math import inf, log, log1p
from typing import NamedTuple

SHIFT = 0.0


def shift(value):
    return value + SHIFT


class Weights(NamedTuple):
    mean: float

    @classmethod
    def prepare(cls, a, b, c):
        return Weights(a)

    def is_normalised(self):
        return True

    def log_weight(self, y):
        return shift(y * log(self.mean) - (y + 1.0) * log1p(self.mean))

    def score(self, y):
        return y / self.mean - (y + 1.0) / (1.0 + self.mean), 0.0, 0.0

    def estimate_shape(self):
        return 0.0, self.mean + 1.0, inf
"""
NAME = "family_that_a_test_edits"


@pytest.fixture
def compile_text(tmp_path, monkeypatch):
    """Return a function that imports this text as a new module and compiles `compute_normalised_log_probs` for it."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)

    def load_kernel(text):
        (tmp_path / f"{NAME}.py").write_text(text)
        sys.modules.pop(NAME, None)
        importlib.invalidate_caches()
        return compile_kernel(compute_normalised_log_probs, importlib.import_module(NAME).Weights)

    yield load_kernel
    sys.modules.pop(NAME, None)


def run_kernel(kernel):
    results = np.empty((4, 1))
    kernel(np.array([[2.0], [3.0], [0.0], [0.0]]), results)
    return results[0, 0]


def test_an_edited_constant_makes_a_new_kernel_and_an_unchanged_file_does_not(compile_text):
    expected = 2.0 * np.log(3.0) - 3.0 * np.log(4.0)
    assert run_kernel(compile_text(FILE)) == pytest.approx(expected, rel=1e-14)
    edited = compile_text(FILE.replace("SHIFT = 0.0", "SHIFT = -1.0"))
    assert run_kernel(edited) == pytest.approx(expected - 1.0, rel=1e-14)
    again = compile_text(FILE)
    assert run_kernel(again) == pytest.approx(expected, rel=1e-14)
    assert sum(edited.stats.cache_hits.values()) == 0
    assert sum(again.stats.cache_hits.values()) == 1


def test_the_clock_of_a_fit_stands_still_while_a_kernel_is_compiled(compile_text):
    kernel = compile_text(FILE.replace("SHIFT = 0.0", "SHIFT = -2.0"))
    times = [(time.perf_counter(), read_clock_without_compiling()) for _ in (run_kernel(kernel), run_kernel(kernel))]
    start, clock_start = time.perf_counter(), read_clock_without_compiling()
    run_kernel(compile_text(FILE.replace("SHIFT = 0.0", "SHIFT = -3.0")))
    seconds, counted = time.perf_counter() - start, read_clock_without_compiling() - clock_start
    assert counted < 0.5 * seconds, "most of the time is spent compiling"
    (first, first_clock), (second, second_clock) = times
    assert second_clock - first_clock == pytest.approx(second - first, abs=1e-3), "nothing is compiled in between"


def test_the_compilation_of_a_users_family_is_announced_once_with_its_name(compile_text, monkeypatch, capsys):
    monkeypatch.setattr(compiling, "announced", set())
    sentence = "Compiling numerical kernels of Weights, once per version of this family ...\n"
    for text, shown in ((FILE, sentence), (FILE.replace("SHIFT = 0.0", "SHIFT = -1.0"), "")):
        run_kernel(compile_text(text))
        assert capsys.readouterr().err == shown
    monkeypatch.setattr(compiling, "announced", set())
    compile_text(FILE)
    assert not capsys.readouterr().err, "it is on disk"


def test_the_kernels_of_ddpn_are_announced_once_per_installation(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "announced", set())
    for family in (PoissonFamily, NegativeBinomialFamily):
        compile_kernel.__wrapped__(compute_normalised_log_probs, family)
    assert capsys.readouterr().err == f"{compiling.ANNOUNCEMENT}\n"


def test_a_family_without_a_method_is_refused_by_name():
    class Incomplete(NamedTuple):
        mean: float

        @classmethod
        def prepare(cls, a, b, c):
            return Incomplete(a)

        def is_normalised(self):
            return True

    with pytest.raises(TypeError, match=r"family Incomplete must .* it lacks log_weight, score, estimate_shape"):
        compile_kernel(compute_normalised_log_probs, Incomplete)
