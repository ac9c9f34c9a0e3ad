"""Rows unlike those a model knows: the flag keeps its promise, tells strange rows, and stays with the model."""

import json
import pickle
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from safetensors.numpy import save as save_arrays
from sklearn.base import clone
from torch.distributions import Normal

from ddpn import ConfigError, CountGLM, CountRegressor, InputError
from ddpn.calibration.ood import OutsideDetection
from ddpn.datasets import simulate
from ddpn.distributions import Mixture
from ddpn.estimators import saving
from ddpn.metrics import OOD_SCORES


class Gaps(OutsideDetection):
    """Two members that predict -x and x: x^2 is what they disagree about."""

    def _blocks(self, X: np.ndarray, exposure: None) -> Iterator[Mixture]:
        x = torch.as_tensor(X, dtype=torch.float64)
        yield Mixture(Normal(torch.stack([-x, x], 1), 1.0))


@pytest.fixture
def calibrated(fitted) -> CountRegressor:
    copy = pickle.loads(pickle.dumps(fitted))
    return copy.fit_ood(np.random.default_rng(8).normal(size=(99, 3)), alpha=0.1)


@pytest.fixture(scope="module")
def wave() -> tuple[CountRegressor, np.ndarray, np.ndarray, np.ndarray]:
    """A model of the wave, rows to calibrate with, others of the same kind, and rows on either side of the wave."""
    data = simulate("wave", n=1600, shares=(0.5, 0.25, 0.25))
    train, known, new = (data.X[rows] for rows in data.split)
    model = CountRegressor(members=3, hidden=(64, 64), numeric="standard", epochs=30, random_state=0)
    outside = np.r_[np.linspace(-6, -2, 100), np.linspace(2 * np.pi + 2, 2 * np.pi + 6, 100)][:, None]
    return model.fit(train, data.y[data.split.train]), known, new, outside


# The promise ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "alpha", "share"), [(19, 0.05, 0.05), (19, 0.12, 0.1), (30, 0.2, 6 / 31)])
def test_usual_rows_are_flagged_as_often_as_promised(n, alpha, share):
    rng = np.random.default_rng(2)
    flagged = [
        Gaps().fit_ood(rng.gamma(2.0, 1.0, n), kind="epistemic", alpha=alpha).is_ood(rng.gamma(2.0, 1.0, 40)).mean()
        for _ in range(800)
    ]
    # Given the calibration rows the share is Beta distributed: its deviation, over 800 of them.
    tolerance = 4 * np.sqrt(alpha * (1 - alpha) / (n + 2) / 800)
    assert np.mean(flagged) == pytest.approx(share, abs=tolerance)
    assert share <= alpha


def test_equal_scores_are_never_flagged_too_often():
    rng = np.random.default_rng(3)
    flagged = [
        Gaps().fit_ood(rng.integers(0, 4, 50), kind="epistemic").is_ood(rng.integers(0, 4, 40), alpha=0.3).mean()
        for _ in range(200)
    ]
    assert np.mean(flagged) <= 0.3
    assert not Gaps().fit_ood(np.full(50, 2.0), kind="epistemic").is_ood(np.full(9, 2.0)).any()


def test_p_values_by_counting():
    model = Gaps().fit_ood([3.0, 1.0, 2.0, 2.0], kind="epistemic", alpha=0.5)
    assert model.ood_scores_.tolist() == [1.0, 4.0, 4.0, 9.0]
    assert model.ood_pvalue([0.5, 1.0, 2.0, 2.5, 3.0, 9.0]).tolist() == [1.0, 1.0, 0.8, 0.4, 0.4, 0.2]
    assert model.is_ood([2.0, 2.5]).tolist() == [False, True]
    assert model.is_ood([2.5, 9.0], alpha=0.2).tolist() == [False, True]


def test_a_score_that_is_no_number_is_the_strangest():
    model = Gaps().fit_ood(np.arange(1.0, 40.0), kind="epistemic")
    model._ood_scores = lambda *given: np.array([np.nan, np.inf, 4.0])
    assert model.ood_pvalue([0.0] * 3).tolist() == [1 / 40, 1 / 40, 39 / 40]


# What it finds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(OOD_SCORES))
def test_new_rows_of_the_same_kind_are_seldom_flagged(wave, kind):
    model, known, new, _ = wave
    # Twice 400 rows: four deviations of a difference of two shares of about 0.1.
    assert model.fit_ood(known, kind=kind, alpha=0.1).is_ood(new).mean() == pytest.approx(0.1, abs=0.085)


def test_disagreement_tells_rows_outside_the_training_region_and_is_the_default(wave):
    model, known, _, outside = wave
    found = {kind: model.fit_ood(known, kind=kind).is_ood(outside).mean() for kind in OOD_SCORES}
    assert min(found["mutual_information"], found["epistemic"]) > max(
        0.9, found["variance"] + 0.2, found["entropy"] + 0.2
    )
    assert model.fit_ood(known).ood_kind_ == "mutual_information"


def test_exposure_reaches_the_scores(quick, counts, exposures):
    model = quick().fit(*counts, exposure=exposures).fit_ood(counts[0], exposures, kind="variance")
    variance = model.predict_uncertainty(counts[0], exposures)["total"]
    assert model.ood_scores_ == pytest.approx(np.sort(variance), rel=1e-12)
    assert model.is_ood(counts[0], exposure=1000 * exposures).all()
    assert model.ood_pvalue(counts[0], 1e-3 * exposures).min() > 0.5
    with pytest.raises(InputError, match="exposure must be given as in fit"):
        model.is_ood(counts[0])


def test_a_linear_model_has_variance_and_entropy(counts):
    model = CountGLM(likelihood="poisson").fit(*counts)
    far = [[9.0, 0.0, 0.0]]
    for kind in ("variance", "entropy"):
        assert model.fit_ood(counts[0], kind=kind).is_ood(far).tolist() == [True]
    told = (
        r'kind must be "variance" or "entropy", got "mutual_information": the model has one member, .* Pass kind="var'
    )
    with pytest.raises(InputError, match=told):
        model.fit_ood(counts[0])
    with pytest.raises(InputError, match='kind must be "variance" or "entropy", got "epistemic"'):
        model.fit_ood(counts[0], kind="epistemic")
    assert model.ood_kind_ == "entropy"


# Staying with the model -----------------------------------------------------------------------------------------


def same(ours: OutsideDetection, theirs: OutsideDetection, X: np.ndarray) -> bool:
    assert (theirs.ood_kind_, theirs.ood_alpha_) == (ours.ood_kind_, ours.ood_alpha_)
    assert (theirs.is_ood(X) == ours.is_ood(X)).all()
    return bool((theirs.ood_pvalue(X) == ours.ood_pvalue(X)).all())


def test_a_saved_model_keeps_its_flags(calibrated, counts, tmp_path):
    calibrated.save(tmp_path / "model")
    assert same(calibrated, CountRegressor.load(tmp_path / "model"), 3.0 * counts[0])
    assert 0.0 < calibrated.is_ood(3.0 * counts[0]).mean() < 1.0
    CountRegressor.load(tmp_path / "model").save(tmp_path / "again")
    assert same(calibrated, CountRegressor.load(tmp_path / "again"), counts[0])


def test_a_saved_linear_model_keeps_its_flags(counts, tmp_path):
    model = CountGLM(likelihood="poisson").fit(*counts).fit_ood(counts[0], kind="variance")
    model.save(tmp_path / "model")
    assert same(model, CountGLM.load(tmp_path / "model"), counts[0])


def test_a_model_without_flags_is_saved_without(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    assert not (tmp_path / "model" / "outside.safetensors").exists()
    assert not hasattr(CountRegressor.load(tmp_path / "model"), "ood_scores_")


def test_damaged_scores_are_refused(calibrated, tmp_path):
    calibrated.save(tmp_path / "model")
    file = tmp_path / "model" / "outside.safetensors"
    good = file.read_bytes()
    file.write_bytes(good[:-8])
    with pytest.raises(InputError, match=r"outside\.safetensors must be as it was saved"):
        CountRegressor.load(tmp_path / "model")
    file.write_bytes(save_arrays({"other": np.zeros(3)}))
    manifest = json.loads((tmp_path / "model" / "model.json").read_text())
    manifest["files"]["outside.safetensors"] = saving.hashlib.sha256(file.read_bytes()).hexdigest()
    manifest["checksum"] = saving._checksum(manifest)
    (tmp_path / "model" / "model.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"outside\.safetensors must hold scores, got .*Save the model again"):
        CountRegressor.load(tmp_path / "model")


def test_copies_keep_and_clones_forget(calibrated, counts):
    assert same(calibrated, pickle.loads(pickle.dumps(calibrated)), counts[0])
    assert not hasattr(clone(calibrated), "ood_scores_")


@pytest.mark.parametrize("kind", [CountRegressor, CountGLM])
def test_a_new_fit_forgets_the_flags_of_the_old(quick, counts, kind):
    model = quick(epochs=1) if kind is CountRegressor else CountGLM(likelihood="poisson")
    model.fit(*counts).fit_ood(counts[0], kind="variance").fit(*counts)
    with pytest.raises(InputError, match="fit_ood must be called before flags are asked for"):
        model.ood_pvalue(counts[0])
    assert not {"ood_scores_", "ood_kind_", "ood_alpha_"} & set(vars(model))


# What is refused ------------------------------------------------------------------------------------------------


def test_too_few_rows_for_alpha_are_told(calibrated, counts):
    told = r"alpha must be at least 1 / \(n \+ 1\) = 0\.01 with n = 99 calibration rows, got 0\.009\. Give fit_ood more"
    with pytest.raises(InputError, match=told):
        calibrated.is_ood(counts[0], alpha=0.009)
    assert calibrated.is_ood(50.0 * counts[0], alpha=0.01).any()
    with pytest.raises(InputError, match=r"with n = 18 calibration rows, got 0\.05"):
        calibrated.fit_ood(counts[0][:18])
    assert len(calibrated.ood_scores_) == 99  # a refused calibration leaves the old one


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 5, float("nan"), "0.05"])
def test_rates_that_are_none_are_refused(calibrated, counts, alpha):
    with pytest.raises(ConfigError, match="alpha must lie between 0 and 1, got"):
        calibrated.is_ood(counts[0], alpha=alpha)
    with pytest.raises(ConfigError, match="alpha must lie between 0 and 1, got"):
        calibrated.fit_ood(counts[0], alpha=alpha)


def test_the_order_of_calls_and_names_are_told(fitted, quick, counts):
    with pytest.raises(InputError, match="fit_ood must be called before flags are asked for, got a model without"):
        fitted.is_ood(counts[0])
    with pytest.raises(ValueError, match="not fitted"):
        quick().fit_ood(counts[0])
    with pytest.raises(ConfigError, match=r"kind must be one of variance, epistemic, .*got 'strange'"):
        fitted.fit_ood(counts[0], kind="strange")
    with pytest.raises(ValueError, match="0 sample"):
        fitted.fit_ood(counts[0][:0])
