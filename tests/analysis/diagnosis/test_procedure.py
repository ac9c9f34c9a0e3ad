"""Situations where the right diagnosis is known, and those where nothing can be said."""

import json
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy.special import expit

from ddpn import DoublePoisson
from ddpn.analysis.diagnosis import diagnose, diagnose_sample
from ddpn.analysis.diagnosis.procedure import zero_inflation
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError, InputError


class Simulated(NamedTuple):
    X: np.ndarray
    mean: np.ndarray
    rng: np.random.Generator

    @classmethod
    def of(cls, rows: int) -> "Simulated":
        """Three columns, and means that follow the first."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(rows, 3))
        return cls(X, np.exp(1.2 + 0.5 * X[:, 0]), rng)

    def double_poisson(self, gamma: float) -> np.ndarray:
        mu = torch.from_numpy(self.mean)
        drawn = DoublePoisson(mu, torch.full_like(mu, gamma)).sample(generator=torch.Generator().manual_seed(0))
        return drawn.numpy()


@pytest.fixture
def simulated() -> Simulated:
    return Simulated.of(1000)


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
def test_the_right_findings(simulated, simulate, labels, direction, likelihood):
    simulated = simulated.of(2000)
    found = diagnose(simulated.X, simulate(simulated), mean_model="glm")
    assert set(found.labels) == labels
    assert found.direction == direction
    # The sentence of an interval around 1 names no direction.
    assert ("-dispersed" in found.finding("dispersion").words) == (direction != "equi")
    assert (found.dispersion.low < 1 < found.dispersion.high) == (direction == "equi")
    assert found.likelihood == likelihood
    assert found.options == ({"lower": 3} if "no small counts" in labels else {})


def test_counts_of_a_known_total_are_not_zero_inflated(simulated):
    y = simulated.rng.binomial(5, expit(0.8 * simulated.X[:, 0]))
    found = diagnose(simulated.X, y, mean_model="glm")
    assert "zero-inflated" not in found.labels
    assert not found.likelihood.startswith("zero_inflated")
    assert "use `upper=5`." in found.reason


def test_limits_that_no_count_reaches_change_nothing(simulated):
    y = simulated.rng.poisson(simulated.mean).astype(float)
    sample = CountRows(simulated.X, y, limit=np.full(len(y), np.inf))
    assert diagnose_sample(sample, mean_model="constant").findings


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_mean_model_with_hardly_more_rows_than_parameters_invents_no_dispersion(seed):
    rng = np.random.default_rng(seed)
    levels = np.stack([rng.integers(0, 80, 400), rng.integers(0, 40, 400)], axis=1).astype(str).astype(object)
    found = diagnose(levels, rng.poisson(4.0, 400), mean_model="glm")
    assert found.direction == "equi"
    assert found.dispersion.low < 1.0 < found.dispersion.high


@pytest.mark.parametrize("unit", [5, 10])
def test_heaped_counts(simulated, unit):
    y = simulated.rng.poisson(5 * simulated.mean)
    rounded = (simulated.rng.random(len(y)) < 0.3) & (y > unit / 2)
    found = diagnose(simulated.X, np.where(rounded, np.rint(y / unit) * unit, y), mean_model="glm").finding("heaping")
    assert found.found
    assert f"multiples of {unit}," in found.sentence


def test_censored_counts(simulated):
    y = np.minimum(10, simulated.rng.poisson(2 * simulated.mean * simulated.rng.gamma(4, 0.25, len(simulated.mean))))
    found = diagnose(simulated.X, y, mean_model="glm")
    assert found.finding("ceiling").found
    assert "use `censored_above=10`; if larger counts are impossible" in found.reason


@pytest.mark.parametrize(
    ("bounds", "likelihood"), [({"upper": 9}, "double_binomial"), ({"limit": 9}, "mixed"), ({"lower": 1}, "mixed")]
)
def test_counts_with_known_bounds_are_left_to_the_fit(simulated, bounds, likelihood):
    """Compared with a Poisson they would look under-dispersed, or piled up."""
    y = np.clip(simulated.rng.poisson(simulated.mean), 1, 9).astype(float)
    known = {name: np.full(len(y), float(value)) for name, value in bounds.items()}
    found = diagnose_sample(CountRows(simulated.X, y, **known), "visits", options={"given": 9})
    assert found.headline == "visits: counts with known bounds or limits are not tested."
    assert found.findings == ()
    assert found.arguments == {"likelihood": likelihood, "given": 9}
    assert "takes bounds and limits from these arguments" in str(found)


def test_an_unused_feature_is_over_dispersion(simulated):
    y = simulated.rng.poisson(simulated.mean)
    assert diagnose(simulated.X[:, 1:], y, mean_model="constant").direction == "over"


def test_exposures_are_no_dispersion(simulated):
    exposure = simulated.rng.uniform(0.1, 10.0, len(simulated.mean))
    y = simulated.rng.poisson(simulated.mean * exposure)
    assert diagnose(simulated.X, y, exposure=exposure, mean_model="glm").direction == "equi"


def test_rows_of_weight_zero_do_not_count(simulated):
    y, weight = simulated.rng.poisson(simulated.mean), np.ones(len(simulated.mean))
    y[:200], weight[:200] = 500, 0
    found = diagnose(simulated.X, y, sample_weight=weight, mean_model="glm")
    assert found.direction == "equi"
    assert found.summary["rows"] == len(y) - 200
    used = y[200:]
    assert (found.summary["minimum"], found.summary["maximum"]) == (used.min(), used.max())
    assert found.summary["zeros"] == pytest.approx((used == 0).mean())
    assert found.summary["variance_over_mean"] == pytest.approx(used.var() / used.mean())


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([3, 1, 0, 2, 5, 1, 0, 0, 2, 4], "too few rows"),
        ([0] * 100, "all counts are 0"),
        ([3] * 100, "all counts are 3"),
        ([1] * 5 + [0] * 95, "too few counts above 0"),
    ],
)
def test_nothing_can_be_said(y, words):
    found = diagnose(np.arange(len(y)).reshape(-1, 1), y)
    assert words in str(found)
    assert found.direction is None
    assert found.likelihood is None
    assert found.arguments == {}
    json.dumps(found.to_dict(), allow_nan=False)


def test_large_tables_are_sampled_and_large_counts_not_tabulated(simulated):
    y = simulated.rng.poisson(1e5 * simulated.mean)
    found = diagnose(simulated.X, y, mean_model="constant", max_rows=500)
    assert (found.summary["rows"], found.summary["used"]) == (1000, 500)
    assert [each.name for each in found.findings] == ["dispersion"]
    assert "500 of 1,000 rows" in found.notes[0]
    assert "were not tested" in found.notes[1]


def test_the_default_model_follows_a_curved_mean():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1500, 3))
    y = rng.poisson(np.exp(1.2 + 0.6 * np.sin(2 * X[:, 0])))
    found = diagnose(X, y)
    assert found.direction == "equi"
    assert "boosted" in found.mean_model


def test_missing_values_and_text(simulated):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"x": simulated.X[:, 0], "group": np.where(simulated.X[:, 1] > 0, "a", "b")})
    table.loc[:50, "x"] = np.nan
    table.loc[50:90, "group"] = None
    steps = []
    found = diagnose(table[:300], simulated.rng.poisson(simulated.mean)[:300], progress=steps.append)
    assert found.dispersion.estimate > 0
    assert steps[0] == "Fitting a Poisson GLM"


def test_invalid_arguments(simulated):
    with pytest.raises(ConfigError, match="mean_model"):
        diagnose(simulated.X, simulated.mean.round(), mean_model="network")
    with pytest.raises(ConfigError, match="max_rows"):
        diagnose(simulated.X, simulated.mean.round(), max_rows=10)
    with pytest.raises(InputError, match="non-negative integers"):
        diagnose(simulated.X, simulated.mean)


@pytest.mark.parametrize(("base", "alpha"), [("poisson", 0.0), ("negative_binomial", 0.8)])
@pytest.mark.parametrize("share", [0.1, 0.4])
def test_extra_zeros_and_what_they_are_added_to(base, alpha, share):
    rng = np.random.default_rng(5)
    location = rng.uniform(2.0, 6.0, 4000)
    rate = location * rng.gamma(1.0 / alpha, alpha, 4000) if alpha else location
    y = np.where(rng.random(4000) < share, 0, rng.poisson(rate))
    found = zero_inflation(y, (1.0 - share) * location)
    assert found == (base, pytest.approx(share, abs=0.03))
