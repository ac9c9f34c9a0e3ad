"""Scores by scipy, and a verdict that tells a difference from chance."""

import re

import numpy as np
import pytest
import torch
from ddpn.workflow.sample import Sample
from ddpn.workflow.scoring import Scores, comparison, gain, mean_scores, score_rows, verdict
from scipy import stats
from torch.distributions import Normal

from ddpn.distributions import Poisson
from ddpn.workflow import sample as module

MEAN = np.array([2.0, 5.5, 9.0, 0.3, 4.0])
Y = np.array([3.0, 5.0, 20.0, 0.0, 1.0])


def scores(monkeypatch, block: int = 2) -> Scores:
    monkeypatch.setattr(module, "BLOCK", block)
    return score_rows(
        lambda X, exposure: Poisson(torch.from_numpy(X * exposure)), Sample(MEAN / 2, Y, np.full(5, 2.0), None)
    )


def test_every_row_by_scipy(monkeypatch):
    found = scores(monkeypatch)
    law, grid = stats.poisson(MEAN[:, None]), np.arange(200)
    assert found.mae == pytest.approx(np.abs(law.median()[:, 0] - Y))
    assert found.crps == pytest.approx(np.square(law.cdf(grid) - (grid >= Y[:, None])).sum(1))
    low, high = (law.ppf(q)[:, 0] for q in (0.05, 0.95))
    assert found.coverage.tolist() == ((low <= Y) & (high >= Y)).tolist()
    assert found.width == pytest.approx(high - low)


def test_weights_count_rows(monkeypatch):
    weight = np.array([1.0, 2.0, 0.0, 3.0, 1.0])
    found = scores(monkeypatch)
    repeated = [np.repeat(values, weight.astype(int)).mean() for values in found]
    assert list(mean_scores(found, weight).values()) == pytest.approx(repeated)


def test_a_law_on_the_line_is_scored_as_counts():
    found = score_rows(lambda X, exposure: Normal(torch.from_numpy(X), 1.0), Sample(MEAN, Y, None, None))
    grid = np.arange(200)
    cdf = stats.norm(MEAN[:, None], 1.0).cdf(grid + 0.5)
    assert found.crps == pytest.approx(np.square(cdf - (grid >= Y[:, None])).sum(1))
    assert (found.width == np.rint(found.width)).all()


def constant(crps: np.ndarray) -> Scores:
    return Scores(crps, crps, np.ones_like(crps), crps)


def test_the_gain_and_its_error():
    rng = np.random.default_rng(0)
    one, other = rng.normal(2, 1, 400), rng.normal(3, 1, 400)
    mean, error = gain(constant(one), constant(other), None)
    difference = other - one
    assert mean == pytest.approx(difference.mean())
    assert error == pytest.approx(difference.std() / 20)
    assert gain(constant(one), constant(other), np.full(400, 7.0)) == pytest.approx((mean, error))


def test_the_best_baseline_is_that_of_the_lowest_crps():
    rng = np.random.default_rng(0)
    rows = {
        name: constant(rng.normal(mean, 0.001, 100))
        for name, mean in {"ddpn": 1, "constant": 3, "poisson_glm": 2}.items()
    }
    found = comparison(rows, None)
    assert found["best_baseline"] == "poisson_glm"
    assert found["rows"] == 100
    assert found["crps_gain"] == pytest.approx(rows["poisson_glm"].crps.mean() - rows["ddpn"].crps.mean())
    assert found["verdict"].startswith("Worth it: its CRPS is 50% lower than that of a Poisson GLM, the best baseline")


@pytest.mark.parametrize(
    ("ahead", "error", "words"),
    [
        (0.5, 0.1, "Worth it: its CRPS is 50% lower than"),
        (-0.5, 0.1, "Not worth it: its CRPS is 50% higher than"),
        (0.5, 0.3, "Not clearly worth it: its CRPS is 50.0% lower than .*, which 80 test rows cannot tell from chance"),
        (0.0, 0.0, "Not worth it: its CRPS is 0% higher"),
    ],
)
def test_verdicts(ahead, error, words):
    table = {"ddpn": {"crps": 1.0 - ahead, "coverage": 0.884}, "constant": {"crps": 1.0, "coverage": 0.9}}
    told = {"rows": 80, "scores": table, "best_baseline": "constant", "crps_gain": ahead, "crps_gain_error": error}
    assert re.match(words, verdict(told))
    assert verdict(told).endswith("its 90% intervals held in 88% of rows.")
