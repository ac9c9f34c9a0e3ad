"""Test `CountGLM` against statsmodels, scikit-learn, least squares and simulation."""

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch
from scipy import sparse
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import PoissonRegressor
from sklearn.preprocessing import StandardScaler

from ddpn.distributions import MeanDoublePoisson
from ddpn.estimators import CountGLM
from ddpn.members.linear import LinearFit
from ddpn.paper.datasets import load
from ddpn.runtime.errors import ConfigError, InputError

RNG = np.random.default_rng(11)
N = 400
X = RNG.normal(size=(N, 3)) * [1.0, 5.0, 0.1] + [0.0, 3.0, 10.0]
RATE = np.exp(1.0 + 0.5 * X[:, 0] - 0.1 * X[:, 1] + 0.3 * (X[:, 2] - 10.0))
EXPOSURE = RNG.uniform(0.8, 1.25, N)
WEIGHT = RNG.integers(0, 4, N)
Y = RNG.poisson(RATE * EXPOSURE)
WIDE = RNG.negative_binomial(2, 1.0 / (1.0 + RATE * EXPOSURE / 2))
#: Counts of which a third can only be 0.
ZEROS = np.where(np.arange(N) % 3 == 0, 0, Y)
COUNT_LIKELIHOODS = ["poisson", "negative_binomial", "double_poisson"]


@pytest.fixture(scope="module")
def plain() -> CountGLM:
    """A Double Poisson with linear dispersion."""
    return CountGLM(dispersion="linear").fit(X, Y)


@pytest.fixture(scope="module")
def poisson() -> CountGLM:
    return CountGLM(likelihood="poisson").fit(X, Y)


def get_location_coefficients(model: CountGLM) -> np.ndarray:
    return np.r_[model.intercept_[0], model.coef_[0]]


# Against others --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weights"])
@pytest.mark.parametrize("exposure", [None, EXPOSURE], ids=["", "exposure"])
def test_a_poisson_model_is_that_of_statsmodels(weight, exposure):
    model = CountGLM(likelihood="poisson").fit(X, Y, sample_weight=weight, exposure=exposure)
    family = sm.families.Poisson()
    peer = sm.GLM(Y, sm.add_constant(X), family, exposure=exposure, freq_weights=weight).fit(tol=1e-13)
    np.testing.assert_allclose(get_location_coefficients(model), peer.params, rtol=1e-6)
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
    np.testing.assert_allclose(get_location_coefficients(model), peer.params[:-1], rtol=1e-5)
    np.testing.assert_allclose(model.standard_errors_[:-1], peer.bse[:-1], rtol=1e-5)
    shape = np.exp(model.intercept_[1])
    np.testing.assert_allclose([shape, shape * model.standard_errors_[-1]], [peer.params[-1], peer.bse[-1]], rtol=1e-5)
    assert model.loglik_ == pytest.approx(peer.llf, rel=1e-9)
    assert model.bic_ == pytest.approx(peer.bic, rel=1e-9)


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
@pytest.mark.parametrize("kind", ["HC0", "cluster"])
def test_robust_and_clustered_errors_are_those_of_statsmodels(likelihood, kind):
    groups = np.random.default_rng(2).permutation(N) % 50
    options = {"cov_type": kind} | ({"cov_kwds": {"groups": groups}} if kind == "cluster" else {})
    model = CountGLM(likelihood, covariance="robust")
    model.fit(X, WIDE, exposure=EXPOSURE, groups=groups if kind == "cluster" else None)
    peer = (sm.Poisson if likelihood == "poisson" else sm.NegativeBinomial)(WIDE, sm.add_constant(X), exposure=EXPOSURE)
    peer = peer.fit(method="newton", tol=1e-12, maxiter=200, disp=0, **options)
    np.testing.assert_allclose(model.standard_errors_[:4], peer.bse[:4], rtol=1e-5)
    np.testing.assert_allclose(model.coefficient_table().p[:4], peer.pvalues[:4], rtol=1e-3)
    if likelihood == "negative_binomial":
        assert np.exp(model.intercept_[1]) * model.standard_errors_[-1] == pytest.approx(peer.bse[-1], rel=1e-5)
    assert model.covariance_type_ == ("clustered" if kind == "cluster" else "robust")
    assert model.n_groups_ == (50 if kind == "cluster" else None)


def test_errors_that_allow_for_leverage_are_close_to_the_jackknife():
    rows = slice(0, 60)
    model = CountGLM("poisson", covariance="HC3").fit(X[rows], WIDE[rows])
    kept = [np.delete(np.arange(60), i) for i in range(60)]
    design = sm.add_constant(X[rows])
    fits = [sm.GLM(WIDE[i], design[i], sm.families.Poisson()).fit().params for i in kept]
    jackknife = np.sqrt(59 * np.var(fits, axis=0))
    np.testing.assert_allclose(model.standard_errors_, jackknife, rtol=0.03)
    assert (
        model.standard_errors_ > CountGLM("poisson", covariance="robust").fit(X[rows], WIDE[rows]).standard_errors_
    ).all()


def test_deviance_and_pearson_chi2_are_those_of_statsmodels():
    design = sm.add_constant(X)
    poisson = CountGLM("poisson").fit(X, Y, sample_weight=WEIGHT, exposure=EXPOSURE)
    peer = sm.GLM(Y, design, sm.families.Poisson(), exposure=EXPOSURE, freq_weights=WEIGHT).fit(tol=1e-13)
    assert (poisson.deviance_, poisson.pearson_chi2_) == pytest.approx((peer.deviance, peer.pearson_chi2), rel=1e-6)
    wide = CountGLM("negative_binomial").fit(X, WIDE)
    peer = sm.GLM(WIDE, design, sm.families.NegativeBinomial(alpha=np.exp(wide.intercept_[1]))).fit(tol=1e-13)
    assert (wide.deviance_, wide.pearson_chi2_) == pytest.approx((peer.deviance, peer.pearson_chi2), rel=1e-6)
    assert CountGLM("zero_inflated_poisson").fit(X, ZEROS).deviance_ is None
    assert CountGLM("poisson", lower=1).fit(X[Y > 0], Y[Y > 0]).deviance_ is None


def test_weights_and_repeated_rows_have_the_same_robust_errors():
    kept, groups = np.repeat(np.arange(N), WEIGHT), np.arange(N) // 8
    for labels in (None, groups):
        repeated = None if labels is None else labels[kept]
        once = CountGLM("poisson", covariance="robust").fit(X, WIDE, sample_weight=WEIGHT, groups=labels)
        often = CountGLM("poisson", covariance="robust").fit(X[kept], WIDE[kept], groups=repeated)
        np.testing.assert_allclose(once.standard_errors_, often.standard_errors_, rtol=1e-6)
    with pytest.raises(InputError, match="groups must have at least two different values"):
        CountGLM("poisson").fit(X, Y, groups=np.zeros(N))


@pytest.mark.parametrize("exposure", [None, EXPOSURE], ids=["", "exposure"])
def test_coefficients_of_a_double_poisson_are_those_of_its_exact_mean(exposure):
    """The estimating equations of the log mean hold, as in every GLM: sums of x m (y - m) / V are 0."""
    model = CountGLM().fit(X, WIDE, exposure=exposure)
    mean = np.exp(model.intercept_[0] + X @ model.coef_[0]) * (1.0 if exposure is None else exposure)
    dist = model.predict_distribution(X, exposure)
    np.testing.assert_allclose(dist.mean, mean, rtol=1e-9)
    score = sm.add_constant(X).T @ (mean * (WIDE - mean) / dist.variance)
    assert np.abs(score / np.abs(sm.add_constant(X)).sum(0)).max() < 1e-5


def test_the_papers_glm_has_coefficients_of_mu():
    model = CountGLM(location="mu", dispersion="linear").fit(X, WIDE)
    assert model.head_.location == "mu"
    assert model.coefficient_table().parameter[:4] == ("log mu",) * 4
    assert model.covariance_type_ == "model"
    dist = model.predict_distribution(X).distribution.components
    np.testing.assert_allclose(dist.mu.numpy()[:, 0], np.exp(model.intercept_[0] + X @ model.coef_[0]), rtol=1e-9)
    assert "mu is close to the mean" in str(model.summary())


@pytest.mark.parametrize("likelihood", ["gaussian", "natural_gaussian"])
def test_a_gaussian_model_with_one_variance_is_least_squares(likelihood):
    model = CountGLM(likelihood=likelihood, dispersion="constant").fit(X, Y)
    peer = sm.OLS(Y, sm.add_constant(X)).fit()
    np.testing.assert_allclose(model.predict(X), peer.fittedvalues, rtol=1e-6)
    assert model.loglik_ == pytest.approx(peer.llf, rel=1e-9)
    np.testing.assert_allclose(model.predict_distribution(X).variance, peer.ssr / N, rtol=1e-6)
    far = np.array([[-20.0, 3.0, 10.0], [20.0, 3.0, 10.0]])
    assert model.predict(far).min() < 0, "no deviance has a negative mean"
    assert -np.inf < model.score(far, [5, 10**6]) < 0


def test_a_penalty_is_that_of_scikit_learn_for_standardised_columns():
    model = CountGLM(likelihood="poisson", alpha=0.3).fit(X, Y)
    scaled = StandardScaler().fit(X)
    peer = PoissonRegressor(alpha=0.3, tol=1e-10, solver="newton-cholesky").fit(scaled.transform(X), Y)
    np.testing.assert_allclose(model.coef_[0] * scaled.scale_, peer.coef_, rtol=1e-6)
    np.testing.assert_allclose(model.predict(X), peer.predict(scaled.transform(X)), rtol=1e-6)


def simulate_double_poisson(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(-1, 1, size=(rows, 1))
    mean, gamma = np.exp(2.0 + 0.5 * inputs[:, 0]), np.exp(0.3 - 0.6 * inputs[:, 0])
    dist = MeanDoublePoisson(torch.from_numpy(mean), torch.from_numpy(gamma))
    return inputs, dist.icdf(torch.from_numpy(rng.uniform(size=rows))).numpy()


@pytest.mark.slow
def test_double_poisson_coefficients_scatter_as_their_standard_errors_say():
    truth = np.array([2.0, 0.5, 0.3, -0.6])
    fits = [
        CountGLM(dispersion="linear", covariance="model").fit(*simulate_double_poisson(200, seed)) for seed in range(40)
    ]
    assert all(fit.converged_ and fit.gradient_norm_ <= 1e-6 for fit in fits)
    estimates = np.array([fit.coefficient_table().estimate for fit in fits])
    errors = np.array([fit.standard_errors_ for fit in fits])
    z = (estimates - truth) / errors
    # 40 z's: their standard deviation is 1 +- 0.11, their mean, but for a small bias, 0 +- 0.16.
    assert (np.abs(z.std(0) - 1.0) < 0.3).all()
    assert (np.abs(z.mean(0)) < 0.5).all()


def test_length_of_stay_is_fitted_as_by_statsmodels(data_folder, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(data_folder))
    table, y = load("length_of_stay").part("train")
    model = CountGLM(dispersion="linear").fit(table.to_pandas()[:3000], y[:3000])
    assert model.converged_
    assert model.gradient_norm_ <= 1e-6
    assert "rcount = 1" in model.coefficient_table().feature
    assert len(model.standard_errors_) == 2 * 38


# What it is ------------------------------------------------------------------------------------------------------


def test_weights_are_repetitions_and_exposure_is_a_scale():
    kept = np.repeat(np.arange(N), WEIGHT)
    weighted = CountGLM().fit(X, Y, sample_weight=WEIGHT, exposure=EXPOSURE)
    repeated = CountGLM().fit(X[kept], Y[kept], exposure=EXPOSURE[kept])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-9)
    np.testing.assert_allclose(weighted.covariance_, repeated.covariance_, rtol=1e-7)
    assert weighted.bic_ == pytest.approx(repeated.bic_)
    once, twice = (
        weighted.predict_distribution(X, scale * EXPOSURE).distribution.components.mu for scale in (1.0, 2.0)
    )
    np.testing.assert_allclose(twice, 2.0 * once, rtol=1e-12)
    with pytest.raises(InputError, match="exposure is missing"):
        weighted.predict(X)


def test_constant_dispersion_is_an_intercept(plain):
    model = CountGLM().fit(X, Y)
    assert (model.coef_[1] == 0.0).all()
    assert model.coefficient_table().parameter == ("log mean",) * 4 + ("log gamma",)
    assert model.predict_distribution(X).distribution.components.gamma.unique().numel() == 1
    assert plain.loglik_ > model.loglik_
    assert plain.coefficient_table().parameter == ("log mean",) * 4 + ("log gamma",) * 4


def test_frames_sparse_matrices_and_arrays_agree(poisson):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    for table in (frame, sparse.csr_matrix(X)):
        model_of_table = CountGLM(likelihood="poisson").fit(table, Y)
        np.testing.assert_allclose(model_of_table.coef_, poisson.coef_, rtol=1e-8)
    model = CountGLM(likelihood="poisson").fit(frame.assign(ward=np.where(X[:, 0] > 0, "B", "A")), Y)
    assert model.coefficient_table().feature[:5] == ("(intercept)", "a", "b", "c", "ward = B")


def test_a_saved_model_predicts_the_same_bits(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(ward=np.where(X[:, 0] > 0, "B", "A"))
    model = CountGLM(dispersion="constant", alpha=0.1).fit(frame, Y, exposure=EXPOSURE)
    model.save(tmp_path / "model")
    again = CountGLM.load(tmp_path / "model")
    assert again.predict(frame, EXPOSURE).tolist() == model.predict(frame, EXPOSURE).tolist()
    assert str(again.coefficient_table()) == str(model.coefficient_table())
    assert again.get_params() == model.get_params()
    assert str(again.summary()) == str(model.summary())
    for name in ("aic_", "bic_", "loglik_", "n_iter_", "converged_", "gradient_norm_", "n_rows_", "deviance_"):
        assert getattr(again, name) == getattr(model, name)
    with pytest.raises(InputError, match="'a'"):
        again.predict(frame.drop(columns="a"), EXPOSURE)
    with pytest.raises(InputError, match="hold text in column 'ward', as when fitted, got numbers"):
        again.predict(frame.assign(ward=1.0), EXPOSURE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("likelihood", "faithful_gaussian"), ("likelihood", "poison"), ("dispersion", "none"), ("alpha", -1.0),
        ("alpha", "1"), ("tol", 0.0), ("max_iter", 0), ("fractional", "floor"), ("covariance", "HC1"),
        ("location", "median"), ("missing", "fill"),
    ],
)  # fmt: skip
def test_bad_options_are_reported(name, value):
    with pytest.raises(ConfigError, match=f"^{name} must .*got {value!r}"):
        CountGLM(**{name: value}).fit(X, Y)


# Warnings about the dispersion --------------------------------------------------------------------------------------


def test_a_poisson_model_of_overdispersed_counts_warns_unless_its_errors_are_robust():
    with pytest.warns(
        UserWarning, match=r"over-dispersed: their variance is about .* times that of a Poisson"
    ) as caught:
        CountGLM("poisson").fit(X, WIDE)
    assert caught[0].filename == __file__
    CountGLM("poisson", covariance="robust").fit(X, WIDE)
    CountGLM("poisson").fit(X, WIDE, groups=np.arange(N) // 4)
    CountGLM("poisson").fit(X, Y)


def test_a_dispersion_at_the_end_of_its_range_is_explained():
    rng = np.random.default_rng(3)
    with pytest.warns(UserWarning, match=r"log alpha: '\(intercept\)'\), .* do not vary more than Poisson counts"):
        CountGLM("negative_binomial").fit(X, rng.binomial(20, 0.3, N))
    wide = rng.negative_binomial(0.1, 1.0 / (1.0 + 10.0 * RATE))
    with pytest.warns(UserWarning, match=r"log gamma: '\(intercept\)'\), .* vary more than a Double Poisson can"):
        CountGLM().fit(X, wide)


# Hard cases ------------------------------------------------------------------------------------------------------


def is_finite(model: CountGLM, inputs: np.ndarray) -> bool:
    low, high = model.predict_interval(inputs[:50]).T
    return np.isfinite(model.predict(inputs)).all() and np.isfinite(model.coef_).all() and (low <= high).all()


@pytest.mark.parametrize("likelihood", ["poisson", "gaussian"])
def test_zeros_only_are_refused(likelihood):
    with pytest.raises(InputError, match="y must hold a positive count, got zeros only"):
        CountGLM(likelihood=likelihood).fit(X, np.zeros(N))


ONE_HOT = np.eye(3)[RNG.integers(0, 3, N)]
REDUNDANT = {
    "duplicate": (np.c_[X, X[:, 0]], ["x3"]),
    "duplicate first": (np.c_[X[:, 0], X], ["x1"]),
    "sum": (np.c_[X, X @ [1.0, -2.0, 3.0]], ["x3"]),
    "levels that sum to the intercept": (np.c_[ONE_HOT, X], ["x2"]),
    "two sets of levels": (np.c_[ONE_HOT, 1.0 - (X[:, :1] > 0), X[:, :1] > 0, X[:, :2]], ["x2", "x4"]),
    "first duplicate, then constant": (np.c_[X[:, 0], X[:, 0], np.ones(N), X[:, 1]], ["x1", "x2"]),
}


@pytest.mark.parametrize(("inputs", "redundant"), REDUNDANT.values(), ids=REDUNDANT.keys())
def test_redundant_columns_get_no_coefficient(inputs, redundant):
    names = np.array([f"x{column}" for column in range(inputs.shape[1])])
    with pytest.warns(UserWarning, match="are 0 with standard error NaN") as caught:
        model = CountGLM(likelihood="poisson").fit(inputs, Y, sample_weight=WEIGHT, exposure=EXPOSURE)
    (warning,) = caught
    assert warning.filename == __file__, "the warning should point to the user's call of fit"
    assert all((f"'{name}'" in str(warning.message)) == (name in redundant) for name in names)
    assert "likelihood" not in str(warning.message)
    kept = np.r_[True, ~np.isin(names, redundant)]
    design = sm.add_constant(inputs[:, kept[1:]], has_constant="add")
    peer = sm.GLM(Y, design, sm.families.Poisson(), exposure=EXPOSURE, freq_weights=WEIGHT).fit(tol=1e-13)
    np.testing.assert_allclose(get_location_coefficients(model)[kept], peer.params, rtol=1e-6)
    np.testing.assert_allclose(model.standard_errors_[kept], peer.bse, rtol=1e-6)
    assert model.aic_ == pytest.approx(peer.aic, rel=1e-9)
    np.testing.assert_allclose(model.predict(inputs, EXPOSURE), peer.fittedvalues, rtol=1e-6)
    assert (get_location_coefficients(model)[~kept] == 0.0).all()
    table = model.coefficient_table()
    assert all(np.isnan(column[~kept]).all() for column in (table.std_error, table.z, table.p, table.low, table.high))
    penalised = CountGLM(likelihood="poisson", alpha=1e-4).fit(inputs[:, inputs.std(0) > 0], Y)
    assert np.isfinite(penalised.standard_errors_).all()


@pytest.mark.parametrize("likelihood", ["poisson", "double_poisson"])
def test_nearly_redundant_columns_are_named(likelihood):
    near = np.c_[X, X[:, 0] + 1e-4 * np.random.default_rng(3).normal(size=N)]
    with pytest.warns(UserWarning, match=r"hardly determine some coefficients \(log mean: 'x0', 'x3'\)") as caught:
        model = CountGLM(likelihood=likelihood, dispersion="constant").fit(near, Y)
    assert len(caught) == 1
    if likelihood == "poisson":
        peer = sm.GLM(Y, sm.add_constant(near), sm.families.Poisson()).fit(tol=1e-13)
        np.testing.assert_allclose(get_location_coefficients(model), peer.params, rtol=1e-6)
        np.testing.assert_allclose(model.standard_errors_, peer.bse, rtol=1e-6)


MOVES = {"large": lambda x: 1e12 * (x + 1.0), "far": lambda x: x + 1e12, "small": lambda x: 1e-12 * x}


@pytest.mark.parametrize("likelihood", COUNT_LIKELIHOODS)
def test_units_of_the_columns_change_nothing(likelihood):
    rounded = np.round(X * 1024.0)
    plain = CountGLM(likelihood=likelihood, covariance="robust").fit(rounded, WIDE)
    for move in MOVES.values():
        moved = move(rounded)
        model = CountGLM(likelihood=likelihood, covariance="robust").fit(moved, WIDE)
        assert model.converged_
        np.testing.assert_allclose(model.predict(moved), plain.predict(rounded), rtol=1e-3)
        assert model.loglik_ == pytest.approx(plain.loglik_, rel=1e-6)


@pytest.mark.parametrize("likelihood", ["poisson", "double_poisson"])
@pytest.mark.parametrize("dispersion", ["linear", "constant"])
def test_fewer_rows_than_columns_leave_finite_predictions(likelihood, dispersion):
    rng = np.random.default_rng(5)
    inputs, y = rng.normal(size=(20, 40)), rng.poisson(3.0, 20)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = CountGLM(likelihood=likelihood, dispersion=dispersion).fit(inputs, y)
    messages = " ".join(str(warning.message) for warning in caught)
    assert "Combinations of the columns before them: 'x19', 'x20'" in messages
    assert is_finite(model, inputs)


def test_a_level_without_counts_is_reported_and_a_penalty_helps():
    level = (np.arange(N) < 60).astype(float)
    y = np.where(level == 1.0, 0, Y)
    with pytest.warns(UserWarning, match=r"hardly determine some coefficients \(log mean: '\(intercept\)', 'x3'\)"):
        model = CountGLM(likelihood="poisson").fit(np.c_[X, level], y)
    assert is_finite(model, np.c_[X, level])
    assert model.predict(np.c_[X, level])[level == 1.0].max() < 1e-3
    penalised = CountGLM(likelihood="poisson", alpha=0.01).fit(np.c_[X, level], y)
    assert penalised.converged_
    assert penalised.standard_errors_.max() < 30.0


@pytest.mark.parametrize("likelihood", COUNT_LIKELIHOODS)
@pytest.mark.parametrize("scale", [1e6, 1e-4], ids=["1e6", "1e-4"])
def test_huge_and_tiny_means_are_fitted(likelihood, scale):
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(300, 1))
    y = rng.poisson(max(scale, 1e-2) * np.exp(0.5 * inputs[:, 0]))
    # Rows without a count stand for a hundred each: a mean of 1e-4 without 30,000 rows.
    weight = np.ones(300) if scale > 1.0 else np.where(y > 0, 1.0, 100.0)
    with warnings.catch_warnings():
        # Poisson counts have no overdispersion, and counts of 0 and 1 do not determine gamma.
        warnings.filterwarnings("ignore", "The rows hardly determine")
        model = CountGLM(likelihood=likelihood, dispersion="constant").fit(inputs, y, sample_weight=weight)
    assert model.converged_
    assert is_finite(model, inputs)
    mean = np.average(model.predict(inputs), weights=weight)
    assert mean == pytest.approx(np.average(y, weights=weight), rel=0.02)


def test_an_unfinished_search_warns():
    with pytest.warns(ConvergenceWarning, match=r"gradient norm is .* after 1 steps. Raise"):
        CountGLM(likelihood="poisson", max_iter=1).fit(X, Y)


@pytest.mark.parametrize("index", [None, [f"p{i}" for i in range(N)]], ids=["array", "frame"])
def test_missing_values_and_new_levels_are_refused(index, poisson):
    holes = X.copy()
    holes[4, 1] = np.nan
    table = holes if index is None else pd.DataFrame(holes, columns=["x0", "x1", "x2"], index=index)
    row = "4" if index is None else "p4"
    for call in (lambda: CountGLM().fit(table, Y), lambda: clone(poisson).fit(table[:0:-1], Y[:0:-1])):
        with pytest.raises(InputError, match="got NaN in column 'x1' at row"):
            call()
    with pytest.raises(InputError, match=f"got NaN in column 'x1' at row {row}"):
        CountGLM().fit(table, Y)
    if index is not None:
        frame = pd.DataFrame(X, columns=["x0", "x1", "x2"], index=index).assign(ward=["A", "B"] * (N // 2))
        model = CountGLM(likelihood="poisson").fit(frame, Y)
        with pytest.raises(InputError, match="column 'ward' that occur in the training rows, got 'Z' at row p7"):
            model.predict(frame.assign(ward=np.where(np.arange(N) == 7, "Z", "A")))


def test_rows_with_missing_values_are_named_or_dropped():
    holes = pd.DataFrame(X, columns=["a", "b", "c"]).assign(ward=np.where(X[:, 0] > 0, "B", "A"))
    holes.loc[[2, 5], "a"] = np.nan
    holes.loc[[5, 9, 11], "ward"] = None
    with pytest.raises(InputError, match=r"Rows with missing values: 4 of 400; by column: 'a' \(2\), 'ward' \(3\)"):
        CountGLM("poisson").fit(holes, Y)
    model = CountGLM("poisson", missing="drop").fit(holes, Y)
    complete = holes.notna().all(axis=1).to_numpy()
    peer = CountGLM("poisson").fit(holes[complete], Y[complete])
    np.testing.assert_array_equal(model.coef_, peer.coef_)
    assert (model.n_rows_, model.n_dropped_) == (N - 4, 4)
    assert "dropped rows" in str(model.summary())
    with pytest.raises(InputError, match="got NaN in column 'a' at rows 2, 5"):
        model.predict(holes)
    with pytest.raises(InputError, match="X must have a row without missing values"):
        CountGLM("poisson", missing="drop").fit(holes.assign(b=np.nan), Y)


# The table of coefficients --------------------------------------------------------------------------------------------


def test_intervals_are_those_of_the_normal_distribution_and_columns_are_named(poisson):
    table = poisson.coefficient_table(0.9)
    low, high = norm.interval(0.9, table.estimate, table.std_error)
    np.testing.assert_allclose([table.low, table.high], [low, high], rtol=1e-12)
    assert list(table.columns)[-2:] == ["90% low", "90% high"]
    np.testing.assert_array_equal(table.columns["estimate"], table.estimate)
    np.testing.assert_array_equal(table.to_frame()["estimate"], table.estimate)
    assert table._repr_html_().count("<tr>") == 5


def test_a_summary_has_rate_ratios_and_the_dispersion_apart():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = CountGLM("negative_binomial").fit(frame, WIDE)
    summary, table = model.summary(0.9), model.coefficient_table(0.9)
    columns = pd.DataFrame(summary.columns).set_index("feature")
    assert columns.index.tolist() == ["(intercept)", "a", "b", "c"]
    for name, column in {
        "rate ratio": table.estimate,
        "ratio low": table.low,
        "ratio high": table.high,
    }.items():
        np.testing.assert_allclose(columns[name][1:], np.exp(column[1:4]), rtol=1e-12)
        assert np.isnan(columns[name].iloc[0]), "an intercept is no ratio"
    assert summary.others.parameter == ("log alpha",)
    assert summary.facts["AIC"] == model.aic_
    text = str(summary)
    assert text.index("Coefficients of the log mean") < text.index("Coefficients of log alpha")
    assert summary._repr_html_().count("<table") == 3
    assert str(CountGLM("poisson").fit(frame, Y).summary()).count("Coefficients of") == 1


@pytest.mark.parametrize(
    ("likelihood", "ratio"), [("double_binomial", "odds ratio"), ("gaussian", ""), ("zero_inflated_poisson", "ratio")]
)
def test_summaries_say_what_other_locations_are(likelihood, ratio):
    upper = np.full(N, Y.max()) if likelihood == "double_binomial" else None
    summary = CountGLM(likelihood).fit(X, ZEROS, upper=upper).summary()
    assert summary.ratio == ratio
    assert (likelihood == "gaussian") == (not summary.notes)


@pytest.mark.parametrize("coverage", [0.0, 1.0, 95, "0.9"])
def test_a_coverage_is_a_share(poisson, coverage):
    with pytest.raises(ConfigError, match=r"^coverage must be a number between 0 and 1, got"):
        poisson.coefficient_table(coverage)


def test_a_fit_that_is_stopped_changes_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.poisson(3.0, 60)
    model = CountGLM(likelihood="poisson").fit(X, y)
    before = model.coefficient_table()

    def stop(self, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(LinearFit, "covariances", stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :1], y)
    assert model.n_features_in_ == 2
    assert str(model.coefficient_table()) == str(before)
