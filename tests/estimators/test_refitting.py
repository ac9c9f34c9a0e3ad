"""Members are fitted to validation rows, too, once these have chosen weights and calibrated intervals."""

import numpy as np
import pytest

from ddpn import CountRegressor
from ddpn.estimators import regressor
from ddpn.estimators.portfolio import Candidate
from ddpn.estimators.refitting import refit
from ddpn.members.constant import Constant
from ddpn.members.trees.member import Trees
from ddpn.predictor import Predictor
from ddpn.sample import Sample


@pytest.fixture(scope="module")
def sample() -> Sample:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    return Sample(X, rng.poisson(np.exp(1.0 + 0.5 * X[:, 0])).astype(float))


@pytest.fixture
def mixture(sample) -> Predictor:
    """Fitted to the first 300 rows, calibrated with the others."""
    train = sample.rows(slice(0, 300))
    members = {"trees": Trees(leaves=(4,), rounds=30).fit(train, None, 0), "constant": Constant().fit(train, None, 0)}
    found = Predictor(members, {"trees": 0.8, "constant": 0.2}, False, {"trees": 1.0})
    found.calibrate_intervals(sample.rows(slice(300, 400)))
    return found


def test_members_that_can_are_fitted_again(mixture, sample):
    before, levels, first = dict(mixture.members), dict(mixture.intervals), mixture.distribution(sample.X).mean
    assert not refit(mixture, sample, seed=0)
    assert mixture.members["constant"] is before["constant"]
    assert mixture.members["trees"] is not before["trees"]
    assert len(mixture.members["trees"].out_of_fold_raw) == 400
    assert not np.allclose(mixture.distribution(sample.X).mean, first)
    assert mixture.weights == {"trees": 0.8, "constant": 0.2}
    assert mixture.intervals == levels
    assert mixture.seconds["trees"] > 1.0


def test_a_member_without_weight_stays(mixture, sample):
    mixture.weights = {"trees": 0.0, "constant": 1.0}
    trees = mixture.members["trees"]
    refit(mixture, sample, seed=0)
    assert mixture.members["trees"] is trees


def test_interrupted_the_first_fit_stays(mixture, sample, monkeypatch):
    def interrupted(self, sample, seed):
        raise KeyboardInterrupt

    monkeypatch.setattr(Trees, "refitted", interrupted)
    trees = mixture.members["trees"]
    assert refit(mixture, sample, seed=0)
    assert mixture.members["trees"] is trees


@pytest.mark.parametrize(
    ("given", "options", "rows"), [(False, {}, 400), (True, {}, None), (False, {"time_budget": 60}, None)]
)
def test_a_regressor_refits_to_rows_that_it_kept_itself(sample, monkeypatch, given, options, rows):
    seen = []
    monkeypatch.setattr(regressor, "refit", lambda predictor, sample, seed: seen.append(len(sample)) or False)
    monkeypatch.setattr(regressor, "SMALL_ROWS", 100)
    monkeypatch.setattr(regressor, "default_candidates", lambda *args: [Candidate("constant", Constant)])
    model = CountRegressor(members="auto", random_state=0, **options)
    more = {"X_val": sample.X[:50], "y_val": sample.y[:50]} if given else {}
    model.fit(sample.X, sample.y, **more)
    assert seen == ([] if rows is None else [rows])


def test_a_member_that_cannot_be_fitted_to_all_rows_stays(mixture, sample):
    limit = np.full(400, np.inf)
    limit[390] = sample.y[390]  # a validation row whose count is censored
    trees = mixture.members["trees"]
    assert not refit(mixture, sample.replace(limit=limit), seed=0)
    assert mixture.members["trees"] is trees
