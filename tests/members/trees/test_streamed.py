"""Test trees of a table that is larger than memory: boosted over all rows, and as good as a fit in memory."""

import numpy as np
import pytest
import torch

from ddpn.members.trees import dispersion, streamed
from ddpn.members.trees.member import Trees
from ddpn.metrics import crps
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import Clock

ROWS, SAMPLED, OPTIONS = 6000, 1200, {"leaves": (15,), "rounds": 40}


def simulate_rows(seed, rows):
    """Simulate counts per exposure that follow an interaction and a wave, which few rows do not show."""
    rng = np.random.default_rng(seed)
    X, exposure = rng.uniform(-2, 2, size=(rows, 4)), rng.uniform(0.5, 8.0, rows)
    X[rng.uniform(size=rows) < 0.05, 3] = np.nan
    rate = np.exp(0.3 + 0.5 * np.sin(3 * X[:, 0]) * (X[:, 1] > 0) + 0.3 * np.cos(4 * X[:, 2]))
    return CountRows(X, rng.negative_binomial(4, 4 / (4 + rate * exposure)).astype(float), exposure=exposure)


@pytest.fixture(scope="module")
def parts():
    """Training, validation and test rows."""
    return simulate_rows(1, ROWS), simulate_rows(2, 1000), simulate_rows(3, 3000)


@pytest.fixture
def stream(parts, make_stream, monkeypatch):
    monkeypatch.setattr(streamed, "CHUNK_ROWS", 1000)
    monkeypatch.setattr(dispersion, "_MIN_DISPERSION_ROWS", 10**9)  # the dispersion is a constant, as it is here
    return make_stream(parts[0])


def compute_losses(member, test):
    with torch.no_grad():
        result = member.distribution(test.X, test.exposure)
        return crps(result, torch.from_numpy(test.y)[:, None])[:, 0].numpy()


def fit_trees(train, validation, stream=None):
    return Trees.fit(train, validation, seed=0, **OPTIONS, stream=stream)


def test_scores_are_those_of_a_fit_in_memory(parts, stream):
    train, validation, test = parts
    few = train.rows(slice(0, SAMPLED))
    result, whole, sampled = (
        fit_trees(few, validation, stream),
        fit_trees(train, validation),
        fit_trees(few, validation),
    )
    assert result.n_rows == result.get_facts()["streamed rows"] == stream.read == ROWS
    ours, memory, sample = (compute_losses(member, test) for member in (result, whole, sampled))
    gap = ours - memory
    assert abs(gap.mean()) < 0.005 * memory.mean()
    assert gap.mean() < 3 * gap.std() / np.sqrt(len(gap)), "not worse beyond noise"
    assert (sample - ours).mean() > 0.02 * memory.mean(), "more rows help"
    loaded = Trees.from_state(result.state())
    assert loaded.get_facts() == result.get_facts()
    assert np.array_equal(compute_losses(loaded, test), ours)


def test_memory_and_time_bound_the_rows(parts, stream, make_stream, monkeypatch):
    train, validation, _ = parts
    longer = make_stream(simulate_rows(1, 12_000))
    monkeypatch.setattr(streamed, "MAX_BYTES", 3500 * (4 * streamed.CELL_BYTES + streamed.ROW_BYTES))
    fitted = fit_trees(train.rows(slice(0, SAMPLED)), validation, longer)
    assert fitted.n_rows == 3000
    assert len(longer) * 0.9 < longer.read < len(longer) * 1.1, "rows are drawn from the whole table"
    assert streamed.count_affordable_stream_rows(stream, 4, Clock(0.05)) < 2000
