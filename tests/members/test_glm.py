"""Test GLMs and the constant as members: exact on training rows, bounded beyond them, and not always applicable."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
import torch
from scipy import optimize, stats

from ddpn import CountGLM
from ddpn.distributions import NegativeBinomial
from ddpn.distributions.limits import apply_record_limits
from ddpn.members.constant import Constant
from ddpn.members.design import Design
from ddpn.members.glm import GLM, PoissonGLM
from ddpn.members.linear import fit_linear
from ddpn.members.member import MemberSpec, NotApplicableError, Task
from ddpn.networks.heads import make_head
from ddpn.rows.count_rows import CountRows
from ddpn.tables.encoding import FeatureEncoder
from ddpn.tables.reading import read_table


@pytest.fixture(scope="module")
def line() -> CountRows:
    """200 rows whose log mean is a line."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3))
    return CountRows(X, rng.poisson(np.exp(0.5 + 0.6 * X[:, 0])).astype(float))


def compute_raw(member: GLM, X: np.ndarray) -> np.ndarray:
    return member.raw(X)[:, 0].numpy()


def test_the_member_is_the_glm_of_the_encoded_rows_and_goes_no_further(line, monkeypatch):
    monkeypatch.setattr(GLM, "prior_deviations", (5**0.5, 5**0.5))  # with 200 rows, a ridge penalty of 1 / (200 x 5)
    member = MemberSpec.from_task("glm", Task(make_head("double_poisson", beta=0.5))).fit(line, None, seed=0)
    encoded = FeatureEncoder().fit(line.X).transform(line.X).astype(float)
    glm = CountGLM(alpha=1e-3, location="mu", dispersion="linear").fit(encoded, line.y)
    dist = glm.predict_distribution(encoded).distribution.components
    expected = np.c_[dist.mu.log(), dist.gamma.log()]
    assert compute_raw(member, line.X) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    far = compute_raw(member, 50.0 * line.X)
    assert far.max(0) == pytest.approx(expected.max(0))
    assert far.min(0) == pytest.approx(expected.min(0))


def test_slopes_are_the_mode_under_their_normal_priors():
    """The optimum that scipy finds for the sum of log-likelihoods and log priors, for slopes of a Negative Binomial."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 2))
    y = rng.poisson(np.exp(1.0 + 0.5 * X[:, 0]) * rng.gamma(2.0, 0.5, 80)).astype(float)
    member = GLM.fit(CountRows(X, y), None, seed=0, head=make_head("negative_binomial"))
    Z = (X - X.mean(0)) / X.std(0)

    def compute_loss(theta):
        mean, alpha = np.exp(theta[0] + Z @ theta[1:3]), np.exp(theta[3] + Z @ theta[4:6])
        log_likelihood = stats.nbinom(1.0 / alpha, 1.0 / (1.0 + alpha * mean)).logpmf(y).sum()
        log_prior = stats.norm(0, 1 / 4).logpdf(theta[1:3]).sum() + stats.norm(0, 1 / 16).logpdf(theta[4:6]).sum()
        return -log_likelihood - log_prior

    theta = optimize.minimize(compute_loss, np.zeros(6), method="BFGS", options={"gtol": 1e-6}).x
    expected = np.c_[theta[0] + Z @ theta[1:3], theta[3] + Z @ theta[4:6]]
    assert compute_raw(member, X) == pytest.approx(expected, abs=1e-4)


def test_few_rows_with_many_columns_are_not_predicted_extremely():
    """40 rows and 12 columns, of which one matters: fresh rows cost little more than under the simulated means.

    Without priors, the mean surprisal is 440 and the largest 30,000.
    """
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1_040, 12))
    y = rng.poisson(np.exp(1.0 + 0.5 * X[:, 0])).astype(float)
    member = GLM.fit(CountRows(X[:40], y[:40]), None, seed=0)
    dist = member.distribution(read_table(X[40:]))
    surprisal = -dist.log_prob(torch.from_numpy(y[40:, None])).numpy()
    best = -stats.poisson(np.exp(1.0 + 0.5 * X[40:, 0])).logpmf(y[40:])
    assert surprisal.mean() < best.mean() + 0.5
    assert surprisal.max() < best.max() + 10.0


@pytest.mark.parametrize("case", ["columns", "zeros", "zeros among those drawn"])
def test_a_glm_of_many_columns_or_zeros_is_not_applicable(line, monkeypatch, case):
    words = "it has 3 inputs, but a GLM is fitted to at most 2" if case == "columns" else "no count above 0"
    if case == "columns":
        monkeypatch.setattr(GLM, "max_columns", 2)
        sample = line
    else:
        sample = line.replace(y=np.zeros(200))
    if case == "zeros among those drawn":
        monkeypatch.setattr(GLM, "max_rows", 10)
        drawn = np.random.default_rng(0).choice(200, 10, replace=False)
        sample.y[np.setdiff1d(np.arange(200), drawn)[0]] = 7.0
    with pytest.raises(NotApplicableError, match=words):
        GLM.fit(sample, None, seed=0, head=make_head("poisson"))


def test_the_poisson_glm_is_that_of_statsmodels(sample_of_all_kinds):
    X, y, weight, exposure = (
        sample_of_all_kinds.X,
        sample_of_all_kinds.y,
        sample_of_all_kinds.weight,
        sample_of_all_kinds.exposure,
    )
    task = Task(make_head("double_poisson"))
    member = MemberSpec.from_task("poisson_glm", task).fit(sample_of_all_kinds, None, seed=0)
    age = X["age"].to_numpy()
    missing = np.isnan(age)
    columns = [np.ones(250), X["x"], np.where(missing, 0.0, age), missing, X["ward"] == "B", X["ward"] == "C"]
    design = np.column_stack([np.asarray(column, dtype=float) for column in [*columns, X["smokes"]]])
    glm = sm.GLM(y, design, sm.families.Poisson(), offset=np.log(exposure), freq_weights=weight).fit()
    # Apart from the trace of ridge.
    assert member.distribution(X, exposure).mean.numpy()[:, 0] == pytest.approx(glm.fittedvalues, rel=5e-3)
    assert not PoissonGLM.is_clipped


@pytest.mark.parametrize("kind", [GLM, PoissonGLM])
def test_constant_and_duplicated_columns_change_no_prediction(line, kind):
    sample = line.rows(np.resize(np.arange(200), 1500))
    plain = kind.fit(sample, None, seed=0, head=make_head("poisson"))
    constant = np.c_[sample.X, np.full(1500, 7.3)]
    assert compute_raw(
        kind.fit(sample.replace(X=constant), None, seed=0, head=make_head("poisson")), constant
    ) == pytest.approx(compute_raw(plain, sample.X), abs=1e-9)
    doubled = np.c_[sample.X, sample.X]
    fitted = kind.fit(sample.replace(X=doubled), None, seed=0, head=make_head("poisson"))
    # The penalty of two equal columns is half of that of one.
    assert compute_raw(fitted, doubled) == pytest.approx(compute_raw(plain, sample.X), abs=1e-2)


@pytest.mark.parametrize("rough", [True, False])
def test_a_member_that_does_not_converge_says_so(line, monkeypatch, rough):
    from ddpn.members import linear_search

    monkeypatch.setattr(linear_search, "_ROUGH_ROUNDS" if rough else "_POLISH_STEPS", (1, 1) if rough else 0)
    monkeypatch.setattr(linear_search, "_MAX_DECREMENT", 0.0)
    monkeypatch.setattr(linear_search, "_MAX_CLOSE_DECREMENT", 0.0)
    with pytest.warns(UserWarning, match="GLM did not reach the maximum"):
        MemberSpec.from_task("glm", Task(make_head("negative_binomial"), is_rough=rough)).fit(line, None, seed=0)


def test_a_rough_fit_is_close_to_the_maximum_where_counts_vary_much():
    """The constant Double Poisson of these counts has mu = e^-15, on a plateau where the location has no slope."""
    rng = np.random.default_rng(3)
    X = rng.beta(1.0, 3.0, (1500, 1))
    sample = CountRows(X, rng.poisson(np.exp(-2.0 + 7.0 * X[:, 0])).astype(float))
    exact, rough = (
        fit_linear(make_head("double_poisson"), X, sample.replace(X=None), (True, True), 1e-3, is_rough=is_rough)
        for is_rough in (False, True)
    )
    objective = exact.objective
    assert objective.value(objective.constant) > objective.value(exact.optimum.theta) + 0.5
    assert objective.value(rough.optimum.theta) == pytest.approx(objective.value(exact.optimum.theta), abs=1e-4)
    assert rough.optimum.converged


COLUMNS = {"age": [31.0, 67.0, 40.0], "ward": ["B", "A", "C"], "smokes": [True, False, True]}


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_categories_are_differences_from_the_first_level(library):
    table = read_table(library.DataFrame(COLUMNS))
    design = Design.from_table(table)
    assert design.list_input_names() == ["age", "ward = B", "ward = C", "smokes"]
    expected = pd.get_dummies(pd.DataFrame(COLUMNS), columns=["ward"], drop_first=True)
    expected = expected[["age", "ward_B", "ward_C", "smokes"]].to_numpy(dtype=float)
    np.testing.assert_array_equal(design.matrix(table), expected)
    assert (Design.from_dict(design.as_dict()).encode(library.DataFrame(COLUMNS)) == expected).all()


# The most likely distribution without inputs --------------------------------------------------------------------------

RNG = np.random.default_rng(4)


def fit_constant(y: np.ndarray, weight=None, exposure=None) -> Constant:
    return Constant.fit(CountRows(np.zeros((len(y), 1)), y, weight, exposure), None, seed=0)


def test_the_constant_is_the_most_likely_negative_binomial_of_overdispersed_counts():
    y = RNG.negative_binomial(2.0, 2.0 / 7.0, 2000).astype(float)
    fitted = fit_constant(y)
    assert fitted.likelihood == "negative_binomial"

    def loss(theta: np.ndarray) -> float:
        size = np.exp(theta[1])
        return -stats.nbinom.logpmf(y, size, size / (size + np.exp(theta[0]))).sum()

    best = optimize.minimize(loss, [np.log(y.mean()), 0.0], method="BFGS").fun
    dist = fitted.distribution(np.zeros((2000, 1)))
    assert isinstance(dist, NegativeBinomial)
    assert dist.batch_shape == (2000, 1)
    assert -dist.log_prob(torch.from_numpy(y)[:, None]).sum().item() == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("y", [np.zeros(5), np.array([3.0]), np.full(9, 1e6)], ids=["zeros", "one row", "equal"])
def test_the_constant_of_hard_cases_is_finite(y):
    assert np.isfinite(fit_constant(y).distribution(np.zeros((1, 1))).mean.item())


def test_the_constant_has_the_rate_of_all_rows():
    exposure, weight = RNG.uniform(50.0, 400.0, 400), RNG.integers(1, 4, 400).astype(float)
    y = RNG.poisson(exposure * 0.05).astype(float)
    fitted = fit_constant(y, weight, exposure)
    rate = (weight @ y) / (weight @ exposure)
    mean = fitted.distribution(np.zeros((400, 1)), exposure).mean.numpy()[:, 0]
    assert (weight @ mean) / (weight @ exposure) == pytest.approx(rate, rel=0.02)
    assert mean / exposure == pytest.approx(np.full(400, mean[0] / exposure[0]), rel=0.02)


def test_bounded_and_censored_counts_have_their_own_maximum():
    """Compare positive Poisson counts, and Poisson counts up to 4 of known rates, with the closed forms of scipy."""
    y = RNG.poisson(2.0, 4000).astype(float)
    positive, cut = y[y > 0], np.minimum(y, 4.0)
    n = len(positive)
    samples = {
        "truncated": CountRows(np.zeros((n, 1)), positive, lower=np.ones(n)),
        "censored": CountRows(np.zeros((4000, 1)), cut, limit=np.full(4000, 4.0)),
    }
    losses = {
        "truncated": lambda mu: -(stats.poisson.logpmf(positive, mu) - stats.poisson.logsf(0, mu)).sum(),
        "censored": lambda mu: -np.where(cut < 4, stats.poisson.logpmf(cut, mu), stats.poisson.logsf(3, mu)).sum(),
    }
    for name, sample in samples.items():
        fitted = Constant.fit(sample, None, seed=0)
        best = optimize.minimize_scalar(losses[name], bounds=(1.0, 3.0), method="bounded")
        assert fitted.distribution(np.zeros((1, 1))).mean.item() == pytest.approx(best.x, rel=0.06)
        dist = apply_record_limits(fitted.distribution(sample.X), sample)
        value = -dist.log_prob(torch.from_numpy(sample.y)[:, None]).sum().item()
        assert best.fun - 10 < value <= best.fun + 0.01  # families of more parameters fit a little better


# Weights --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_weight_is_a_repeated_row(seed):
    """Compare the encoding, too: means, standard deviations and shares of missing values."""
    rng = np.random.default_rng(seed)
    X = rng.gamma(1.0, size=(150, 2))
    X[rng.random((150, 2)) < 0.25] = np.nan
    y = rng.poisson(np.exp(1.0 + 0.3 * np.nan_to_num(X[:, 0], nan=0.5))).astype(float)
    weight = rng.integers(1, 6, 150)
    weighted = GLM.fit(CountRows(X, y, weight.astype(float)), None, 0)
    repeated = GLM.fit(CountRows(np.repeat(X, weight, axis=0), np.repeat(y, weight)), None, 0)
    ours, theirs = (member.distribution(X).mean.numpy() for member in (weighted, repeated))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("heavy", [0, 1])
def test_weights_choose_the_family_of_censored_counts(heavy):
    """Half of the rows are Poisson counts and half have long tails: the half with the weight chooses."""
    rng = np.random.default_rng(0)
    half = np.arange(400) % 2
    mean = np.where(half == 0, 6.0, 6.0 * rng.gamma(0.5, 2.0, 400))
    limit = np.full(400, 12.0)
    sample = CountRows(np.zeros((400, 1)), np.minimum(rng.poisson(mean), limit), np.where(half == heavy, 1e3, 1.0))
    options = GLM.choose_options(Task(make_head("mixed")))
    families = {options["head"].name, *(head.name for head in options["other_heads"])}
    assert {"double_poisson", "negative_binomial"} <= families
    alone = sample.rows(half == heavy).replace(weight=None, limit=limit[half == heavy])
    member = GLM.fit(sample.replace(limit=limit), None, seed=0, **options)
    assert member.head.name == GLM.fit(alone, None, seed=0, **options).head.name
