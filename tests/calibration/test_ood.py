"""Out-of-distribution flags: ordinary rows are flagged as often as promised, unusual ones are found."""

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from ddpn import ConfigError, CountGLM, DDPNRegressor, InputError, Mixture
from ddpn.calibration.ood import OODScores
from ddpn.metrics import OOD_SCORES
from ddpn.paper.datasets import simulate


def gaps(x) -> list[Mixture]:
    """Two components that predict -x and x: x^2 is what they disagree about."""
    x = torch.as_tensor(x, dtype=torch.float64)
    return [Mixture(Normal(torch.stack([-x, x], 1), 1.0, validate_args=False))]


def fitted_to(x, alpha: float = 0.05) -> OODScores:
    return OODScores.fit(gaps(x), "epistemic", alpha)


def share_flagged(scores: OODScores, x, alpha: float | None = None) -> float:
    return scores.is_ood(scores.pvalue(gaps(x)), alpha).mean()


# How often ordinary rows are flagged -------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "alpha", "share"), [(19, 0.05, 0.05), (19, 0.12, 0.1), (30, 0.2, 6 / 31)])
def test_ordinary_rows_are_flagged_as_often_as_promised(n, alpha, share):
    rng = np.random.default_rng(2)
    flagged = [share_flagged(fitted_to(rng.gamma(2.0, 1.0, n), alpha), rng.gamma(2.0, 1.0, 40)) for _ in range(400)]
    # Given the calibration rows the share is Beta distributed: its deviation, over 400 of them.
    tolerance = 4 * np.sqrt(alpha * (1 - alpha) / (n + 2) / 400)
    assert np.mean(flagged) == pytest.approx(share, abs=tolerance)
    assert share <= alpha


def test_equal_scores_are_never_flagged_too_often():
    rng = np.random.default_rng(3)
    flagged = [share_flagged(fitted_to(rng.integers(0, 4, 50)), rng.integers(0, 4, 40), 0.3) for _ in range(200)]
    assert np.mean(flagged) <= 0.3
    assert share_flagged(fitted_to(np.full(50, 2.0)), np.full(9, 2.0)) == 0


def test_p_values_by_counting():
    found = fitted_to([3.0, 1.0, 2.0, 2.0], alpha=0.5)
    assert found.scores.tolist() == [1.0, 4.0, 4.0, 9.0]
    assert found.pvalue(gaps([0.5, 1.0, 2.0, 2.5, 3.0, 9.0])).tolist() == [1.0, 1.0, 0.8, 0.4, 0.4, 0.2]
    assert found.is_ood(np.array([0.8, 0.4])).tolist() == [False, True]
    assert found.is_ood(np.array([0.4, 0.2]), alpha=0.2).tolist() == [False, True]


def test_a_score_that_is_not_a_number_is_the_most_unusual():
    found = fitted_to(np.arange(1.0, 40.0))
    assert found.pvalue(gaps([np.nan, np.inf, 2.0])).tolist() == [1 / 40, 1 / 40, 39 / 40]


# Two scores as one --------------------------------------------------------------------------------------------------


def both(x, features, alpha: float = 0.05) -> OODScores:
    return OODScores.fit(gaps(x), "epistemic", alpha, np.asarray(features, dtype=float))


@pytest.mark.parametrize(("n", "alpha"), [(19, 0.05), (40, 0.1), (200, 0.05)])
@pytest.mark.parametrize("shared", [0.0, 0.9])
def test_two_scores_flag_ordinary_rows_at_most_as_often_as_promised(n, alpha, shared):
    rng = np.random.default_rng(4)
    flagged = []
    for _ in range(400):
        x = rng.gamma(2.0, 1.0, n + 40)
        features = shared * x + rng.gamma(2.0, 1.0, n + 40)
        scores = both(x[:n], features[:n], alpha)
        flagged.append((scores.pvalue(gaps(x[n:]), features[n:]) <= alpha).mean())
    deviation = np.std(flagged) / np.sqrt(400)
    assert np.mean(flagged) <= alpha + 4 * deviation
    # A calibration row counts at most two ranks too early.
    assert np.mean(flagged) >= alpha - 3.0 / (n + 1.0) - 4 * deviation


def test_the_pvalue_is_never_below_that_of_ranking_all_rows_alike():
    rng = np.random.default_rng(5)
    x, features = rng.integers(0, 6, (2, 13)).astype(float)
    for row in range(13):
        rest = np.delete(np.arange(13), row)
        ranks = np.stack([(s[None, :] >= s[:, None]).sum(1) for s in (x, features)]).min(0)
        order = list(zip(ranks.tolist(), (-features).tolist(), strict=True))
        exact = sum(each <= order[row] for each in order) / 13
        (ours,) = both(x[rest], features[rest], 0.5).pvalue(gaps(x[row : row + 1]), features[row : row + 1])
        assert exact <= ours <= exact + 3 / 13


def test_a_row_that_one_score_finds_gets_the_smallest_pvalue_by_its_features():
    rng = np.random.default_rng(6)
    scores = both(rng.gamma(2.0, 1.0, 60), rng.gamma(2.0, 1.0, 60))
    found = scores.pvalue(gaps([0.0, 50.0, 0.0]), np.array([50.0, 0.0, 0.0]))
    # The highest of the feature scores comes before a row that only its prediction makes unusual.
    assert found[0] == 1 / 61
    assert 2 / 61 <= found[1] <= 3 / 61
    assert found[2] == 1.0


# What is found -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wave() -> tuple[DDPNRegressor, np.ndarray, np.ndarray, np.ndarray]:
    """A model of the wave, rows to calibrate with, others like them, and rows on either side of the wave."""
    data = simulate("wave", n=1600, shares=(0.5, 0.25, 0.25))
    train, known, new = (data.X[rows] for rows in data.split)
    model = DDPNRegressor(
        likelihood="double_poisson",
        members=3,
        hidden=(64, 64),
        numeric="standard",
        epochs=30,
        random_state=0,
        training_options={"batch_size": 64},
    )
    outside = np.r_[np.linspace(-6, -2, 100), np.linspace(2 * np.pi + 2, 2 * np.pi + 6, 100)][:, None]
    return model.fit(train, data.y[data.split.train]), known, new, outside


@pytest.mark.parametrize("kind", [kind for kind in OOD_SCORES if kind != "none"])
def test_new_rows_of_the_same_kind_are_seldom_flagged(wave, kind):
    model, known, new, _ = wave
    # Twice 400 rows: four deviations of a difference of two shares of about 0.1.
    for features in (True, False):
        model.fit_ood(known, kind=kind, alpha=0.1, features=features)
        assert model.is_ood(new).mean() == pytest.approx(0.1, abs=0.085)


def test_disagreement_finds_rows_outside_the_training_region_and_is_the_default(wave):
    model, known, _, outside = wave
    found = {kind: model.fit_ood(known, kind=kind, features=False).is_ood(outside).mean() for kind in OOD_SCORES}
    assert min(found["mutual_information"], found["epistemic"]) > max(
        0.9, found["variance"] + 0.2, found["entropy"] + 0.2
    )
    assert model.fit_ood(known).predictor_.ood.kind == "mutual_information"


def test_exposure_is_used(quick, counts, exposures):
    model = quick().fit(*counts, exposure=exposures)
    model.fit_ood(counts[0], exposures, kind="variance", features=False)
    variance = model.predict_uncertainty(counts[0], exposures)["total"]
    assert model.predictor_.ood.scores == pytest.approx(np.sort(variance), rel=1e-12)
    assert model.is_ood(counts[0], exposure=1000 * exposures).all()
    assert model.ood_pvalue(counts[0], 1e-3 * exposures).min() > 0.5
    with pytest.raises(InputError, match="exposure is missing"):
        model.is_ood(counts[0])
    assert len(model.fit_ood(counts[0], 2.0).predictor_.ood.scores) == 90


def test_a_linear_model_has_variance_and_entropy(counts):
    model = CountGLM(likelihood="poisson").fit(*counts)
    for kind in ("variance", "entropy"):
        assert model.fit_ood(counts[0], kind=kind).is_ood([[9.0, 0.0, 0.0]]).tolist() == [True]
    for kind in ("mutual_information", "epistemic"):
        with pytest.raises(InputError, match=rf"at least 2 .*{kind}"):
            model.fit_ood(counts[0], kind=kind)
    assert model.predictor_.ood.kind == "entropy"
    assert model.fit_ood(counts[0]).predictor_.ood.kind == "variance"


@pytest.mark.parametrize("kind", [DDPNRegressor, CountGLM])
def test_a_new_fit_forgets_the_calibration(quick, counts, kind):
    model = quick(epochs=1) if kind is DDPNRegressor else CountGLM(likelihood="poisson")
    model.fit(*counts).fit_ood(counts[0], kind="variance").fit(*counts)
    with pytest.raises(InputError, match="not calibrated: call fit_ood"):
        model.ood_pvalue(counts[0])


# What is refused ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def calibrated(quick, counts) -> DDPNRegressor:
    return quick().fit(*counts).fit_ood(np.random.default_rng(8).normal(size=(99, 3)), alpha=0.1)


def test_too_few_rows_for_alpha_are_reported(calibrated, counts):
    words = r"alpha must be at least 1 / \(n \+ 1\) = 0.01 with n = 99 calibration rows, got 0.009"
    with pytest.raises(InputError, match=words):
        calibrated.is_ood(counts[0], alpha=0.009)
    assert calibrated.is_ood(50.0 * counts[0], alpha=0.01).any()
    with pytest.raises(InputError, match=r"with n = 18 calibration rows, got 0.05"):
        calibrated.fit_ood(counts[0][:18])
    assert len(calibrated.predictor_.ood.scores) == 99  # a refused calibration leaves the old one


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 5, float("nan"), "0.05"])
def test_bad_rates_are_reported(calibrated, counts, alpha):
    with pytest.raises(ConfigError, match="alpha must lie between 0 and 1, got"):
        calibrated.is_ood(counts[0], alpha=alpha)
    with pytest.raises(ConfigError, match="alpha must lie between 0 and 1, got"):
        calibrated.fit_ood(counts[0], alpha=alpha)


def test_the_order_of_calls_and_bad_names_are_reported(fitted, quick, counts):
    with pytest.raises(InputError, match="not calibrated: call fit_ood"):
        fitted.is_ood(counts[0])
    with pytest.raises(ValueError, match="not fitted"):
        quick().fit_ood(counts[0])
    with pytest.raises(ConfigError, match=r"kind must be one of variance, epistemic, .*got 'strange'"):
        fitted.fit_ood(counts[0], kind="strange")
    with pytest.raises(ValueError, match="0 sample"):
        fitted.fit_ood(counts[0][:0])
