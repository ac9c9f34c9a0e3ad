"""Every prediction against the distribution it is read from."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal

from ddpn import ConfigError, InputError, Mixture, discretized, predictor


@pytest.fixture(params=["double_poisson", "negative_binomial", "gaussian"], scope="module")
def model(request, quick, counts, exposures):
    return quick(likelihood=request.param, epochs=20).fit(*counts, exposure=exposures)


@pytest.fixture
def dist(model, counts, exposures) -> Mixture:
    return model.predict_distribution(counts[0], exposures)


@pytest.fixture(scope="module")
def normal(quick, counts):
    """One network that predicts Normals."""
    return quick(likelihood="gaussian", members=1, epochs=20).fit(*counts)


def ends_of(normal, X) -> stats.rv_continuous:
    found = normal.predict_distribution(X).components
    assert isinstance(found, Normal)
    return stats.norm(found.loc.numpy().ravel(), found.scale.numpy().ravel())


def test_points_are_those_of_the_distribution(model, dist, counts, exposures):
    rounded = discretized(dist)
    median = rounded.icdf(torch.full((90,), 0.5, dtype=torch.float64))
    wanted = {"mean": dist.mean, "median": median, "mode": rounded.mode}
    for statistic, values in wanted.items():
        assert (model.predict(counts[0], exposures, statistic) == values.numpy()).all(), statistic
    assert (model.predict(counts[0], exposures) == dist.mean.numpy()).all()


def test_there_is_a_component_per_network(dist):
    assert dist.batch_shape == (90,)
    assert dist.components.batch_shape == (90, 2)
    assert dist.mean.dtype == torch.float64


def test_intervals_hold_their_share(model, counts, exposures):
    X, exposures = counts[0][:20], exposures[:20]
    for kind in ("central", "highest"):
        low, high = model.predict_interval(X, 0.8, exposures, kind).T
        assert low.dtype == np.int64
        assert (low >= 0).all()
        # Mass of [low, high], with half a count on either side for Normals.
        counted = np.arange(high.max() + 1)
        proba = model.predict_proba_of(X, counted, exposures)
        inside = (counted >= low[:, None]) & (counted <= high[:, None])
        assert (np.where(inside, proba, 0.0).sum(1) >= 0.8 - 1e-9).all()


def test_intervals_of_counts_are_those_of_the_distribution(fitted, counts):
    low, high = fitted.predict_distribution(counts[0]).interval(0.9)
    assert (fitted.predict_interval(counts[0]) == np.stack([low, high], 1)).all()


def test_intervals_of_normals_are_those_of_their_rounded_values(normal, counts):
    ends = ends_of(normal, counts[0])
    low, high = normal.predict_interval(counts[0], 0.9).T
    assert (low == np.maximum(np.rint(ends.ppf(0.05)), 0)).all()
    assert (high == np.maximum(np.rint(ends.ppf(0.95)), 0)).all()
    assert (ends.ppf(0.05) < 0).any(), "the data must make the bound at 0 matter"


def test_quantiles_are_those_of_the_distribution(model, dist, counts, exposures):
    found = model.predict_quantiles(counts[0], [0.1, 0.5, 0.99], exposures)
    assert found.shape == (90, 3)
    for column, q in zip(found.T, (0.1, 0.5, 0.99), strict=True):
        assert (column == discretized(dist).icdf(torch.full((90,), q, dtype=torch.float64)).numpy()).all()
    assert (np.diff(found) >= 0).all()
    assert (model.predict_quantiles(counts[0], 0.5, exposures) == found[:, [1]]).all()


def test_quantiles_at_no_level_and_at_the_ends(fitted, counts):
    assert fitted.predict_quantiles(counts[0], []).shape == (90, 0)
    low, high = fitted.predict_quantiles(counts[0], (0, 1)).T
    assert (low == 0).all()
    assert (high >= fitted.predict_quantiles(counts[0], 0.999)[:, 0]).all()


def test_variance_is_split(model, dist, counts, exposures):
    parts = model.predict_uncertainty(counts[0], exposures)
    means, variances = dist.components.mean.numpy(), dist.components.variance.numpy()
    assert parts["aleatoric"] == pytest.approx(variances.mean(1), rel=1e-12)
    assert parts["epistemic"] == pytest.approx(means.var(1), rel=1e-9, abs=1e-12)
    assert parts["total"] == pytest.approx(dist.variance.numpy(), rel=1e-12)


def test_one_network_has_nothing_to_disagree_with(normal, counts):
    parts = normal.predict_uncertainty(counts[0])
    assert (parts["epistemic"] == 0).all()
    assert (parts["aleatoric"] > 0).all()


def test_probabilities_sum_to_one(model, counts, exposures):
    X, exposures = counts[0][:20], exposures[:20]
    top = int(model.predict_quantiles(X, 1 - 1e-12, exposures).max()) + 3
    proba = model.predict_proba_of(X, np.arange(top), exposures)
    assert proba.shape == (20, top)
    assert proba.sum(1) == pytest.approx(1.0, abs=1e-9)
    assert (proba >= 0).all()


def test_probabilities_of_normals_are_those_of_rounding(normal, counts):
    ends = ends_of(normal, counts[0])
    found = normal.predict_proba_of(counts[0], [0, 3])
    assert found[:, 0] == pytest.approx(ends.cdf(0.5), rel=1e-9)
    assert found[:, 1] == pytest.approx(ends.cdf(3.5) - ends.cdf(2.5), rel=1e-7)


def test_scores_are_means_over_rows(model, dist, counts, exposures):
    X, y = counts
    weight = np.linspace(0.0, 3.0, len(y))
    observed = torch.from_numpy(y)
    for score, each in ((model.crps, dist.crps(observed)), (model.nll, -dist.log_prob(observed))):
        assert score(X, y, exposure=exposures) == pytest.approx(each.mean().item(), rel=1e-12)
        assert score(X, y, weight, exposures) == pytest.approx(np.average(each.numpy(), weights=weight), rel=1e-12)


def test_a_row_is_predicted_alone_as_among_others(fitted, counts):
    X, _ = counts
    assert fitted.predict(X[4:5]) == pytest.approx(fitted.predict(X)[4:5], rel=1e-12)


def test_many_rows_are_predicted_as_few_are(quick, counts):
    X, y = counts
    model = quick(likelihood="mixed", numeric="piecewise", epochs=3).fit(X, y)
    many, times = np.tile(X, (12, 1)), (12, 1)
    found = model.predict(many)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.tile(model.predict(X), 12), rtol=1e-12)
    np.testing.assert_allclose(found[:3], [model.predict(X[i : i + 1])[0] for i in range(3)], rtol=1e-12)
    np.testing.assert_array_equal(model.predict_interval(many), np.tile(model.predict_interval(X), times))
    np.testing.assert_array_equal(
        model.predict_quantiles(many, [0.3, 0.99]), np.tile(model.predict_quantiles(X, [0.3, 0.99]), times)
    )
    assert model.crps(many, np.tile(y, 12)) == pytest.approx(model.crps(X, y), rel=1e-9)


def test_rows_beyond_a_block_are_predicted_too(fitted, counts, monkeypatch):
    X, y = counts
    wanted = fitted.predict(X), fitted.predict_interval(X), fitted.crps(X, y), fitted.predict_proba_of(X, [0, 1])
    monkeypatch.setattr(predictor, "BLOCK", 20)
    assert fitted.predict(X) == pytest.approx(wanted[0], rel=1e-12)
    assert (fitted.predict_interval(X) == wanted[1]).all()
    assert fitted.crps(X, y) == pytest.approx(wanted[2], rel=1e-12)
    assert fitted.predict_proba_of(X, [0, 1]) == pytest.approx(wanted[3], rel=1e-12)


def test_the_score_of_counts_that_are_all_zero_is_finite(fitted, counts):
    assert fitted.score(counts[0], np.zeros(90)) == 0.0
    assert np.isfinite(fitted.score(*counts, sample_weight=(counts[1] == 0).astype(float)))


# Exposure --------------------------------------------------------------------------------------------------------


def locations(dist: Mixture) -> np.ndarray:
    if isinstance(dist.components, Mixture):
        return locations(dist.components)
    parts = dist.components if isinstance(dist.components, tuple) else (dist.components,)
    return np.concatenate(
        [(part.loc if isinstance(part, Normal) else getattr(part, "base", part).mu).numpy() for part in parts], axis=-1
    )


def test_doubling_the_exposure_doubles_every_location(exposed, counts, exposures):
    one, two = (exposed.predict_distribution(counts[0], scale * exposures) for scale in (1.0, 2.0))
    assert locations(two) == pytest.approx(2.0 * locations(one), rel=1e-12)


def test_exposure_is_the_logarithm_of_an_offset(quick, counts, exposures):
    """Counts in proportion to the exposure and nothing else: a rate that is the ratio of the sums."""
    X, y = np.zeros_like(counts[0]), counts[1]
    model = quick(likelihood="poisson", epochs=100, hidden=()).fit(X, y, exposure=exposures)
    assert model.predict(X, exposure=1) == pytest.approx(y.sum() / exposures.sum(), rel=1e-3)


def test_an_exposure_given_to_fit_is_required_ever_after(model, counts):
    for ask in (model.predict, model.predict_interval, model.predict_distribution, model.predict_uncertainty):
        with pytest.raises(InputError, match=r"exposure is missing.*exposure=1"):
            ask(counts[0])
    assert (model.predict(counts[0], exposure=1) == model.predict(counts[0], np.ones(90))).all()


def test_an_exposure_is_allowed_where_fit_had_none(fitted, counts):
    one, two = (locations(fitted.predict_distribution(counts[0], scale)) for scale in (None, 3.0))
    assert two == pytest.approx(3.0 * one, rel=1e-12)


# What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "given", "error", "words"),
    [
        ("predict", {"statistic": "max"}, ConfigError, "statistic must .*mean.*median.*mode.* got .max."),
        ("predict", {"exposure": 0.0}, InputError, "exposure must be finite and positive, got 0 at row"),
        ("predict", {"exposure": np.nan}, InputError, "exposure must be finite and positive, got nan"),
        ("predict_interval", {"kind": "widest"}, ConfigError, "kind must .*central.*highest.* got .widest."),
        *(
            ("predict_interval", {"coverage": coverage}, InputError, "coverage must lie .*between 0 and 1, got")
            for coverage in (0.0, 1.0, 90, -0.1, float("nan"), "0.9")
        ),
        ("predict_quantiles", {"q": [10, 90]}, InputError, r"q must lie in \[0, 1\], got 10"),
        ("predict_quantiles", {"q": np.nan}, InputError, r"q must lie in \[0, 1\], got nan"),
        ("predict_quantiles", {"q": -0.1}, InputError, r"q must lie in \[0, 1\], got -0.1"),
        ("predict_quantiles", {"q": ["half"]}, InputError, "q must hold numbers, got"),
        (
            "predict_quantiles",
            {"q": [[0.5]]},
            InputError,
            "q must be a number or a list of numbers, got shape",
        ),
        *(
            ("predict_proba_of", {"counts": values}, InputError, "counts must ")
            for values in ([-1], [0.5], ["a"], [np.nan])
        ),
    ],
    ids=str,
)
def test_bad_arguments_are_reported(fitted, counts, ask, given, error, words):
    with pytest.raises(error, match=words):
        getattr(fitted, ask)(counts[0], **given)


@pytest.mark.parametrize("ask", ["predict", "predict_distribution", "predict_interval", "predict_uncertainty"])
def test_an_unfitted_model_is_reported(quick, counts, ask):
    with pytest.raises(ValueError, match="This DDPNRegressor instance is not fitted yet"):
        getattr(quick(), ask)(counts[0])
