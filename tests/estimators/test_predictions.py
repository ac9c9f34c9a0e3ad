"""Every prediction against the law it is read from."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal

from ddpn import ConfigError, InputError, Mixture
from ddpn.estimators import predictions


@pytest.fixture(params=["double_poisson", "negative_binomial", "gaussian"])
def model(request, quick, counts, exposures):
    return quick(likelihood=request.param, epochs=20).fit(*counts, exposure=exposures)


@pytest.fixture
def law(model, counts, exposures) -> Mixture:
    return model.predict_distribution(counts[0], exposures)


def numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.numpy()


def test_points_are_those_of_the_law(model, law, counts, exposures):
    wanted = {"mean": law.mean, "median": law.icdf(torch.full((90,), 0.5, dtype=torch.float64)), "mode": law.mode}
    for statistic, values in wanted.items():
        assert (model.predict(counts[0], exposures, statistic) == numpy(values)).all(), statistic
    assert (model.predict(counts[0], exposures) == numpy(law.mean)).all()


def test_another_statistic_is_told(fitted, counts):
    with pytest.raises(ConfigError, match=r'statistic must be one of "mean", "median", "mode", got "max"\. Choose'):
        fitted.predict(counts[0], statistic="max")


def test_the_law_has_a_row_a_row_and_a_member_a_network(law):
    assert law.batch_shape == (90,)
    assert law.components.batch_shape == (90, 2)
    assert law.mean.dtype == torch.float64


def test_intervals_hold_their_share(model, law, counts, exposures):
    for kind in ("central", "highest"):
        low, high = model.predict_interval(counts[0], 0.8, exposures, kind).T
        assert low.dtype == np.int64
        assert (low >= 0).all()
        # Mass of [low, high], with half a count on either side for laws on the line.
        proba = model.predict_proba_of(counts[0], np.arange(high.max() + 1), exposures)
        inside = (np.arange(high.max() + 1) >= low[:, None]) & (np.arange(high.max() + 1) <= high[:, None])
        assert (np.where(inside, proba, 0.0).sum(1) >= 0.8 - 1e-9).all()


def test_intervals_of_counts_are_those_of_the_law(fitted, counts):
    low, high = fitted.predict_distribution(counts[0]).interval(0.9)
    assert (fitted.predict_interval(counts[0]) == np.stack([low, high], 1)).all()


def test_intervals_of_normals_are_rounded_outward(quick, counts):
    model = quick(likelihood="gaussian", members=1, epochs=20).fit(*counts)
    normal = model.predict_distribution(counts[0]).components
    assert isinstance(normal, Normal)
    ends = stats.norm(numpy(normal.loc), numpy(normal.scale))
    low, high = model.predict_interval(counts[0], 0.9).T
    assert (low == np.maximum(np.floor(ends.ppf(0.05).ravel()), 0)).all()
    assert (high == np.maximum(np.ceil(ends.ppf(0.95).ravel()), 0)).all()
    assert (ends.ppf(0.05) < 0).any(), "the data must make the bound at 0 matter"


@pytest.mark.parametrize("coverage", [0.0, 1.0, 90, -0.1, float("nan"), "0.9"])
def test_coverages_that_are_none_are_told(fitted, counts, coverage):
    with pytest.raises(InputError, match=r"coverage must lie strictly between 0 and 1, got .*\. Use 0\.9 for 90%"):
        fitted.predict_interval(counts[0], coverage)


def test_another_kind_of_interval_is_told(fitted, counts):
    with pytest.raises(ConfigError, match='kind must be "central" or "highest", got "widest"'):
        fitted.predict_interval(counts[0], kind="widest")


def test_quantiles_are_those_of_the_law(model, law, counts, exposures):
    found = model.predict_quantiles(counts[0], [0.1, 0.5, 0.99], exposures)
    assert found.shape == (90, 3)
    for column, q in zip(found.T, (0.1, 0.5, 0.99), strict=True):
        assert (column == numpy(law.icdf(torch.full((90,), q, dtype=torch.float64)))).all()
    assert (np.diff(found) >= 0).all()
    assert (model.predict_quantiles(counts[0], 0.5, exposures) == found[:, [1]]).all()


def test_levels_in_percent_are_told(fitted, counts):
    with pytest.raises(InputError, match=r"q must lie in \[0, 1\], got 10\. Give it as a fraction"):
        fitted.predict_quantiles(counts[0], [10, 90])


def test_variance_is_split(model, law, counts, exposures):
    parts = model.predict_uncertainty(counts[0], exposures)
    means, variances = numpy(law.components.mean), numpy(law.components.variance)
    assert parts["aleatoric"] == pytest.approx(variances.mean(1), rel=1e-12)
    assert parts["epistemic"] == pytest.approx(means.var(1), rel=1e-9, abs=1e-12)
    assert parts["total"] == pytest.approx(numpy(law.variance), rel=1e-12)


def test_one_member_has_nothing_to_disagree_with(quick, counts):
    model = quick(members=1).fit(*counts)
    parts = model.predict_uncertainty(counts[0])
    assert (parts["epistemic"] == 0).all()
    assert (parts["aleatoric"] > 0).all()


def test_probabilities_sum_to_one(model, counts, exposures):
    top = int(model.predict_quantiles(counts[0], 1 - 1e-12, exposures).max()) + 3
    proba = model.predict_proba_of(counts[0], np.arange(top), exposures)
    assert proba.shape == (90, top)
    assert proba.sum(1) == pytest.approx(1.0, abs=1e-9)
    assert (proba >= 0).all()


def test_probabilities_of_normals_are_those_of_rounding(quick, counts):
    model = quick(likelihood="gaussian", members=1).fit(*counts)
    normal = model.predict_distribution(counts[0]).components
    ends = stats.norm(numpy(normal.loc), numpy(normal.scale))
    found = model.predict_proba_of(counts[0], [0, 3])
    assert found[:, 0] == pytest.approx(ends.cdf(0.5).ravel(), rel=1e-9)
    assert found[:, 1] == pytest.approx((ends.cdf(3.5) - ends.cdf(2.5)).ravel(), rel=1e-7)


@pytest.mark.parametrize("values", [[-1], [0.5], ["a"], [np.nan]])
def test_probabilities_are_of_counts(fitted, counts, values):
    with pytest.raises(InputError, match="counts must "):
        fitted.predict_proba_of(counts[0], values)


def test_scores_are_means_over_rows(model, law, counts, exposures):
    X, y = counts
    weight = np.linspace(0.0, 3.0, len(y))
    observed = torch.from_numpy(y)
    for score, each in ((model.crps, law.crps(observed)), (model.nll, -law.log_prob(observed))):
        assert score(X, y, exposure=exposures) == pytest.approx(each.mean().item(), rel=1e-12)
        assert score(X, y, weight, exposures) == pytest.approx(np.average(numpy(each), weights=weight), rel=1e-12)


def test_a_row_is_predicted_alone_as_among_others(fitted, counts):
    X, _ = counts
    assert fitted.predict(X[4:5]) == pytest.approx(fitted.predict(X)[4:5], rel=1e-12)


def test_rows_beyond_a_block_are_predicted_too(fitted, counts, monkeypatch):
    X, y = counts
    wanted = fitted.predict(X), fitted.predict_interval(X), fitted.crps(X, y), fitted.predict_proba_of(X, [0, 1])
    monkeypatch.setattr(predictions, "BLOCK", 7)
    assert fitted.predict(X) == pytest.approx(wanted[0], rel=1e-12)
    assert (fitted.predict_interval(X) == wanted[1]).all()
    assert fitted.crps(X, y) == pytest.approx(wanted[2], rel=1e-12)
    assert fitted.predict_proba_of(X, [0, 1]) == pytest.approx(wanted[3], rel=1e-12)


def test_score_of_counts_that_are_all_zero_is_finite(quick, counts):
    model = quick().fit(*counts)
    assert model.score(counts[0], np.zeros(90)) == 0.0
    assert np.isfinite(model.score(*counts, sample_weight=(counts[1] == 0).astype(float)))


@pytest.mark.parametrize(
    "ask",
    ["predict", "predict_distribution", "predict_interval", "predict_uncertainty"],
)
def test_an_unfitted_model_says_so(quick, counts, ask):
    with pytest.raises(ValueError, match=r"This CountRegressor instance is not fitted yet"):
        getattr(quick(), ask)(counts[0])


# Exposure -------------------------------------------------------------------------------------------------------


def locations(law: Mixture) -> np.ndarray:
    return numpy(law.components.loc if isinstance(law.components, Normal) else law.components.mu)


def test_doubling_the_exposure_doubles_every_location(likelihood, quick, counts, exposures):
    model = quick(**likelihood).fit(*counts, exposure=exposures)
    one, two = (model.predict_distribution(counts[0], scale * exposures) for scale in (1.0, 2.0))
    assert locations(two) == pytest.approx(2.0 * locations(one), rel=1e-12)


def test_exposure_is_the_logarithm_of_an_offset(quick, counts, exposures):
    """Counts in proportion to the exposure and nothing else: a rate that is the ratio of the sums."""
    X, y = np.zeros_like(counts[0]), counts[1]
    model = quick(likelihood="poisson", epochs=100, hidden=()).fit(X, y, exposure=exposures)
    assert model.predict(X, exposure=1) == pytest.approx(y.sum() / exposures.sum(), rel=1e-3)


def test_an_exposure_given_to_fit_is_wanted_ever_after(quick, counts, exposures):
    model = quick().fit(*counts, exposure=exposures)
    for ask in (model.predict, model.predict_interval, model.predict_distribution, model.predict_uncertainty):
        with pytest.raises(
            InputError, match=r"exposure must be given as in fit, got None\. Pass exposure=1 for the rate"
        ):
            ask(counts[0])
    assert (model.predict(counts[0], exposure=1) == model.predict(counts[0], np.ones(90))).all()


def test_an_exposure_is_allowed_where_fit_had_none(fitted, counts):
    one, two = (locations(fitted.predict_distribution(counts[0], scale)) for scale in (None, 3.0))
    assert two == pytest.approx(3.0 * one, rel=1e-12)


@pytest.mark.parametrize("exposure", [0.0, -1.0, np.nan])
def test_exposures_that_are_none_are_told(fitted, counts, exposure):
    with pytest.raises(InputError, match=r"exposure must be finite and positive, got .* at row 0\. Recode"):
        fitted.predict(counts[0], exposure=exposure)
