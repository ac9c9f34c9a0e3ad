"""Scores by scipy; every member and the mixture, their weights, and the verdict."""

import json

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal

from ddpn.analysis.leaderboard import SCORES, leaderboard, score_rows
from ddpn.calibration.calibrate import HeldOut
from ddpn.distributions import Poisson
from ddpn.members import Member
from ddpn.predictor import MIXTURE, Predictor
from ddpn.sample import Sample

MEAN = np.array([2.0, 5.5, 9.0, 0.3, 4.0])
Y = np.array([3.0, 5.0, 20.0, 0.0, 1.0])
GRID = np.arange(200)


class Scaled(Member):
    """Predicts `factor` times X, per exposure, as a Poisson or a Normal with standard deviation 1."""

    def __init__(self, factor: float = 1.0, normal: bool = False, label: str = "", complexity: int = 3) -> None:
        self.factor, self.normal, self.label, self.complexity = factor, normal, label, complexity

    def fit(self, train, validation, seed):
        return self

    def distribution(self, X, exposure=None):
        mean = torch.from_numpy(self.factor * X * (1.0 if exposure is None else exposure)).unsqueeze(1)
        return Normal(mean, 1.0) if self.normal else Poisson(mean)

    def state(self):
        return {}

    @classmethod
    def from_state(cls, files):
        return cls()


@pytest.fixture
def blocks_of_two(monkeypatch):
    usual = Sample.blocks
    monkeypatch.setattr(Sample, "blocks", lambda sample, size=2: usual(sample, min(size, 2)))


def test_every_row_is_scored_as_by_scipy(blocks_of_two):
    found = score_rows(Predictor({"one": Scaled()}), Sample(MEAN / 2, Y, exposure=np.full(5, 2.0)))
    dist = stats.poisson(MEAN[:, None])
    assert found.mae == pytest.approx(np.abs(dist.median()[:, 0] - Y))
    assert found.crps == pytest.approx(np.square(dist.cdf(GRID) - (Y[:, None] <= GRID)).sum(1))
    assert found.nll == pytest.approx(-dist.logpmf(Y[:, None])[:, 0])
    low, high = (dist.ppf(q)[:, 0] for q in (0.05, 0.95))
    assert found.coverage.tolist() == ((low <= Y) & (high >= Y)).tolist()
    assert found.width == pytest.approx(high - low)
    assert found.interior.tolist() == ((low < Y) & (high > Y)).tolist()


def test_means_count_rows_by_their_weight():
    weight = np.array([1.0, 2.0, 0.0, 3.0, 1.0])
    found = score_rows(Predictor({"one": Scaled()}), Sample(MEAN, Y))
    repeated = {name: np.repeat(getattr(found, name), weight.astype(int)).mean() for name in SCORES}
    assert found.means(weight) == pytest.approx(repeated)


def test_a_normal_is_scored_as_the_counts_it_rounds_to():
    found = score_rows(Predictor({"one": Scaled(normal=True)}), Sample(MEAN, Y))
    cdf = stats.norm(MEAN[:, None], 1.0).cdf(GRID + 0.5)
    assert found.crps == pytest.approx(np.square(cdf - (Y[:, None] <= GRID)).sum(1))
    assert (found.width == np.rint(found.width)).all()


# The leaderboard -----------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
MANY = RNG.uniform(1, 20, 300)
SAMPLE = Sample(MANY, RNG.poisson(MANY).astype(float))


def predictor(comparison: Member) -> Predictor:
    found = Predictor({"low": Scaled(0.9), "high": Scaled(1.1)}, {"low": 0.25, "high": 0.75}, seconds={"low": 2.0})
    found.add("half_of_it", comparison, seconds=1.0)
    return found


def test_the_shape_that_json_documents():
    found = leaderboard(predictor(Scaled(0.5, label="half the mean")), SAMPLE).to_dict()
    assert json.loads(json.dumps(found)) == found
    gain = {"crps_gain", "crps_gain_error", "crps_gain_interval"}
    assert set(found) == {"rows", "coverage", "entries", "verdict"} | gain
    assert (found["rows"], found["coverage"]) == (300, 0.9)
    assert set(found["verdict"]) == {"level", "sentences", "prefer"}
    for entry in found["entries"]:
        assert list(entry) == ["name", "label", "weight", "mae", "crps", "nll", "coverage", "width", "seconds"]


def test_every_member_and_the_mixture_best_first():
    found = leaderboard(predictor(Scaled(0.5, label="half the mean")), SAMPLE).to_dict()
    entries = {entry["name"]: entry for entry in found["entries"]}
    assert list(entries) == [MIXTURE, *sorted(["low", "high"], key=lambda name: entries[name]["crps"]), "half_of_it"]
    assert {name: entry["weight"] for name, entry in entries.items()} == {
        MIXTURE: None, "low": 0.25, "high": 0.75, "half_of_it": 0.0
    }  # fmt: skip
    assert (entries["low"]["label"], entries["half_of_it"]["label"]) == ("low", "half the mean")
    assert [entries[name]["seconds"] for name in (MIXTURE, "low", "high", "half_of_it")] == [2.0, 2.0, None, 1.0]


def test_the_gain_is_on_the_best_member_used_alone():
    found = leaderboard(predictor(Scaled(0.5, label="half the mean")), SAMPLE).to_dict()
    crps = {entry["name"]: entry["crps"] for entry in found["entries"]}
    best = min((name for name in crps if name != MIXTURE), key=crps.get)
    assert found["crps_gain"] == pytest.approx(crps[best] - crps[MIXTURE])
    low, high = found["crps_gain_interval"]
    assert low < found["crps_gain"] < high
    assert best in found["verdict"]["sentences"][0]
    worse = Predictor(
        {"networks": Scaled(1.0, complexity=5), "half_of_it": Scaled(0.5, label="half the mean")},
        {"networks": 0.9, "half_of_it": 0.1},
    )
    verdict = leaderboard(worse, SAMPLE).to_dict()["verdict"]
    assert verdict["level"] == "better", verdict
    assert "half the mean" in verdict["sentences"][0]  # also where it is a part of the mixture
    better = leaderboard(predictor(Scaled(1.0, label="the true mean")), SAMPLE).to_dict()
    assert better["crps_gain"] < 0
    assert better["entries"][0]["name"] == "half_of_it"


@pytest.mark.parametrize(
    ("factor", "headline"),
    [
        (0.5, "The model is better than the best alternative, the ensemble of networks alone (the model's CRPS"),
        (1.0, "The ensemble of networks alone is better on these rows (its CRPS"),
    ],
)
def test_networks_without_weight_are_an_alternative_when_used_alone(factor, headline):
    members = {
        "networks": Scaled(factor, label="networks", complexity=5),
        "glm": Scaled(1.0 if factor < 1 else 0.7, label="GLM"),
    }
    found = leaderboard(Predictor(members, {"networks": 0.0, "glm": 1.0}), SAMPLE).to_dict()
    assert found["verdict"]["sentences"][0].startswith(headline)
    assert {entry["name"]: entry["label"] for entry in found["entries"]}["networks"] == "networks"


def test_a_leak_forbids_a_positive_verdict():
    found = leaderboard(predictor(Scaled(0.5)), SAMPLE, ("Column paid nearly determines the target.",)).to_dict()
    assert found["verdict"]["level"] == "unusable"
    assert "Column paid nearly determines the target." in found["verdict"]["sentences"]


def test_a_member_that_is_the_mixture_has_its_scores_unless_its_intervals_differ():
    sample = Sample(MEAN, Y)
    found = Predictor({"one": Scaled(), "other": Scaled(2.0)}, {"one": 1.0, "other": 0.0})

    def entries():
        return {each["name"]: [each[name] for name in SCORES] for each in leaderboard(found, sample).entries}

    assert entries()["one"] == entries()[MIXTURE] != entries()["other"]
    found.calibrate_intervals(HeldOut.of(found, sample), 20.0, of=["one"])
    changed = entries()
    assert changed["one"][SCORES.index("width")] != changed[MIXTURE][SCORES.index("width")]


def test_large_networks_are_no_simpler_alternative_to_networks():
    """As the networks themselves: a verdict must not recommend one half of the networks for being simpler."""
    members = {"networks": Scaled(complexity=5), "large_networks": Scaled(complexity=6), "half_of_it": Scaled(0.5)}
    model = Predictor(members, {"networks": 0.6, "large_networks": 0.3, "half_of_it": 0.1})
    assert leaderboard(model, SAMPLE).evaluation.rival == "half_of_it"


def test_of_two_single_members_the_less_complex_is_simpler():
    members = {"small": Scaled(complexity=1), "used": Scaled(complexity=2), "other": Scaled(complexity=4)}
    model = Predictor(members, {"small": 0.0, "used": 1.0, "other": 0.0})
    assert leaderboard(model, SAMPLE).evaluation.simpler == ["small"]
