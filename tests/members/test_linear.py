"""Test exact linear fits: derivatives, the search for a maximum, and columns in units that lose no digit."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from scipy.linalg import block_diag
from scipy.optimize import approx_fprime, minimize
from sklearn.linear_model import PoissonRegressor

from ddpn.members.covariance import compute_covariance, compute_sandwich
from ddpn.members.linear import fit_linear, standardize
from ddpn.members.linear_search import LinearObjective, minimize_exactly
from ddpn.networks.heads import make_head
from ddpn.rows.count_rows import CountRows

RNG = np.random.default_rng(3)
N = 200
X = RNG.normal(size=(N, 2))
Y = RNG.poisson(np.exp(1.0 + 0.5 * X[:, 0] - 0.3 * X[:, 1])).astype(float)
WEIGHT = RNG.uniform(0.5, 2.0, N)
EXPOSURE = RNG.uniform(0.5, 2.0, N)
HEADS = ["poisson", "negative_binomial", "double_poisson", "gaussian", "natural_gaussian"]


def make_objective(name, linear=True, alpha=0.0, x=X, y=Y, exposure=EXPOSURE):
    head = make_head(name)
    sample = CountRows(x, y, WEIGHT[: len(y)], None if exposure is None else exposure[: len(y)]).map(torch.from_numpy)
    return LinearObjective(head, sample, (True, *[linear] * (head.n_raw - 1)), alpha)


@pytest.mark.parametrize("linear", [True, False], ids=["linear", "constant"])
@pytest.mark.parametrize("name", HEADS)
def test_gradient_and_hessian_are_those_of_differences(name, linear):
    objective = make_objective(name, linear, alpha=0.1)
    theta = objective.start() + RNG.normal(scale=0.1, size=len(objective.start()))
    value = lambda t: objective.value_and_gradient(t)[0]
    slope = lambda t: objective.value_and_gradient(t)[1]
    np.testing.assert_allclose(slope(theta), approx_fprime(theta, value, 1e-7), rtol=1e-4, atol=1e-5)
    hessian = objective.hessian(theta)
    np.testing.assert_allclose(hessian, approx_fprime(theta, slope, 1e-6), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", HEADS)
def test_the_search_ends_at_a_maximum(name):
    objective = make_objective(name)
    result = minimize_exactly(objective, objective.start())
    assert result.converged
    assert result.gradient_norm <= 1e-6
    value, gradient = objective.value_and_gradient(result.theta)
    assert np.linalg.norm(gradient) == result.gradient_norm
    for step in RNG.normal(scale=0.01, size=(20, len(result.theta))):
        assert objective.value_and_gradient(result.theta + step)[0] >= value


def test_least_squares_of_large_counts_does_not_end_early():
    y = np.rint(1e6 * np.exp(0.5 * X[:, 0]))
    objective = make_objective("gaussian", linear=False, y=y, exposure=None)
    actual = minimize_exactly(objective, objective.start())
    root = np.sqrt(WEIGHT)[:, None]
    design = np.c_[np.ones(N), X]
    expected = np.linalg.lstsq(root * design, root[:, 0] * y, rcond=None)[0]
    assert actual.converged
    np.testing.assert_allclose(actual.theta[:3], expected, rtol=1e-8)


def test_a_curved_valley_is_followed_to_its_end():
    # One count a million times the others: from the common mean, the way to the maximum is long and bent.
    objective = make_objective("gaussian", y=np.r_[Y[:-1], 1e7], exposure=None)
    result, start = minimize_exactly(objective, objective.start()), objective.start()
    # A quasi-Newton method needs units in which the curvatures are alike.
    units = 1.0 / np.sqrt(np.abs(np.diag(objective.hessian(start))))
    peer = minimize(lambda u: objective.value_and_gradient(u * units)[0], start / units,
                    jac=lambda u: objective.value_and_gradient(u * units)[1] * units, method="BFGS")  # fmt: skip
    assert result.converged
    assert objective.value_and_gradient(result.theta)[0] == pytest.approx(peer.fun, rel=1e-9)


def test_information_is_inverted_in_its_own_units():
    hessian = np.array([[1e-13, 2e-8], [2e-8, 0.5]])
    np.testing.assert_allclose(compute_covariance(hessian, 4.0), np.linalg.inv(4.0 * hessian), rtol=1e-9)
    flat = compute_covariance(np.array([[1.0, 1.0], [1.0, 1.0]]), 1.0)
    assert np.isfinite(flat).all()
    assert flat[0, 0] > 1e10


# Columns in which a fit is made --------------------------------------------------------------------------------------

WIDE = RNG.normal(size=(40, 3)) * [1.0, 1e12, 1e-9] + [5.0, 1e12, 0.0]


def test_columns_have_weighted_mean_0_and_deviation_1_and_coefficients_go_back():
    weight = RNG.integers(1, 5, 40).astype(float)
    result = standardize(WIDE, weight)
    repeated = np.repeat(result.transform(WIDE), weight.astype(int), axis=0)
    np.testing.assert_allclose(repeated.mean(0), 0.0, atol=1e-9)
    np.testing.assert_allclose(repeated.std(0), 1.0, rtol=1e-9)
    theta = np.array([0.3, 1.0, -2.0, 0.5])
    intercept, *slopes = result.make_back_transform(True) @ theta
    np.testing.assert_allclose(intercept + WIDE @ slopes, theta[0] + result.transform(WIDE) @ theta[1:], rtol=1e-9)


@pytest.mark.parametrize("rows", [2, 20_001])
@pytest.mark.parametrize("value", [0.1, 1e6 / 3, 1e300, 0.0])
def test_a_constant_is_found_whatever_the_number_of_rows(rows, value):
    for reduce in (True, False):
        result = standardize(np.c_[np.arange(rows), np.full(rows, value)], np.linspace(0.1, 3.0, rows), reduce)
        assert result.kept.tolist() == [True, False]
        assert result.is_constant.tolist() == [False, True]


def test_fewer_rows_than_columns_and_no_columns_are_standardised():
    assert standardize(RNG.normal(size=(5, 9)), np.ones(5)).kept.tolist() == [True] * 4 + [False] * 5
    assert standardize(np.empty((5, 0)), np.ones(5)).kept.shape == (0,)


# Fits and the uncertainty of their coefficients, against statsmodels and scikit-learn --------------------------------

GROUP = RNG.integers(0, 25, N)
COUNTS = RNG.integers(1, 4, N).astype(float)


def fit_poisson(x=X, weight=COUNTS, exposure=EXPOSURE, alpha=0.0, **options):
    return fit_linear(make_head("poisson"), x, CountRows(x, Y, weight, exposure), (True,), alpha, **options)


def fit_peer(cov_type: str = "nonrobust", **options):
    """Fit rows that are repeated by their weights, in statsmodels."""
    rows = np.repeat(np.arange(N), COUNTS.astype(int))
    model = sm.GLM(Y[rows], sm.add_constant(X[rows]), sm.families.Poisson(), exposure=EXPOSURE[rows])
    options = {name: values[rows] for name, values in options.items()}
    return model.fit(cov_type=cov_type, cov_kwds=options or None, tol=1e-12)


def test_coefficients_and_their_covariance_are_those_of_statsmodels():
    fit, peer = fit_poisson(), fit_peer()
    intercept, *slopes = fit.standardization.make_back_transform(True) @ fit.optimum.theta
    np.testing.assert_allclose([intercept, *slopes], peer.params, rtol=1e-6)
    np.testing.assert_allclose(fit.covariances()[0], peer.cov_params(), rtol=1e-5)
    np.testing.assert_allclose(fit.covariances("robust")[0], fit_peer("HC0").cov_params(), rtol=1e-5)
    np.testing.assert_allclose(
        fit.linear.raw(X)[:, 0], np.log(peer.predict(sm.add_constant(X), exposure=np.ones(N))), rtol=1e-6
    )


def test_the_clustered_covariance_is_that_of_statsmodels():
    fit = fit_poisson(weight=None)
    peer = sm.GLM(Y, sm.add_constant(X), sm.families.Poisson(), exposure=EXPOSURE)
    expected = peer.fit(cov_type="cluster", cov_kwds={"groups": GROUP}, tol=1e-12).cov_params()
    np.testing.assert_allclose(fit.covariances("clustered", GROUP)[0], expected, rtol=1e-5)


def test_robust_covariances_allow_for_the_leverage_of_rows():
    """In HC3 of MacKinnon and White (1985), scores are divided by 1 minus the diagonal of the hat matrix."""
    fit, design = fit_poisson(weight=None), sm.add_constant(X)
    mean = EXPOSURE * np.exp(fit.linear.raw(X)[:, 0])
    bread = np.linalg.inv(design.T @ (mean[:, None] * design))
    leverage = mean * np.einsum("ij,jk,ik->i", design, bread, design)
    scores = ((Y - mean) / (1.0 - leverage))[:, None] * design
    np.testing.assert_allclose(fit.covariances("HC3")[0], bread @ scores.T @ scores @ bread, rtol=1e-5)


def test_a_column_that_repeats_others_has_no_covariance_and_changes_none():
    plain, wide = fit_poisson(), fit_poisson(np.column_stack([X, X[:, 0] - 2.0 * X[:, 1], np.full(N, 3.0)]))
    assert wide.standardization.kept.tolist() == [True, True, False, False]
    for kind in ("model", "robust", "HC3"):
        ours, theirs = wide.covariances(kind)[0], plain.covariances(kind)[0]
        np.testing.assert_allclose(ours[:3, :3], theirs, rtol=1e-5)
        assert np.isnan(ours[3:]).all()
        assert np.isnan(ours[:, 3:]).all()


def test_deviations_are_those_of_standardised_columns():
    fit = fit_poisson()
    (deviations,) = fit.covariances()[1]
    rows = np.repeat(np.arange(N), COUNTS.astype(int))
    columns = fit.standardization.transform(X)[rows]
    peer = sm.GLM(Y[rows], sm.add_constant(columns), sm.families.Poisson(), exposure=EXPOSURE[rows]).fit(tol=1e-12)
    np.testing.assert_allclose(deviations, peer.bse, rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.01, 1.0])
def test_a_penalised_fit_is_that_of_scikit_learn(alpha):
    """The penalty is alpha / 2 times the squared slopes beside the mean loss, of standardised columns in our fit."""
    fit = fit_poisson(exposure=None, alpha=alpha)
    columns = fit.standardization.transform(X)
    peer = PoissonRegressor(alpha=alpha, tol=1e-10, max_iter=1000).fit(columns, Y, sample_weight=COUNTS)
    np.testing.assert_allclose(fit.optimum.theta, [peer.intercept_, *peer.coef_], rtol=1e-4, atol=1e-6)


def test_a_rough_fit_is_nearly_the_exact_one():
    for alpha in (0.0, 0.1):
        np.testing.assert_allclose(
            fit_poisson(alpha=alpha, is_rough=True).linear.raw(X), fit_poisson(alpha=alpha).linear.raw(X), atol=0.02
        )


def test_raw_outputs_that_follow_no_column_are_constants():
    head = make_head("negative_binomial")
    fit = fit_linear(head, X, CountRows(X, Y, COUNTS, EXPOSURE), (True, False), 0.0)
    raw = fit.linear.raw(X)
    assert np.ptp(raw[:, 0]) > 0.5
    assert np.ptp(raw[:, 1]) == 0.0
    covariance, deviations = fit.covariances()
    assert covariance.shape == (4, 4)
    assert [len(row) for row in deviations] == [3, 1]
    numeric = approx_fprime(fit.optimum.theta, lambda t: fit.objective.value_and_gradient(t)[1], 1e-6)
    back = block_diag(fit.standardization.make_back_transform(True), np.ones((1, 1)))
    np.testing.assert_allclose(covariance, back @ np.linalg.inv(COUNTS.sum() * numeric) @ back.T, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("name", HEADS)
def test_scores_are_the_gradients_of_the_rows_losses(name):
    objective = make_objective(name)
    theta = objective.start()
    theta = theta + np.linspace(-0.1, 0.1, len(theta))
    scores = objective.scores(theta)
    numeric = approx_fprime(theta, objective.losses, 1e-7)
    np.testing.assert_allclose(scores, numeric, rtol=1e-3, atol=1e-4 * np.abs(numeric).max())
    gradient = objective.value_and_gradient(theta)[1]
    np.testing.assert_allclose((WEIGHT / WEIGHT.sum()) @ scores, gradient, rtol=1e-6, atol=1e-9)


def test_the_expected_information_of_a_poisson_is_the_observed_one():
    objective = make_objective("poisson", alpha=0.3)
    theta = np.array([0.9, 0.4, -0.2])
    (root,) = objective.factor_information(theta)
    np.testing.assert_allclose(root @ root.T, objective.hessian(theta), rtol=1e-6)
    assert (np.triu(root, 1) == 0.0).all()


def test_a_search_ends_after_as_many_steps_as_it_may_take():
    objective = make_objective("negative_binomial")
    start = objective.constant
    early = minimize_exactly(objective, start, max_iter=3)
    assert 0 < early.n_iter <= 3
    assert not early.converged
    late = minimize_exactly(objective, start)
    assert late.converged
    assert early.n_iter < late.n_iter <= 200
    assert objective.value(late.theta) <= objective.value(early.theta) < objective.value(start)


def test_the_start_is_the_line_of_a_poisson_glm_with_the_best_dispersion():
    objective = make_objective("double_poisson")
    poisson = make_objective("poisson")
    line = minimize_exactly(poisson, poisson.start()).theta
    start = objective.start()
    np.testing.assert_allclose(start[:3], line, atol=0.01)
    assert objective.value(start) <= objective.value(objective.constant)
    assert (objective.constant[1:3] == 0.0).all()
    assert objective.value(np.full_like(start, np.nan)) == np.inf


def test_a_sandwich_is_the_product_of_matrices():
    bread, scores, weight = np.array([[2.0, 0.5], [0.5, 1.0]]), RNG.normal(size=(6, 2)), np.arange(1.0, 7.0)
    meat = sum(w * np.outer(s, s) for w, s in zip(weight, scores, strict=True))
    np.testing.assert_allclose(compute_sandwich(bread, scores, weight), bread @ meat @ bread)
    group = np.array([0, 0, 1, 1, 2, 2])
    sums = [(weight[group == g, None] * scores[group == g]).sum(0) for g in range(3)]
    meat = sum(np.outer(s, s) for s in sums) * 3 / 2 * 20 / 19
    np.testing.assert_allclose(compute_sandwich(bread, scores, weight, group), bread @ meat @ bread)


def test_a_column_far_from_zero_is_kept_and_its_copy_is_not():
    """Columns come in any order, and copies are moved and scaled."""
    x = np.column_stack([X[:, 0] + 1e6, X[:, 1], -3.0 * X[:, 0], X[:, 0] + X[:, 1], X[:, 0] ** 2])
    assert standardize(x, WEIGHT).kept.tolist() == [True, True, False, False, True]
    assert standardize(x, WEIGHT, drop_dependent=False).kept.all()
