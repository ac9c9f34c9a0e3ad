"""Searches of scikit-learn by CRPS choose the likelihood that counts were drawn from."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ddpn import CountGLM
from ddpn.metrics import crps_scorer

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (1200, 2))
MEAN = np.exp(1.5 + 0.8 * X[:, 0])
#: Counts by the likelihood that is right for them: variances above the mean, and far below it.
DRAWN = {
    "negative_binomial": RNG.poisson(RNG.gamma(1.0, MEAN)),
    "double_poisson": RNG.binomial(np.round(MEAN / 0.8).astype(int), 0.8),
}


@pytest.mark.parametrize("truth", DRAWN)
def test_a_search_by_crps_finds_the_likelihood(truth):
    grid = {"likelihood": ["poisson", truth]}
    search = GridSearchCV(CountGLM(dispersion="constant"), grid, scoring=crps_scorer, cv=3).fit(X, DRAWN[truth])
    assert search.best_params_ == {"likelihood": truth}
    assert search.best_score_ < 0


def test_a_pipeline_is_scored_by_its_last_step():
    y = DRAWN["negative_binomial"]
    pipe = make_pipeline(StandardScaler(), CountGLM(likelihood="poisson")).fit(X[:800], y[:800])
    known = {"sample_weight": np.arange(400.0)}
    wanted = pipe[-1].crps(pipe[:-1].transform(X[800:]), y[800:], **known)
    assert crps_scorer(pipe, X[800:], y[800:], **known) == -wanted
