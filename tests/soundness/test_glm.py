"""Test GLMs against simulated truth: no member ends on a plateau, and Wald intervals cover what was simulated."""

import numpy as np
import pytest

from ddpn import CountGLM, CountRegressor


def draw_beta_table(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.beta(1.0, 3.0, (rows, 1))
    return X, rng.poisson(np.exp(-2.0 + 7.0 * X[:, 0]))


def draw_exponential_table(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.exponential(1.0, (rows, 1))
    return X, rng.poisson(np.exp(-1.0 + 0.8 * X[:, 0]))


SHAPES = {
    "beta 1500": (draw_beta_table, 1500),
    "beta 500": (draw_beta_table, 500),
    "exponential": (draw_exponential_table, 1000),
}


# One input explains nearly all, and one row of an exponential input may have much of the sum: both are asked about.
@pytest.mark.filterwarnings("ignore:Column x0 predicts the target nearly without error", "ignore:One of 1,000 training")
@pytest.mark.parametrize(("make_table", "rows"), SHAPES.values(), ids=SHAPES.keys())
def test_no_copy_of_the_glm_member_ends_on_a_plateau(make_table, rows):
    """Constant counts that vary this much have a Double Poisson with mu = e^-15, from which no search leads away."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        model = CountRegressor(members=["glm"], random_state=seed).fit(*make_table(rng, rows))
        copies = model.predictor_.members["glm"].copies
        assert min(copy.linear.base[0] for copy in copies) > -5.0
        X, _ = make_table(rng, 2000)
        dist = model.predict_distribution(X)
        is_large = dist.mean >= np.quantile(dist.mean, 0.9)
        ratio = (dist.variance / dist.mean)[is_large].mean()
        assert 0.5 < ratio < 2.0, "Poisson counts have a variance of once the mean; on the plateau it was 5 to 15 times"


def test_the_glm_member_is_as_good_as_the_glm_of_its_rows():
    rng = np.random.default_rng(3)
    X, y = draw_beta_table(rng, 1500)
    new, counts = draw_beta_table(rng, 6000)
    member = CountRegressor(members=["glm"], random_state=0).fit(X, y)
    assert member.crps(new, counts) == pytest.approx(CountGLM("poisson").fit(X, y).crps(new, counts), rel=0.02)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_wald_intervals_of_the_default_cover_under_a_negative_binomial(alpha):
    """Cover intercept, slope and a column of noise by 95% intervals."""
    truth, covered = np.array([0.5, 0.5, 0.0]), []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(300, 2))
        mean = np.exp(truth[0] + truth[1] * X[:, 0])
        table = CountGLM().fit(X, rng.negative_binomial(1 / alpha, 1 / (1 + alpha * mean))).coefficient_table()
        covered.append((table.low[:3] <= truth) & (truth <= table.high[:3]))
    share = np.mean(covered, axis=0)
    # 25 tables: 0.94 +- 0.047 per coefficient, +- 0.027 for all three together.
    assert share.min() >= 0.80
    assert 0.87 <= share.mean() <= 1.0


def test_rate_ratios_of_overdispersed_counts_are_those_that_were_simulated():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2))
    y = rng.negative_binomial(0.5, 1 / (1 + 2 * np.exp(0.5 + 0.5 * X[:, 0])))
    model = CountGLM().fit(X, y)
    table = model.coefficient_table()
    assert np.abs(table.estimate[:3] - [0.5, 0.5, 0.0]).max() < 0.15
    assert table.p[1] < 1e-6
    assert table.p[2] > 0.01
    ratios = model.summary().columns["rate ratio"]
    np.testing.assert_allclose(ratios[1:], np.exp(table.estimate[1:3]))


def test_clustered_intervals_cover_where_rows_of_a_group_are_alike():
    """With an effect per group, errors for independent rows cover far too little."""
    covered = {"clustered": 0, "independent": 0}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(60), 8)
        X = np.repeat(rng.normal(size=(60, 1)), 8, axis=0)
        effect = np.repeat(rng.gamma(2.0, 0.5, 60), 8)  # mean 1
        y = rng.poisson(np.exp(0.5 + 0.3 * X[:, 0]) * effect)
        for name, labels in (("clustered", groups), ("independent", None)):
            table = CountGLM("poisson", covariance="robust").fit(X, y, groups=labels).coefficient_table()
            covered[name] += bool(table.low[1] <= 0.3 <= table.high[1])
    assert covered["clustered"] >= 33
    assert covered["independent"] <= 30
