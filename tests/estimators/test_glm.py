"""CountGLM against statsmodels, scikit-learn, least squares and simulation."""

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import PoissonRegressor
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ddpn.datasets import load
from ddpn.distributions import DoublePoisson
from ddpn.errors import ConfigError, InputError
from ddpn.estimators import CountGLM, CountRegressor

RNG = np.random.default_rng(11)
N = 600
X = RNG.normal(size=(N, 3)) * [1.0, 5.0, 0.1] + [0.0, 3.0, 10.0]
RATE = np.exp(1.0 + 0.5 * X[:, 0] - 0.1 * X[:, 1] + 0.3 * (X[:, 2] - 10.0))
EXPOSURE = RNG.uniform(0.5, 2.0, N)
WEIGHT = RNG.integers(0, 4, N)
Y = RNG.poisson(RATE * EXPOSURE)
WIDE = RNG.negative_binomial(2, 1.0 / (1.0 + RATE * EXPOSURE / 2))


def all_of(model):
    return np.r_[model.intercept_[0], model.coef_[0]]


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weights"])
@pytest.mark.parametrize("exposure", [None, EXPOSURE], ids=["", "exposure"])
def test_a_poisson_model_is_that_of_statsmodels(weight, exposure):
    model = CountGLM(likelihood="poisson").fit(X, Y, sample_weight=weight, exposure=exposure)
    family = sm.families.Poisson()
    peer = sm.GLM(Y, sm.add_constant(X), family, exposure=exposure, freq_weights=weight).fit(tol=1e-13)
    np.testing.assert_allclose(all_of(model), peer.params, rtol=1e-6)
    np.testing.assert_allclose(model.standard_errors_, peer.bse, rtol=1e-6)
    np.testing.assert_allclose(model.covariance_, peer.cov_params(), rtol=1e-6)
    assert model.loglik_ == pytest.approx(peer.llf, rel=1e-6)
    assert model.aic_ == pytest.approx(peer.aic, rel=1e-6)
    np.testing.assert_allclose(model.predict(X, exposure), peer.fittedvalues, rtol=1e-6)
    table = model.coefficient_table()
    np.testing.assert_allclose(table.p, peer.pvalues, rtol=1e-4, atol=1e-300)
    np.testing.assert_allclose(np.c_[table.low, table.high], peer.conf_int(), rtol=1e-6)


@pytest.mark.parametrize("exposure", [None, EXPOSURE], ids=["", "exposure"])
def test_a_negative_binomial_model_is_that_of_statsmodels(exposure):
    model = CountGLM(likelihood="negative_binomial", dispersion="constant").fit(X, WIDE, exposure=exposure)
    peer = sm.NegativeBinomial(WIDE, sm.add_constant(X), exposure=exposure)
    peer = peer.fit(method="newton", tol=1e-12, maxiter=200, disp=0)
    np.testing.assert_allclose(all_of(model), peer.params[:-1], rtol=1e-5)
    np.testing.assert_allclose(model.standard_errors_[:-1], peer.bse[:-1], rtol=1e-5)
    shape = np.exp(model.intercept_[1])
    np.testing.assert_allclose([shape, shape * model.standard_errors_[-1]], [peer.params[-1], peer.bse[-1]], rtol=1e-5)
    assert model.loglik_ == pytest.approx(peer.llf, rel=1e-9)
    assert model.bic_ == pytest.approx(peer.bic, rel=1e-9)


@pytest.mark.parametrize("likelihood", ["gaussian", "natural_gaussian"])
def test_a_gaussian_model_with_one_variance_is_least_squares(likelihood):
    model = CountGLM(likelihood=likelihood, dispersion="constant").fit(X, Y)
    peer = sm.OLS(Y, sm.add_constant(X)).fit()
    np.testing.assert_allclose(model.predict(X), peer.fittedvalues, rtol=1e-6)
    assert model.loglik_ == pytest.approx(peer.llf, rel=1e-9)
    np.testing.assert_allclose(model.predict_distribution(X).variance, peer.ssr / N, rtol=1e-6)


def test_a_penalty_is_that_of_scikit_learn_for_standardised_columns():
    model = CountGLM(likelihood="poisson", alpha=0.3).fit(X, Y)
    scaled = StandardScaler().fit(X)
    peer = PoissonRegressor(alpha=0.3, tol=1e-10, solver="newton-cholesky").fit(scaled.transform(X), Y)
    np.testing.assert_allclose(model.coef_[0] * scaled.scale_, peer.coef_, rtol=1e-6)
    np.testing.assert_allclose(model.predict(X), peer.predict(scaled.transform(X)), rtol=1e-6)


def simulated(rows, seed):
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(-1, 1, size=(rows, 1))
    mu, gamma = np.exp(2.0 + 0.5 * inputs[:, 0]), np.exp(0.3 - 0.6 * inputs[:, 0])
    law = DoublePoisson(torch.from_numpy(mu), torch.from_numpy(gamma))
    return inputs, law.icdf(torch.from_numpy(rng.uniform(size=rows))).numpy()


def test_double_poisson_coefficients_scatter_as_their_standard_errors_say():
    truth = np.array([2.0, 0.5, 0.3, -0.6])
    fits = [CountGLM().fit(*simulated(400, seed)) for seed in range(60)]
    assert all(fit.converged_ and fit.gradient_norm_ <= 1e-6 for fit in fits)
    found = np.array([fit.coefficient_table().estimate for fit in fits])
    errors = np.array([fit.standard_errors_ for fit in fits])
    z = (found - truth) / errors
    # 60 z's: their standard deviation is 1 +- 0.09, their mean, but for a small bias, 0 +- 0.13.
    assert (np.abs(z.std(0) - 1.0) < 0.3).all()
    assert (np.abs(z.mean(0)) < 0.5).all()


def test_a_double_poisson_model_of_real_counts_is_found():
    data = load("rand_health")
    model = CountGLM().fit(np.asarray(data.X), data.y)
    assert model.converged_
    assert model.gradient_norm_ <= 1e-6
    poisson = CountGLM(likelihood="poisson").fit(np.asarray(data.X), data.y)
    assert model.aic_ < poisson.aic_


@pytest.mark.parametrize("dispersion", ["linear", "constant"])
def test_length_of_stay(data_folder, monkeypatch, dispersion):
    monkeypatch.setenv("DDPN_DATA", str(data_folder))
    data = load("length_of_stay")
    table, y = data.part("train")
    model = CountGLM(dispersion=dispersion).fit(table.to_pandas(), y)
    assert model.converged_
    assert model.gradient_norm_ <= 1e-6
    assert "rcount = 1" in model.coefficient_table().feature
    assert len(model.standard_errors_) == {"linear": 2 * 38, "constant": 38 + 1}[dispersion]


def test_weights_are_repetitions_and_exposure_is_a_scale():
    kept = np.repeat(np.arange(N), WEIGHT)
    weighted = CountGLM().fit(X, Y, sample_weight=WEIGHT, exposure=EXPOSURE)
    repeated = CountGLM().fit(X[kept], Y[kept], exposure=EXPOSURE[kept])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-9)
    np.testing.assert_allclose(weighted.covariance_, repeated.covariance_, rtol=1e-7)
    assert weighted.bic_ == pytest.approx(repeated.bic_)
    once, twice = (weighted.predict_distribution(X, scale * EXPOSURE).components.mu for scale in (1.0, 2.0))
    np.testing.assert_allclose(twice, 2.0 * once, rtol=1e-12)
    with pytest.raises(InputError, match="exposure must be given as in fit, got None"):
        weighted.predict(X)


def test_constant_dispersion_is_an_intercept():
    model = CountGLM(dispersion="constant").fit(X, Y)
    assert (model.coef_[1] == 0.0).all()
    assert model.coefficient_table().parameter == ("log mu",) * 4 + ("log gamma",)
    gamma = model.predict_distribution(X).components.gamma
    assert gamma.unique().numel() == 1
    linear = CountGLM().fit(X, Y)
    assert linear.loglik_ > model.loglik_


def test_frames_sparse_matrices_and_arrays_agree():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    expected = CountGLM().fit(X, Y)
    for table in (frame, sparse.csr_matrix(X)):
        np.testing.assert_allclose(CountGLM().fit(table, Y).coef_, expected.coef_, rtol=1e-8)
    model = CountGLM().fit(frame.assign(ward=np.where(X[:, 0] > 0, "B", "A")), Y)
    assert model.coefficient_table().feature[:5] == ("(intercept)", "a", "b", "c", "ward = B")


def test_predictions_are_those_of_one_member():
    model = CountGLM().fit(X, Y)
    np.testing.assert_allclose(model.predict(X[:7]), model.predict(X)[:7], rtol=1e-13)
    assert (model.predict_uncertainty(X)["epistemic"] == 0.0).all()
    assert model.predict_interval(X).shape == (N, 2)
    assert 0.0 < model.score(X, Y) < 1.0
    assert model.nll(X, Y) == pytest.approx(-model.loglik_ / N)


def test_a_saved_model_predicts_the_same_bits(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(ward=np.where(X[:, 0] > 0, "B", "A"))
    model = CountGLM(dispersion="constant", alpha=0.1).fit(frame, Y, exposure=EXPOSURE)
    model.save(tmp_path / "model")
    again = CountGLM.load(tmp_path / "model")
    assert again.predict(frame, EXPOSURE).tolist() == model.predict(frame, EXPOSURE).tolist()
    assert str(again.coefficient_table()) == str(model.coefficient_table())
    assert again.get_params() == model.get_params()
    assert (again.aic_, again.n_iter_, again.converged_) == (model.aic_, model.n_iter_, model.converged_)
    with pytest.raises(InputError, match="X must have the columns of fit"):
        again.predict(frame.drop(columns="a"), EXPOSURE)
    with pytest.raises(InputError, match=r"must hold a saved CountRegressor, got .* with a CountGLM\. Use CountGLM"):
        CountRegressor.load(tmp_path / "model")


@pytest.mark.filterwarnings("ignore")  # what the checks fit, often a handful of rows, has no maximum
@parametrize_with_checks([CountGLM(likelihood=name, fractional="round") for name in ("double_poisson", "poisson")])
def test_scikit_learn(estimator, check):
    check(estimator)


def test_it_is_an_estimator_among_others():
    model = CountGLM(likelihood="poisson")
    assert clone(model).get_params() == model.get_params()
    assert cross_val_score(model, X, Y, cv=3).mean() > 0.2
    with pytest.raises(NotFittedError):
        model.coefficient_table()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"likelihood": "faithful_gaussian"},
            "one of double_poisson, poisson, .* got 'faithful_gaussian'",
        ),
        ({"likelihood": "poison"}, "Did you mean 'poisson'"),
        ({"dispersion": "none"}, 'dispersion must be "linear" or "constant", got \'none\''),
        ({"alpha": -1.0}, "alpha must be a finite number, 0 or positive, got -1.0"),
        ({"tol": 0.0}, "tol must be a finite number, positive, got 0.0"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1, got 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_options_are_told(options, message):
    with pytest.raises(ConfigError, match=message):
        CountGLM(**options).fit(X, Y)


# Hard cases ------------------------------------------------------------------------------------------------------


def finite(model, inputs):
    low, high = model.predict_interval(inputs).T
    return np.isfinite(model.predict(inputs)).all() and np.isfinite(model.coef_).all() and (low <= high).all()


COUNT_LAWS = ["poisson", "negative_binomial", "double_poisson"]


@pytest.mark.parametrize("likelihood", [*COUNT_LAWS, "gaussian"])
def test_zeros_only_are_refused(likelihood):
    with pytest.raises(InputError, match="y must hold a positive count, got zeros only"):
        CountGLM(likelihood=likelihood).fit(X, np.zeros(N))


@pytest.mark.parametrize("likelihood", COUNT_LAWS)
def test_a_constant_column_is_set_aside(likelihood):
    with pytest.warns(UserWarning, match=r"columns must not be constant or combinations of others, got 'x3': "):
        model = CountGLM(likelihood=likelihood, dispersion="constant").fit(np.c_[X, np.full(N, 7.0)], WIDE)
    plain = CountGLM(likelihood=likelihood, dispersion="constant").fit(X, WIDE)
    assert model.coef_[0, 3] == 0.0
    np.testing.assert_allclose(model.coef_[0, :3], plain.coef_[0], rtol=1e-6)
    np.testing.assert_allclose(model.standard_errors_[:4], plain.standard_errors_[:4], rtol=1e-6)
    assert np.isnan(model.standard_errors_[4])
    assert model.aic_ == pytest.approx(plain.aic_)


def test_collinear_columns_share_their_effect():
    doubled = np.c_[X, X[:, 0]]
    with pytest.warns(UserWarning, match="got 'x0', 'x3': of all coefficients that fit as well the smallest"):
        model = CountGLM(likelihood="poisson").fit(doubled, Y)
    plain = CountGLM(likelihood="poisson").fit(X, Y)
    np.testing.assert_allclose(model.coef_[0, [0, 3]], plain.coef_[0, 0] / 2.0, rtol=1e-6)
    np.testing.assert_allclose(model.predict(doubled), plain.predict(X), rtol=1e-6)
    assert np.isnan(model.standard_errors_).tolist() == [False, True, False, False, True]
    penalised = CountGLM(likelihood="poisson", alpha=1e-4).fit(doubled, Y)
    assert np.isfinite(penalised.standard_errors_).all()


MOVES = {"large": lambda x: 1e12 * (x + 1.0), "far": lambda x: x + 1e12, "small": lambda x: 1e-12 * x}


@pytest.mark.parametrize("likelihood", COUNT_LAWS)
@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_units_of_the_columns_change_nothing(likelihood, move):
    moved = move(np.round(X * 1024.0))
    model, plain = (CountGLM(likelihood=likelihood).fit(inputs, WIDE) for inputs in (moved, np.round(X * 1024.0)))
    assert model.converged_
    np.testing.assert_allclose(model.predict(moved), plain.predict(np.round(X * 1024.0)), rtol=1e-3)
    assert model.loglik_ == pytest.approx(plain.loglik_, rel=1e-6)


@pytest.mark.parametrize("likelihood", COUNT_LAWS)
@pytest.mark.parametrize("dispersion", ["linear", "constant"])
def test_fewer_rows_than_columns(likelihood, dispersion):
    inputs, y = RNG.normal(size=(20, 40)), RNG.poisson(3.0, 20)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = CountGLM(likelihood=likelihood, dispersion=dispersion).fit(inputs, y)
    assert any("columns must not be constant or combinations of others" in str(warning.message) for warning in told)
    assert finite(model, inputs)


def test_a_level_without_counts_is_told_and_a_penalty_mends_it():
    level = (np.arange(N) < 60).astype(float)
    y = np.where(level == 1.0, 0, Y)
    with pytest.warns(UserWarning, match="the likelihood must have a maximum, got none in log mu: "):
        model = CountGLM(likelihood="poisson").fit(np.c_[X, level], y)
    assert finite(model, np.c_[X, level])
    assert model.predict(np.c_[X, level])[level == 1.0].max() < 1e-3
    penalised = CountGLM(likelihood="poisson", alpha=0.01).fit(np.c_[X, level], y)
    assert penalised.converged_
    assert penalised.standard_errors_.max() < 30.0


@pytest.mark.parametrize("likelihood", COUNT_LAWS)
@pytest.mark.parametrize("scale", [1e6, 1e-4], ids=["1e6", "1e-4"])
def test_huge_and_tiny_means(likelihood, scale):
    rng = np.random.default_rng(1)
    rows = 300 if scale > 1.0 else 50_000
    inputs = rng.normal(size=(rows, 1))
    y = rng.poisson(scale * np.exp(0.5 * inputs[:, 0]))
    with warnings.catch_warnings():
        # Poisson counts have no overdispersion, and counts of 0 and 1 do not tell gamma.
        warnings.filterwarnings("ignore", "the likelihood must have a maximum")
        model = CountGLM(likelihood=likelihood, dispersion="constant").fit(inputs, y)
    assert model.converged_
    assert finite(model, inputs)
    assert model.predict(inputs).mean() == pytest.approx(y.mean(), rel=0.02)


def test_an_unfinished_search_warns():
    with pytest.warns(ConvergenceWarning, match=r"end at a maximum, got a gradient norm of .* after 1 steps\. Raise"):
        CountGLM(max_iter=1).fit(X, Y)


def test_a_missing_value_is_refused():
    holes = X.copy()
    holes[4, 1] = np.nan
    with pytest.raises(InputError, match="got NaN in column 'x1' at row 4"):
        CountGLM().fit(holes, Y)
