"""Tests of the uniform sample and of the shuffled stream."""

from itertools import islice

import numpy as np
import pytest

from ddpn.runtime.errors import InputError
from ddpn.tables import table as streaming
from ddpn.tables.table import Table, sampled_rows, shuffled_chunks


def test_every_row_is_equally_likely(folder, monkeypatch):
    monkeypatch.setattr(streaming, "SAMPLE_ROWS", 1000)
    table, hits = Table([str(folder)]), np.zeros(9000)
    for seed in range(400):
        numbers = sampled_rows(table, seed)
        assert len(np.unique(numbers)) == 1000
        hits[numbers] += 1
    # A binomial of 400 draws with probability 1/9 has a standard deviation of 6.3.
    assert abs(hits.std() - 6.3) < 0.3
    assert abs(hits[:4500].mean() - 400 / 9) < 4 * 6.3 / np.sqrt(4500)


def test_a_small_table_is_sampled_whole(folder):
    assert np.array_equal(sampled_rows(Table([str(folder)]), 0), np.arange(9000))


def all_rows(frame, numbers):
    return np.ones(len(numbers), dtype=bool)


def test_a_pass_has_every_row_once_in_an_order_that_the_seed_decides(folder):
    table = Table([str(folder)])
    order = [c["row"].to_numpy() for c in islice(shuffled_chunks(table, ["row"], all_rows, 1000, seed=1), 18)]
    again = [c["row"].to_numpy() for c in islice(shuffled_chunks(table, ["row"], all_rows, 1000, seed=1), 18)]
    other = next(shuffled_chunks(table, ["row"], all_rows, 1000, seed=2))["row"].to_numpy()
    assert all(len(chunk) == 1000 for chunk in order)
    first, second = np.concatenate(order[:9]), np.concatenate(order[9:])
    assert np.array_equal(np.sort(first), np.arange(9000))
    assert np.array_equal(np.sort(second), np.arange(9000))
    assert not np.array_equal(first, second)
    assert np.array_equal(first, np.concatenate(again[:9]))
    assert not np.array_equal(order[0], other)
    assert abs(np.corrcoef(first, np.arange(9000))[0, 1]) < 0.05


def test_left_over_rows_begin_the_next_chunk_and_rows_that_are_not_kept_never_come(folder):
    table = Table([str(folder)])
    chunks = shuffled_chunks(table, ["row"], lambda frame, numbers: numbers % 3 > 0, 4000, seed=0)
    rows = np.concatenate([chunk["row"].to_numpy() for chunk in islice(chunks, 3)])
    assert (rows % 3 > 0).all()
    assert (np.bincount(rows, minlength=9000)[np.arange(9000) % 3 > 0] == 2).all()


def test_a_stream_without_rows_ends_with_an_error(folder):
    table = Table([str(folder)])
    with pytest.raises(InputError, match="must have training rows"):
        next(shuffled_chunks(table, ["row"], lambda frame, numbers: numbers < 0, 10, seed=0))
