"""Test counts of a known total, from data to intervals: recovery, coverage, saving, and refusals."""

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn import CountGLM, DDPNRegressor, DoubleBinomial, InputError
from ddpn.members.constant import Constant
from ddpn.members.member import Task
from ddpn.rows.count_rows import CountRows
from ddpn.rows.exposure import choose_exposure_unit

INTERCEPT, SLOPES = np.array([0.4, -1.5]), np.array([[0.8, -0.5], [0.0, 0.5]])


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two columns, counts of a Double Binomial whose logit p and log gamma are linear in them, and totals."""
    rng = np.random.default_rng(5)
    X, totals = rng.normal(size=(1600, 2)), rng.integers(30, 300, 1600)
    logit, log_gamma = INTERCEPT[:, None] + SLOPES @ X.T
    dist = DoubleBinomial(*(torch.tensor(x) for x in (totals, totals / (1 + np.exp(-logit)), np.exp(log_gamma))))
    return X, dist.sample(generator=torch.Generator().manual_seed(1)).numpy(), totals


@pytest.fixture(scope="module")
def glm(rows) -> CountGLM:
    X, y, totals = (part[:600] for part in rows)
    return CountGLM("double_binomial", dispersion="linear").fit(X, y, exposure=totals)


def test_a_glm_recovers_the_parameters(glm):
    estimates = np.r_[glm.intercept_[0], glm.coef_[0], glm.intercept_[1], glm.coef_[1]]
    truth = np.r_[INTERCEPT[0], SLOPES[0], INTERCEPT[1], SLOPES[1]]
    assert glm.converged_
    assert (np.abs(estimates - truth) < 3.0 * glm.standard_errors_).all()
    assert (glm.standard_errors_ < 0.2).all()


def test_intervals_cover_and_end_at_the_total(glm, rows):
    X, y, totals = (part[600:] for part in rows)
    low, high = glm.predict_interval(X, 0.9, exposure=totals).T
    assert 0.88 <= ((y >= low) & (y <= high)).mean() <= 0.92
    assert (high <= totals).all()


def simulate_chairs(size: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate hours, occupied chairs of twelve, and log probabilities of the truth (the README's simulation)."""
    rng = np.random.default_rng(seed)
    hour = rng.uniform(0.0, 24.0, size)
    day = 1.0 / (1.0 + np.exp(-1.5 * np.minimum(hour - 7.0, 19.0 - hour)))
    a, b = (share * 2.0 * 100.0**day for share in (0.06 + 0.88 * day, 0.94 - 0.88 * day))
    y = rng.binomial(12, rng.beta(a, b))
    return hour.reshape(-1, 1), y, stats.betabinom.logpmf(y, 12, a, b)


@pytest.mark.slow
def test_a_small_network_is_near_the_truth_and_never_above_twelve_chairs(tmp_path):
    X, y, _ = simulate_chairs(700, seed=0)
    model = DDPNRegressor(
        likelihood="double_binomial", head_options={"total": 12}, n_networks=1, hidden=(32, 32), epochs=20,
        numeric="piecewise", mix_with=["glm", "constant"], random_state=0, preset="default",
    ).fit(X, y)  # fmt: skip
    later, seen, log_p = simulate_chairs(2000, seed=1)
    assert model.nll(later, seen) < -log_p.mean() + 0.1
    assert model.predict_interval(later, 0.99).max() <= 12
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(DDPNRegressor.load(tmp_path / "model").predict(later[:5]), model.predict(later[:5]))


def test_bad_totals_are_reported(rows):
    X, y, totals = (part[:50] for part in rows)
    for model in (CountGLM(likelihood="double_binomial"), DDPNRegressor(likelihood="double_binomial")):
        with pytest.raises(InputError, match="needs the total of every row"):
            model.fit(X, y)
        wrong = totals.copy()
        wrong[5] = y[5] - 1
        with pytest.raises(InputError, match=f"y must be at most the total, got {y[5]:g} of {y[5] - 1:g} at row 5"):
            model.fit(X, y, exposure=wrong)


def test_totals_are_not_rescaled_and_the_constant_member_keeps_the_likelihood(rows):
    X, y, totals = (part[:200] for part in rows)
    sample = CountRows(X, y, exposure=totals.astype(float))
    head = DDPNRegressor(likelihood="double_binomial").build_options()[0]
    assert choose_exposure_unit(sample, head.exposure_is_total) == 1.0
    constant = Constant.fit(sample, None, seed=0, **Constant.choose_options(Task(head)))
    assert constant.likelihood == "double_binomial"
    again = Constant.from_state(constant.state())
    assert torch.equal(again.distribution(X, totals).mean, constant.distribution(X, totals).mean)
    assert isinstance(again.distribution(X, totals), DoubleBinomial)
