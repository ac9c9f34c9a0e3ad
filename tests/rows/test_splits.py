"""Test folds and parts of rows: their sizes, their seeds, and groups that stay together."""

import numpy as np
import pytest

from ddpn.rows.splits import FOLDS, assign_folds, draw_held_out_rows, split_at_random


@pytest.mark.parametrize("rows", [2, 7, 100, 101])
def test_folds_without_groups_have_one_size_and_depend_on_the_seed(rows):
    result = assign_folds(rows, FOLDS, seed=3)
    sizes = np.bincount(result)
    assert len(sizes) == min(rows, FOLDS)
    assert np.ptp(sizes) <= 1
    assert np.array_equal(result, assign_folds(rows, FOLDS, seed=3))
    if rows >= 100:
        assert not np.array_equal(result, assign_folds(rows, FOLDS, seed=4))


@pytest.mark.parametrize("seed", range(5))
def test_groups_stay_together_in_folds_of_similar_size(seed):
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(60), rng.integers(1, 12, 60))).astype(str)
    result = assign_folds(len(group), FOLDS, seed, group)
    assert all(len(set(result[group == name])) == 1 for name in np.unique(group))
    assert np.ptp(np.bincount(result)) <= 11  # the largest group at most


@pytest.mark.parametrize(("rows", "share"), [(10, 0.2), (1000, 0.1), (2, 0.9)])
def test_a_share_of_rows_is_held_out(rows, share):
    result = draw_held_out_rows(rows, share, seed=1)
    assert result.sum() == min(rows - 1, max(1, round(share * rows)))


def test_held_out_groups_stay_together():
    group = np.repeat(np.arange(100), 5)
    result = draw_held_out_rows(500, 0.1, 0, group)
    assert result.sum() == 50
    assert all(len(set(result[group == name])) == 1 for name in range(100))
    assert draw_held_out_rows(6, 0.5, 0, np.array([0, 0, 0, 0, 0, 1])).sum() in (1, 5)


@pytest.mark.parametrize("seed", range(5))
def test_random_parts_have_their_shares_and_whole_groups(seed):
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(90), rng.integers(1, 12, 90)))
    parts = split_at_random(len(group), (0.7, 0.1, 0.2), seed, group)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(group)))
    assert sum(len(set(group[part])) for part in parts) == 90
    assert all(abs(len(part) - share * len(group)) <= 11 for part, share in zip(parts, (0.7, 0.1, 0.2), strict=True))


def test_random_parts_without_groups_are_a_cut_permutation():
    parts = split_at_random(103, (0.7, 0.1, 0.2), 4)
    assert [len(part) for part in parts] == [72, 10, 21]
    assert np.concatenate(parts).tolist() == np.random.default_rng(4).permutation(103).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_a_group_with_most_rows_is_in_the_first_part(seed):
    group = np.r_[np.zeros(500), np.arange(1, 6)]
    first, second, third = split_at_random(505, (0.7, 0.1, 0.2), seed, group)
    assert set(range(500)) <= set(first.tolist())
    assert len(second)
    assert len(third)


@pytest.mark.parametrize("seed", range(20))
def test_every_part_with_a_share_has_a_group_if_there_are_enough(seed):
    group = np.repeat([0, 1, 2], [4, 3, 3])
    assert all(len(part) for part in split_at_random(10, (0.7, 0.1, 0.2), seed, group))
