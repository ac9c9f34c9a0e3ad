"""Ctrl-C during a fit leaves the best ensemble so far."""

import numpy as np
import pytest

from ddpn import DDPNRegressor
from ddpn.members.constant import Constant
from ddpn.networks.training.loop import Training
from ddpn.runtime.errors import InputError

#: Two batches per epoch of 200 rows.
BATCHES = {"training_options": {"batch_size": 100}}


@pytest.fixture
def interrupt(monkeypatch):
    """Ctrl-C before epoch `at` (from 0) of training number `training` (from 1)."""

    def plan(at: int, training: int = 1) -> None:
        run_epoch, seen = Training.run_epoch, []

        def watched(self: Training) -> str:
            if self not in seen:
                seen.append(self)
            if self.epoch == at and len(seen) == training:
                raise KeyboardInterrupt
            return run_epoch(self)

        monkeypatch.setattr(Training, "run_epoch", watched)

    return plan


def fit(model: DDPNRegressor, larger) -> None:
    X, y = larger
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:200], y[:200], X_val=X[200:], y_val=y[200:])


def test_the_best_epochs_so_far_are_kept_and_can_be_saved(quick, larger, interrupt, tmp_path):
    interrupt(at=4)
    model = quick(epochs=8, members=1, **BATCHES)
    fit(model, larger)
    scores = [record["score"][0] for record in model.history_.epochs]
    assert len(scores) == 4
    assert model.interrupted_
    assert model.history_.stopped == "interrupted"
    assert model.history_.best_epoch == [1 + int(np.argmin(scores))]
    assert model.nll(larger[0][200:], larger[1][200:]) == pytest.approx(min(scores), rel=1e-4)
    model.save(tmp_path / "model")
    again = DDPNRegressor.load(tmp_path / "model")
    assert (again.predict(larger[0]) == model.predict(larger[0])).all()
    assert again.interrupted_


def test_a_fit_that_ends_is_not_interrupted(fitted):
    assert not fitted.interrupted_


def test_networks_are_kept_where_another_member_is_interrupted(quick, larger, monkeypatch, tmp_path):
    def interrupted(self, train, validation, seed):
        raise KeyboardInterrupt

    monkeypatch.setattr(Constant, "fit", interrupted)
    model = quick(epochs=1, mix_with=["poisson_glm", "constant", "glm"], **BATCHES)
    fit(model, larger)
    assert list(model.predictor_.members) == ["networks", "poisson_glm"]
    assert sum(model.predictor_.weights.values()) == pytest.approx(1.0)
    assert model.interrupted_
    model.save(tmp_path / "model")
    assert DDPNRegressor.load(tmp_path / "model").interrupted_


@pytest.mark.parametrize("numeric", ["standard", "auto"])
def test_before_the_first_epoch_there_is_nothing(quick, larger, interrupt, numeric):
    interrupt(at=0)
    model = quick(numeric=numeric)
    fit(model, larger)
    with pytest.raises(ValueError, match="not fitted"):
        model.predict(larger[0])


def test_a_fit_that_ends_before_its_first_epoch_changes_nothing(quick, counts, wards, interrupt):
    model = quick(members=1, epochs=1).fit(*wards)
    before = dict(vars(model))
    interrupt(at=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*counts)
    with pytest.raises(InputError):
        model.fit(counts[0], -counts[1])
    assert vars(model) == before
    assert model.predict(wards[0]).shape == (90,)


def test_another_fit_forgets_the_names_of_columns(quick, counts, wards):
    model = quick(members=1, epochs=1).fit(*wards)
    assert model.feature_kinds_ == ["category", "category", "number", "flag"]
    model.fit(*counts)
    assert not hasattr(model, "feature_names_in_")
    assert (model.n_features_in_, model.feature_kinds_) == (3, ["number"] * 3)
