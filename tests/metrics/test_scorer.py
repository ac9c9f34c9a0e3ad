"""The CRPS as a scorer of scikit-learn: in searches, pipelines and cross-validation with weights and exposures."""

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ddpn import CountGLM
from ddpn.metrics import CRPSScorer, crps_scorer

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (600, 2))
MEAN = np.exp(1.5 + 0.8 * X[:, 0])
#: Counts whose variance is far below the mean; the example of `CRPSScorer` has some whose variance is above it.
Y_BELOW = RNG.binomial(np.round(MEAN / 0.8).astype(int), 0.8)


def test_a_search_by_crps_finds_the_likelihood():
    grid = {"likelihood": ["poisson", "double_poisson"]}
    search = GridSearchCV(CountGLM(dispersion="constant"), grid, scoring=crps_scorer, cv=3).fit(X, Y_BELOW)
    assert search.best_params_ == {"likelihood": "double_poisson"}
    assert search.best_score_ < 0


def test_a_pipeline_is_scored_by_its_last_step():
    y = Y_BELOW
    pipe = make_pipeline(StandardScaler(), CountGLM(likelihood="poisson")).fit(X[:400], y[:400])
    weights = {"sample_weight": np.arange(200.0)}
    expected = pipe[-1].crps(pipe[:-1].transform(X[400:]), y[400:], **weights)
    assert crps_scorer(pipe, X[400:], y[400:], **weights) == -expected


def test_weights_and_exposures_reach_the_scorer():
    exposure, weight = RNG.uniform(0.5, 2.0, 600), RNG.integers(1, 4, 600).astype(float)
    y, folds = RNG.poisson(MEAN * exposure), KFold(3)
    with sklearn.config_context(enable_metadata_routing=True):
        model = CountGLM("poisson").set_fit_request(sample_weight=True, exposure=True)
        scorer = CRPSScorer().set_score_request(sample_weight=True, exposure=True)
        params = {"sample_weight": weight, "exposure": exposure}
        scores = cross_val_score(model, X, y, scoring=scorer, cv=folds, params=params)
        search = GridSearchCV(model, {"alpha": [0.0, 1.0]}, scoring=scorer, cv=folds).fit(X, y, **params)
    for score, (train, test) in zip(scores, folds.split(X), strict=True):
        by_hand = CountGLM("poisson").fit(X[train], y[train], weight[train], exposure[train])
        assert score == pytest.approx(-by_hand.crps(X[test], y[test], weight[test], exposure[test]), rel=1e-12)
    assert search.best_params_ == {"alpha": 0.0}
    assert search.cv_results_["mean_test_score"][0] == pytest.approx(scores.mean(), rel=1e-12)
