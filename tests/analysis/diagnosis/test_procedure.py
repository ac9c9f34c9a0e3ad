"""Test whole diagnoses on simulated counts whose right diagnosis is known, and on counts that allow none."""

import json
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy.special import expit

from ddpn import DoublePoisson
from ddpn.analysis.diagnosis import diagnose, diagnose_sample
from ddpn.analysis.diagnosis.recommendation import choose_zero_inflated_base
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError, InputError


class Situation(NamedTuple):
    X: np.ndarray
    mean: np.ndarray
    rng: np.random.Generator

    @classmethod
    def from_seed(cls, rows: int) -> "Situation":
        """Draw three columns, and means that follow the first."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(rows, 3))
        return cls(X, np.exp(1.2 + 0.5 * X[:, 0]), rng)

    def double_poisson(self, gamma: float) -> np.ndarray:
        mu = torch.from_numpy(self.mean)
        drawn = DoublePoisson(mu, torch.full_like(mu, gamma)).sample(generator=torch.Generator().manual_seed(0))
        return drawn.numpy()


@pytest.fixture
def situation() -> Situation:
    return Situation.from_seed(1000)


SITUATIONS = {
    "Negative Binomial": (
        lambda s: s.rng.poisson(s.mean * s.rng.gamma(2, 0.5, len(s.mean))),
        {"over-dispersed"},
        "over",
        "negative_binomial",
    ),
    "Double Poisson": (lambda s: s.double_poisson(2.0), {"under-dispersed"}, "under", "double_poisson"),
    "zero-inflated": (
        lambda s: np.where(s.rng.random(len(s.mean)) < 0.3, 0, s.rng.poisson(1.4 * s.mean)),
        {"over-dispersed", "zero-inflated"},
        "over",
        "zero_inflated_poisson",
    ),
    "stars": (
        lambda s: 1 + s.rng.binomial(4, s.rng.beta(3 * (p := expit(1.5 + s.X[:, 0])), 3 * (1 - p))),
        {"under-dispersed", "piled up at the maximum"},
        "under",
        "double_poisson",
    ),
    "no zeros": (
        lambda s: 3 + s.rng.poisson(s.mean),
        {"under-dispersed", "no small counts"},
        "under",
        "double_poisson",
    ),
    "heavy-tailed": (
        lambda s: s.rng.poisson(s.mean * np.where(s.rng.random(len(s.mean)) < 0.01, 8.0, 1.0)),
        {"over-dispersed", "heavy-tailed"},
        "over",
        "mixed",
    ),
    "marginally over-dispersed": (lambda s: s.rng.poisson(np.exp(1.2 + 1.2 * s.X[:, 0])), set(), "equi", "poisson"),
}


@pytest.mark.parametrize(("simulate", "labels", "direction", "likelihood"), SITUATIONS.values(), ids=SITUATIONS)
def test_simulated_properties_are_found_and_no_others(situation, simulate, labels, direction, likelihood):
    situation = situation.from_seed(2000)
    diagnosis = diagnose(situation.X, simulate(situation), mean_model="glm")
    assert set(diagnosis.labels) == labels
    assert diagnosis.direction == direction
    # The sentence of an interval around 1 names no direction.
    assert ("-dispersed" in diagnosis.finding("dispersion").words) == (direction != "equi")
    assert (diagnosis.dispersion.low < 1 < diagnosis.dispersion.high) == (direction == "equi")
    assert diagnosis.likelihood == likelihood
    assert diagnosis.options == ({"lower": 3} if "no small counts" in labels else {})


def test_counts_of_a_known_total_are_not_zero_inflated(situation):
    y = situation.rng.binomial(5, expit(0.8 * situation.X[:, 0]))
    diagnosis = diagnose(situation.X, y, mean_model="glm")
    assert "zero-inflated" not in diagnosis.labels
    assert not diagnosis.likelihood.startswith("zero_inflated")
    assert "use `upper=5`." in diagnosis.reason


def test_limits_that_no_count_reaches_change_nothing(situation):
    y = situation.rng.poisson(situation.mean).astype(float)
    sample = CountRows(situation.X, y, limit=np.full(len(y), np.inf))
    assert diagnose_sample(sample, mean_model="constant").findings


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_mean_model_with_hardly_more_rows_than_parameters_invents_no_dispersion(seed):
    rng = np.random.default_rng(seed)
    levels = np.stack([rng.integers(0, 80, 400), rng.integers(0, 40, 400)], axis=1).astype(str).astype(object)
    diagnosis = diagnose(levels, rng.poisson(4.0, 400), mean_model="glm")
    assert diagnosis.direction == "equi"
    assert diagnosis.dispersion.low < 1.0 < diagnosis.dispersion.high


@pytest.mark.parametrize("unit", [5, 10])
def test_rounded_counts_are_reported_as_heaped(situation, unit):
    y = situation.rng.poisson(5 * situation.mean)
    rounded = (situation.rng.random(len(y)) < 0.3) & (y > unit / 2)
    finding = diagnose(situation.X, np.where(rounded, np.rint(y / unit) * unit, y), mean_model="glm").finding("heaping")
    assert finding.found
    assert f"multiples of {unit}," in finding.sentence


def test_a_pile_at_the_largest_count_suggests_censoring(situation):
    y = np.minimum(10, situation.rng.poisson(2 * situation.mean * situation.rng.gamma(4, 0.25, len(situation.mean))))
    diagnosis = diagnose(situation.X, y, mean_model="glm")
    assert diagnosis.finding("ceiling").found
    assert "use `censored_above=10`; if larger counts are impossible" in diagnosis.reason


@pytest.mark.parametrize(
    ("bounds", "likelihood"), [({"upper": 9}, "double_binomial"), ({"limit": 9}, "mixed"), ({"lower": 1}, "mixed")]
)
def test_counts_with_known_bounds_are_left_to_the_fit(situation, bounds, likelihood):
    """Compared with a Poisson they would look under-dispersed, or piled up."""
    y = np.clip(situation.rng.poisson(situation.mean), 1, 9).astype(float)
    columns = {name: np.full(len(y), float(value)) for name, value in bounds.items()}
    diagnosis = diagnose_sample(CountRows(situation.X, y, **columns), "visits", options={"given": 9})
    assert diagnosis.headline == "visits: counts with known bounds or limits are not tested."
    assert diagnosis.findings == ()
    assert diagnosis.arguments == {"likelihood": likelihood, "given": 9}
    assert "fitted distributions have the same bounds and limits" in str(diagnosis)


def test_an_unused_feature_is_over_dispersion(situation):
    y = situation.rng.poisson(situation.mean)
    assert diagnose(situation.X[:, 1:], y, mean_model="constant").direction == "over"


def test_exposures_are_no_dispersion(situation):
    exposure = situation.rng.uniform(0.1, 10.0, len(situation.mean))
    y = situation.rng.poisson(situation.mean * exposure)
    assert diagnose(situation.X, y, exposure=exposure, mean_model="glm").direction == "equi"


def test_rows_of_weight_zero_do_not_count(situation):
    y, weight = situation.rng.poisson(situation.mean), np.ones(len(situation.mean))
    y[:200], weight[:200] = 500, 0
    diagnosis = diagnose(situation.X, y, sample_weight=weight, mean_model="glm")
    assert diagnosis.direction == "equi"
    assert diagnosis.summary["rows"] == len(y) - 200
    used = y[200:]
    assert (diagnosis.summary["minimum"], diagnosis.summary["maximum"]) == (used.min(), used.max())
    assert diagnosis.summary["zeros"] == pytest.approx((used == 0).mean())
    assert diagnosis.summary["variance_over_mean"] == pytest.approx(used.var() / used.mean())


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([3, 1, 0, 2, 5, 1, 0, 0, 2, 4], "too few rows"),
        ([0] * 100, "all counts are 0"),
        ([3] * 100, "all counts are 3"),
        ([1] * 5 + [0] * 95, "too few counts above 0"),
    ],
)
def test_too_little_data_gives_a_reason_and_no_likelihood(y, words):
    diagnosis = diagnose(np.arange(len(y)).reshape(-1, 1), y)
    assert words in str(diagnosis)
    assert diagnosis.direction is None
    assert diagnosis.likelihood is None
    assert diagnosis.arguments == {}
    json.dumps(diagnosis.to_dict(), allow_nan=False)


def test_large_tables_are_sampled_and_large_counts_not_tabulated(situation):
    y = situation.rng.poisson(1e5 * situation.mean)
    diagnosis = diagnose(situation.X, y, mean_model="constant", max_rows=500)
    assert (diagnosis.summary["rows"], diagnosis.summary["used"]) == (1000, 500)
    assert [finding.name for finding in diagnosis.findings] == ["dispersion"]
    assert "500 of 1,000 rows" in diagnosis.notes[0]
    assert "were not tested" in diagnosis.notes[1]


def test_the_default_model_follows_a_curved_mean():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1500, 3))
    y = rng.poisson(np.exp(1.2 + 0.6 * np.sin(2 * X[:, 0])))
    diagnosis = diagnose(X, y)
    assert diagnosis.direction == "equi"
    assert "boosted" in diagnosis.mean_model


def test_missing_values_and_text_are_diagnosed(situation):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"x": situation.X[:, 0], "group": np.where(situation.X[:, 1] > 0, "a", "b")})
    table.loc[:50, "x"] = np.nan
    table.loc[50:90, "group"] = None
    steps = []
    diagnosis = diagnose(table[:300], situation.rng.poisson(situation.mean)[:300], progress=steps.append)
    assert diagnosis.dispersion.estimate > 0
    assert steps[0] == "Fitting a Poisson GLM"


def test_invalid_arguments_are_refused(situation):
    with pytest.raises(ConfigError, match="mean_model"):
        diagnose(situation.X, situation.mean.round(), mean_model="network")
    with pytest.raises(ConfigError, match="max_rows"):
        diagnose(situation.X, situation.mean.round(), max_rows=10)
    with pytest.raises(InputError, match="non-negative integers"):
        diagnose(situation.X, situation.mean)


@pytest.mark.parametrize(("base", "alpha"), [("poisson", 0.0), ("negative_binomial", 0.8)])
@pytest.mark.parametrize("share", [0.1, 0.4])
def test_extra_zeros_are_measured_beside_their_base(base, alpha, share):
    rng = np.random.default_rng(5)
    location = rng.uniform(2.0, 6.0, 4000)
    rate = location * rng.gamma(1.0 / alpha, alpha, 4000) if alpha else location
    y = np.where(rng.random(4000) < share, 0, rng.poisson(rate))
    inflation = choose_zero_inflated_base(y, (1.0 - share) * location)
    assert inflation == (base, pytest.approx(share, abs=0.03))
