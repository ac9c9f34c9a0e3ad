"""Baselines against scipy and statsmodels, and kept in a folder."""

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm
import torch
from scipy import optimize, stats

from ddpn.distributions import NegativeBinomial, Poisson
from ddpn.errors import InputError
from ddpn.workflow.baselines import BASELINES, ConstantLaw, PoissonGLM, fit_baselines, load_baselines
from ddpn.workflow.sample import Sample

RNG = np.random.default_rng(4)
N = 400
EXPOSURE, WEIGHT = RNG.uniform(50.0, 400.0, N), RNG.integers(1, 4, N).astype(float)
X = pl.DataFrame(
    {
        "x": RNG.normal(size=N),
        "ward": RNG.choice(["A", "B", "C"], N).tolist(),
        "age": [None if RNG.random() < 0.1 else float(v) for v in RNG.normal(50, 9, N)],
    }
)
MEAN = EXPOSURE * np.exp(-4.0 + 0.5 * X["x"].to_numpy() + (X["ward"] == "A").to_numpy())
Y = RNG.poisson(MEAN).astype(float)
SAMPLE = Sample(X, Y, EXPOSURE, WEIGHT)


def test_a_constant_law_of_plain_counts_is_the_most_likely_negative_binomial():
    y = RNG.negative_binomial(2.0, 2.0 / 7.0, 2000).astype(float)
    found = ConstantLaw.fit(Sample(None, y, None, None))
    assert found.likelihood == "negative_binomial"

    def loss(theta: np.ndarray) -> float:
        size = np.exp(theta[1])
        return -stats.nbinom.logpmf(y, size, size / (size + np.exp(theta[0]))).sum()

    best = optimize.minimize(loss, [np.log(y.mean()), 0.0], method="BFGS").fun
    law = found.law(None, None, rows=len(y))
    assert isinstance(law, NegativeBinomial)
    assert -law.log_prob(torch.from_numpy(y)).sum().item() == pytest.approx(best, rel=1e-6)


def test_the_law_follows_the_spread():
    even = np.tile([4.0, 5.0, 6.0], 50)
    assert ConstantLaw.fit(Sample(None, even, None, None)).likelihood == "double_poisson"


def test_a_constant_poisson_has_the_rate_of_all_rows():
    y = RNG.poisson(EXPOSURE * 0.05).astype(float)
    found = ConstantLaw.fit(Sample(None, y, EXPOSURE, WEIGHT))
    rate = (WEIGHT @ y) / (WEIGHT @ EXPOSURE)
    mean = found.law(EXPOSURE, EXPOSURE).mean.numpy()
    assert (WEIGHT @ mean) / (WEIGHT @ EXPOSURE) == pytest.approx(rate, rel=0.02)
    assert mean / EXPOSURE == pytest.approx(np.full(N, mean[0] / EXPOSURE[0]), rel=0.02)


def test_the_glm_is_that_of_statsmodels():
    found = PoissonGLM.fit(SAMPLE).law(X, EXPOSURE).mean.numpy()
    age = X["age"].to_numpy()
    missing = np.isnan(age)
    columns = [np.ones(N), X["x"], np.where(missing, 0.0, age), missing, X["ward"] == "B", X["ward"] == "C"]
    design = np.column_stack([np.asarray(column, dtype=float) for column in columns])
    glm = sm.GLM(Y, design, sm.families.Poisson(), offset=np.log(EXPOSURE), freq_weights=WEIGHT).fit()
    # Apart from the trace of ridge.
    assert found == pytest.approx(glm.fittedvalues, rel=5e-3)


def test_all_are_saved_and_loaded(tmp_path):
    found = fit_baselines(SAMPLE, seed=0)
    assert list(found) == list(BASELINES)
    for baseline in found.values():
        baseline.save(tmp_path)
    again = load_baselines(tmp_path)
    for name, baseline in found.items():
        assert torch.equal(again[name].law(X, EXPOSURE).mean, baseline.law(X, EXPOSURE).mean), name
    assert not list(tmp_path.rglob("*.pkl"))


def test_new_rows_may_have_new_levels_and_gaps():
    new = pl.DataFrame({"x": [0.0, None], "ward": ["Z", None], "age": [1e6, None]})
    for baseline in fit_baselines(SAMPLE, seed=0).values():
        assert torch.isfinite(baseline.law(new, np.ones(2)).mean).all()


def test_a_damaged_constant_is_refused(tmp_path):
    ConstantLaw.fit(SAMPLE).save(tmp_path)
    (tmp_path / "constant.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(InputError, match="is damaged"):
        ConstantLaw.load(tmp_path)


def test_boosting_is_read_as_poisson():
    assert isinstance(fit_baselines(SAMPLE, seed=0)["poisson_boosting"].law(X, EXPOSURE), Poisson)
