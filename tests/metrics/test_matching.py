"""Subsets in which the length of a text tells nothing."""

import numpy as np
import pytest

from ddpn.errors import ConfigError, InputError
from ddpn.metrics import auroc, matched


def lengths(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Words of long and of short texts."""
    rng = np.random.default_rng(seed)
    return rng.negative_binomial(2, 0.02, 6000) + 5, rng.negative_binomial(4, 0.12, 3000) + 3


@pytest.mark.parametrize("seed", range(3))
def test_length_tells_nothing_any_more(seed):
    inside, outside = lengths(seed)
    assert auroc(-inside, -outside) > 0.8
    rows_in, rows_out = matched(inside, outside, seed=seed)
    assert len(rows_in) == len(rows_out) > 1000
    assert auroc(-inside[rows_in], -outside[rows_out]) == pytest.approx(0.5, abs=0.01)
    quantiles = np.linspace(0.05, 0.95, 19)
    ours, theirs = np.quantile(inside[rows_in], quantiles), np.quantile(outside[rows_out], quantiles)
    assert ours == pytest.approx(theirs, rel=0.05, abs=1.0)


def test_rows_are_rows_of_either_side_each_once():
    inside, outside = lengths()
    for rows, n in zip(matched(inside, outside), (len(inside), len(outside)), strict=True):
        assert (rows.diff() > 0).all()
        assert rows[0] >= 0
        assert rows[-1] < n


def test_few_lengths_are_matched_exactly():
    inside, outside = np.repeat([1, 2, 3], [50, 5, 7]), np.repeat([1, 2, 4], [9, 30, 8])
    rows_in, rows_out = matched(inside, outside)
    assert np.bincount(inside[rows_in]).tolist() == np.bincount(outside[rows_out]).tolist() == [0, 9, 5]


def test_which_rows_is_chance_that_a_seed_repeats():
    inside, outside = lengths()
    one, again, other = (matched(inside, outside, seed=seed)[0].tolist() for seed in (1, 1, 2))
    assert one == again != other
    assert max(matched([1.0] * 1000, [1.0] * 10, seed=0)[0].tolist()) > 500


def test_one_bin_matches_numbers_of_rows_only():
    assert [len(rows) for rows in matched([1, 2, 3], [7, 8], bins=1)] == [2, 2]


def test_what_is_refused():
    with pytest.raises(InputError, match="length_in and length_out must overlap, got no bin with rows of both"):
        matched([1, 2, 3], [7, 8, 9])
    with pytest.raises(InputError, match="length_out must hold at least one score, got none"):
        matched([1, 2, 3], [])
    with pytest.raises(ConfigError, match="bins must be a positive integer, got True"):
        matched([1], [1], bins=True)
    with pytest.raises(ConfigError, match="seed must be a whole number of at least 0, got None"):
        matched([1], [1], seed=None)
    assert [rows.tolist() for rows in matched([1], [1], bins=np.int64(5))] == [[0], [0]]
    with pytest.raises(ConfigError, match="bins must be a positive integer, got 0"):
        matched([1, 2], [1, 2], bins=0)
