"""Test bounded, censored and zero-rich counts: truth is recovered, intervals cover, predictions stay in range."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from sklearn.metrics import d2_tweedie_score
from statsmodels.discrete.count_model import ZeroInflatedPoisson
from statsmodels.discrete.truncated_model import TruncatedLFPoisson
from statsmodels.tools.numdiff import approx_hess

from ddpn import DDPNRegressor
from ddpn.distributions import Censored, DoubleBinomial, DoublePoisson, Hurdle, Poisson, Truncated, ZeroInflated
from ddpn.estimators import CountGLM
from ddpn.runtime.errors import ConfigError, InputError

RNG = np.random.default_rng(21)
N, NEW = 1200, 4000
X = RNG.normal(size=(N + NEW, 2))
TRAIN, TEST = X[:N], X[N:]
TRUTH = np.array([0.4, 0.5, -0.3])  # intercept and coefficients of log mu
MU = torch.from_numpy(np.exp(TRUTH[0] + X @ TRUTH[1:]))
DOUBLE = TRUTH + np.array([np.log(2), 0.0, 0.0])  # of twice the mean
BEDS = RNG.integers(1, 7, N + NEW).astype(float)


def draw_counts(dist, seed: int = 0) -> np.ndarray:
    return dist.sample(generator=torch.Generator().manual_seed(seed)).numpy().astype(float)


Y = draw_counts(Poisson(MU))
NARROW = draw_counts(DoublePoisson(2 * MU, 2.5))
FULL = draw_counts(Truncated(Poisson(MU), 0, torch.from_numpy(BEDS)))


def get_estimates(model: CountGLM) -> np.ndarray:
    """Get the coefficients of log mu."""
    return np.r_[model.intercept_[0], model.coef_[0]]


def count_standard_errors(model: CountGLM, truth: np.ndarray = TRUTH) -> np.ndarray:
    """Return distances from the truth in standard errors."""
    return np.abs(get_estimates(model) - truth) / model.standard_errors_[:3]


# Recovery ------------------------------------------------------------------------------------------------------------


def test_positive_poisson_counts_are_those_of_statsmodels():
    kept = Y[:N] > 0
    model = CountGLM(likelihood="poisson", lower=1, tol=1e-9).fit(TRAIN[kept], Y[:N][kept])
    peer = TruncatedLFPoisson(Y[:N][kept], sm.add_constant(TRAIN[kept]), truncation=0)
    peer = peer.fit(disp=0, method="bfgs", maxiter=200, gtol=1e-8)
    np.testing.assert_allclose(get_estimates(model), peer.params, rtol=1e-5)
    np.testing.assert_allclose(model.standard_errors_, peer.bse, rtol=1e-4)
    assert model.loglik_ == pytest.approx(peer.llf, rel=1e-9)
    assert count_standard_errors(model).max() < 3.5


def test_models_of_zeros_are_those_of_statsmodels():
    """A hurdle model is a logistic regression on "is 0" and a model of positive counts, fitted together."""
    y, exog = draw_counts(ZeroInflated(Poisson(2 * MU), 0.3), seed=1)[:N], sm.add_constant(TRAIN)
    inflated = CountGLM(likelihood="zero_inflated_poisson", tol=1e-9).fit(TRAIN, y)
    peer = ZeroInflatedPoisson(y, exog, exog_infl=exog)
    peer_fit = peer.fit(disp=0, method="bfgs", maxiter=500, gtol=1e-8)
    coefficients = np.c_[inflated.intercept_, inflated.coef_]
    np.testing.assert_allclose(np.r_[coefficients[1], coefficients[0]], peer_fit.params, rtol=1e-4, atol=1e-5)
    assert inflated.loglik_ == pytest.approx(peer_fit.llf, rel=1e-9)
    # Of the log-likelihood itself: the peer's own standard errors are up to 5% smaller.
    spread = np.sqrt(np.diag(np.linalg.inv(-approx_hess(peer_fit.params, peer.loglike))))
    np.testing.assert_allclose(np.roll(inflated.standard_errors_, 3), spread, rtol=1e-3)
    hurdle = CountGLM(likelihood="hurdle_poisson", tol=1e-9).fit(TRAIN, y)
    zero = sm.Logit(y == 0, exog).fit(disp=0, tol=1e-10)
    positive = TruncatedLFPoisson(y[y > 0], exog[y > 0], truncation=0).fit(disp=0, method="bfgs", gtol=1e-8)
    np.testing.assert_allclose(np.c_[hurdle.intercept_, hurdle.coef_], [positive.params, zero.params], rtol=1e-4)
    np.testing.assert_allclose(hurdle.standard_errors_, np.r_[positive.bse, zero.bse], rtol=1e-3)
    assert hurdle.loglik_ == pytest.approx(zero.llf + positive.llf, rel=1e-9)


@pytest.fixture(scope="module")
def glm_with_upper_bounds() -> CountGLM:
    """Poisson counts that are truncated at the beds of each row."""
    return CountGLM(likelihood="poisson").fit(TRAIN, FULL[:N], upper=BEDS[:N])


def test_upper_bounds_per_row_leave_coefficients_unbiased(glm_with_upper_bounds):
    assert count_standard_errors(glm_with_upper_bounds).max() < 3.5
    assert (
        count_standard_errors(CountGLM(likelihood="poisson").fit(TRAIN, FULL[:N])).max() > 5
    )  # without them: attenuated


#: At most this much of each row is recorded, whatever its count: limits that do not depend on the counts.
RECORDED = np.random.default_rng(3).integers(1, 6, N).astype(float)


@pytest.mark.parametrize(
    ("likelihood", "y", "limit", "truth"),
    [
        ("poisson", Y, 3, TRUTH),
        ("poisson", Y, RECORDED, TRUTH),
        ("double_poisson", NARROW, 5, DOUBLE),
        ("double_poisson", NARROW, RECORDED + 2, DOUBLE),
    ],
    ids=["Poisson", "Poisson, random limits", "Double Poisson", "Double Poisson, random limits"],
)
def test_the_truth_is_recovered_from_censored_counts(likelihood, y, limit, truth):
    options = {"likelihood": likelihood, "dispersion": "constant"}
    y = y[:N]
    recorded, flags = np.minimum(y, limit), y >= limit
    assert flags.mean() > 0.2
    model = CountGLM(**options).fit(TRAIN, recorded, censored=flags)
    assert count_standard_errors(model, truth).max() < 3.5
    assert count_standard_errors(CountGLM(**options).fit(TRAIN, recorded), truth).max() > 5  # as if they were exact
    if likelihood == "double_poisson":
        assert abs(model.intercept_[1] - np.log(2.5)) < 3.5 * model.standard_errors_[3]
    if np.isscalar(limit):  # one limit for all rows: the same model, fitted to the full counts
        same = CountGLM(**options, censored_above=limit).fit(TRAIN, y)
        np.testing.assert_allclose(get_estimates(same), get_estimates(model), rtol=1e-6)
        assert same.nll(TRAIN, y) == pytest.approx(model.nll(TRAIN, recorded, censored=flags), rel=1e-6)


# Coverage ------------------------------------------------------------------------------------------------------------

SHARE = torch.from_numpy(0.2 + 0.3 / (1 + np.exp(-X[:, 1])))
OPEN = 4 * MU
CASES = {
    "truncated": ({"lower": 1, "upper": 9}, Truncated(Poisson(OPEN), 1, 9)),
    "zero-inflated": ({"likelihood": "zero_inflated_poisson"}, ZeroInflated(Poisson(OPEN), SHARE)),
    "hurdle": ({"likelihood": "hurdle_poisson"}, Hurdle(Poisson(OPEN), SHARE)),
    "Double Binomial": (
        {"likelihood": "double_binomial", "upper": 40, "dispersion": "linear"},
        DoubleBinomial(torch.tensor(40.0).double(), 40 * SHARE, torch.exp(0.3 * torch.from_numpy(X[:, 0]) - 0.7)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_calibrated_intervals_cover_what_their_own_probabilities_say(name):
    """Cover 2,200 new rows by models that have the likelihood of the truth."""
    options, truth = CASES[name]
    y = draw_counts(truth, seed=5)
    calibration_rows = slice(N, N + 1800)
    model = (
        CountGLM(**{"likelihood": "poisson", **options})
        .fit(TRAIN, y[:N])
        .fit_intervals(X[calibration_rows], y[calibration_rows])
    )
    new = slice(N + 1800, None)
    intervals, probability = model.predict_interval(X[new], coverage=0.9, return_probability=True)
    coverage = ((intervals[:, 0] <= y[new]) & (y[new] <= intervals[:, 1])).mean()
    assert probability.min() >= 0.9 - 1e-9
    assert coverage == pytest.approx(probability.mean(), abs=0.02)
    best = truth.rows(torch.arange(N + NEW)[new])
    assert model.crps(X[new], y[new]) <= 1.01 * best.crps(torch.from_numpy(y[new])).mean().item()


def test_calibrated_intervals_of_censored_counts_cover_as_those_of_the_truth():
    """Compare with the counts themselves, also above the limit, where calibration rows do not tell how far they lie."""
    truth = Poisson(OPEN)
    y = draw_counts(truth, seed=5)
    model = CountGLM(likelihood="poisson", censored_above=8).fit(TRAIN, y[:N])
    model.fit_intervals(X[N : N + 1800], y[N : N + 1800])
    new = slice(N + 1800, None)
    best, counts = truth.rows(torch.arange(N + NEW)[new]), y[new]
    assert (counts > 8).mean() > 0.1
    low, high = model.predict_interval(X[new], coverage=0.9).T
    true_low, true_high = (end.numpy() for end in best.interval(0.9))
    coverage = ((low <= counts) & (counts <= high)).mean()
    true_coverage = ((true_low <= counts) & (counts <= true_high)).mean()
    assert coverage >= 0.88
    assert coverage == pytest.approx(true_coverage, abs=0.02)
    recorded = Censored(best, 8).crps(torch.from_numpy(np.minimum(counts, 8))).mean().item()
    assert model.crps(X[new], counts) <= 1.01 * recorded


def test_two_kinds_of_rows_are_told_apart():
    rng = np.random.default_rng(2)
    y = np.where(rng.random(600) < 0.4, rng.poisson(2.0, 600), rng.poisson(15.0, 600))
    model = DDPNRegressor(
        likelihood=("poisson", "poisson"), n_networks=1, hidden=(4,), epochs=25, random_state=0, preset="default"
    ).fit(X[:600], y)
    dist = model.predict_distribution(X[:100]).distribution
    means = dist.components.components.mean.reshape(100, 2).sort(dim=1).values.mean(0)
    torch.testing.assert_close(means.double(), torch.tensor([2.0, 15.0]).double(), rtol=0.15, atol=0.0)


# Ranges --------------------------------------------------------------------------------------------------------------


def test_nothing_is_predicted_outside_of_the_bounds(glm_with_upper_bounds):
    new, beds = TEST[:200], BEDS[N : N + 200]
    total = np.zeros(200)
    for count in range(8):
        p = glm_with_upper_bounds.predict_distribution(new, upper=beds).pmf(count)
        assert (p[beds < count] == 0).all()
        total += p
    np.testing.assert_allclose(total, 1.0, rtol=1e-9)
    assert (glm_with_upper_bounds.predict_interval(new, coverage=0.999, upper=beds)[:, 1] <= beds).all()
    for statistic in ("mean", "median", "mode"):
        assert (glm_with_upper_bounds.predict(new, statistic=statistic, upper=beds) <= beds).all()
    assert (glm_with_upper_bounds.predict_quantiles(new, 1 - 1e-9, upper=beds)[:, 0] <= beds).all()
    assert glm_with_upper_bounds.predict(new[:1], upper=[0]).tolist() == [0.0]  # no beds, no patients


def test_a_mixture_with_bounds_has_no_mass_outside(quick):
    y = np.clip(Y[:300], 1, 5)
    model = quick(lower=1, upper=5, mix_with=["glm"], likelihood="poisson").fit(X[:300], y)
    p = model.predict_distribution(X[:40]).pmf(range(8))
    assert (p[:, [0, 6, 7]] == 0).all()
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-6)


def test_saved_models_keep_their_range(tmp_path, glm_with_upper_bounds):
    glm_with_upper_bounds.save(tmp_path / "beds")
    loaded = CountGLM.load(tmp_path / "beds")
    assert loaded.predictor_.counts == glm_with_upper_bounds.predictor_.counts
    np.testing.assert_array_equal(loaded.predict(TEST, upper=3), glm_with_upper_bounds.predict(TEST, upper=3))
    both = CountGLM(likelihood="poisson", lower=1, upper=9, censored_above=6).fit(TRAIN, np.clip(Y[:N], 1, 9))
    both.save(tmp_path / "both")
    loaded = CountGLM.load(tmp_path / "both")
    assert (loaded.lower, loaded.upper, loaded.censored_above) == (1, 9, 6)
    new = np.clip(Y[N:], 1, 9)
    assert new.max() > 6
    assert loaded.nll(TEST, new) == both.nll(TEST, np.minimum(new, 6))


def test_bounds_need_a_likelihood_of_counts(glm_with_upper_bounds):
    with pytest.raises(InputError, match="upper is missing"):
        glm_with_upper_bounds.crps(TEST, FULL[N:])
    for options in ({"upper": 9}, {"lower": 1}, {"censored_above": 4}):
        with pytest.raises(ConfigError, match='need a likelihood of counts, got "gaussian"'):
            CountGLM(likelihood="gaussian", **options).fit(TRAIN, Y[:N])


def test_explained_deviance_compares_what_is_recorded():
    """Means of the recorded counts explain them better than the means of the counts themselves."""
    model = CountGLM(likelihood="poisson", censored_above=2).fit(TRAIN, Y[:N])
    recorded, dist = np.minimum(Y[N:], 2), model.predict_distribution(TEST).distribution
    score = model.score(TEST, Y[N:])
    assert score == pytest.approx(d2_tweedie_score(recorded, Censored(dist, 2).mean.numpy(), power=1))
    assert score > d2_tweedie_score(recorded, model.predict(TEST), power=1) + 0.05
    assert model.predict(TEST).max() > 2  # predictions are of the counts themselves
