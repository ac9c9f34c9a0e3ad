"""Ctrl-C during a fit leaves the best ensemble so far."""

import numpy as np
import pytest

from ddpn.errors import InputError
from ddpn.estimators import CountRegressor
from ddpn.training.loop import Training


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


@pytest.fixture
def larger() -> tuple[np.ndarray, np.ndarray]:
    """300 rows of two numbers, and Poisson counts."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(300, 2))
    return X, rng.poisson(np.exp(1 + 0.5 * X[:, 0]))


def fit(model: CountRegressor, larger) -> None:
    X, y = larger
    model.fit(X[:200], y[:200], X_val=X[200:], y_val=y[200:])
    assert model.interrupted_


def test_the_best_epochs_so_far_are_kept(quick, larger, interrupt):
    interrupt(at=4)
    model = quick(numeric="standard", epochs=8, members=1)
    fit(model, larger)
    scores = [record["score"][0] for record in model.history_.epochs]
    assert len(scores) == 4
    assert model.history_.stopped == "interrupted"
    assert model.history_.best_epoch == [1 + int(np.argmin(scores))]
    assert model.crps(larger[0][200:], larger[1][200:]) == pytest.approx(min(scores), rel=1e-4)


def test_a_kept_model_can_be_saved(quick, larger, interrupt, tmp_path):
    interrupt(at=2)
    model = quick(numeric="standard", epochs=8)
    fit(model, larger)
    model.save(tmp_path / "model")
    again = CountRegressor.load(tmp_path / "model")
    assert (again.predict(larger[0]) == model.predict(larger[0])).all()


# In the second trial; and in the training after the three trials, before it is better than they were.
@pytest.mark.parametrize(("at", "training"), [(0, 2), (1, 2), (0, 4), (1, 4)])
def test_the_best_trial_is_kept_where_nothing_better_is_there(quick, larger, interrupt, at, training):
    interrupt(at=at, training=training)
    model = quick(numeric="auto", epochs=40, members=3)
    fit(model, larger)
    assert model.model_.members == 2
    assert len(model.history_.epochs) == 10
    assert set(model.trials_) == (set() if training == 2 else {"standard", "piecewise", "steps"})
    if model.trials_:
        assert model.numeric_ == min(model.trials_, key=model.trials_.get)


def test_before_the_first_epoch_there_is_nothing(quick, larger, interrupt):
    interrupt(at=0)
    model = quick(numeric="standard")
    with pytest.raises(KeyboardInterrupt):
        fit(model, larger)
    with pytest.raises((InputError, ValueError), match="not fitted"):
        model.predict(larger[0])
