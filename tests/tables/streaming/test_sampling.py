"""Tests of the uniform sample and of the shuffled stream."""

from itertools import islice

import numpy as np
import polars as pl
import pytest

from ddpn.runtime.errors import InputError
from ddpn.tables.streaming import Parts, RowSample, find_parts, shuffled_chunks


def sampled(rows: int, size: int, seed: int, batch: int = 97) -> np.ndarray:
    sample = RowSample(size, seed)
    for first in range(0, rows, batch):
        sample.add(pl.DataFrame({"x": np.arange(first, min(first + batch, rows))}), first)
    frame, numbers = sample.result()
    assert frame["x"].to_list() == numbers.tolist()
    return numbers


def test_every_row_is_equally_likely():
    hits = np.zeros(500)
    for seed in range(400):
        hits[sampled(500, 50, seed)] += 1
    # A binomial of 400 draws with probability 0.1 has a standard deviation of 6.
    assert hits.sum() == 400 * 50
    assert abs(hits.std() - 6.0) < 0.8
    assert abs(hits[:250].mean() - 40.0) < 4 * 6 / np.sqrt(250)


def test_a_sample_does_not_depend_on_the_batches_and_keeps_all_rows_of_a_small_table():
    assert np.array_equal(sampled(1000, 100, 3, batch=17), sampled(1000, 100, 3, batch=400))
    assert not np.array_equal(sampled(1000, 100, 3), sampled(1000, 100, 4))
    assert np.array_equal(sampled(80, 100, 0), np.arange(80))


def all_rows(frame, numbers):
    return np.ones(len(numbers), dtype=bool)


def test_a_pass_has_every_row_once_in_an_order_that_the_seed_decides(folder, table):
    parts = Parts(find_parts([str(folder)]))
    order = [c["row"].to_numpy() for c in islice(shuffled_chunks(parts, ["row"], all_rows, 1000, seed=1), 18)]
    again = [c["row"].to_numpy() for c in islice(shuffled_chunks(parts, ["row"], all_rows, 1000, seed=1), 18)]
    other = next(shuffled_chunks(parts, ["row"], all_rows, 1000, seed=2))["row"].to_numpy()
    assert all(len(chunk) == 1000 for chunk in order)
    first, second = np.concatenate(order[:9]), np.concatenate(order[9:])
    assert np.array_equal(np.sort(first), np.arange(9000))
    assert np.array_equal(np.sort(second), np.arange(9000))
    assert not np.array_equal(first, second)
    assert np.array_equal(first, np.concatenate(again[:9]))
    assert not np.array_equal(order[0], other)
    assert abs(np.corrcoef(first, np.arange(9000))[0, 1]) < 0.05


def test_left_over_rows_begin_the_next_chunk_and_rows_that_are_not_kept_never_come(folder):
    parts = Parts(find_parts([str(folder)]))
    chunks = shuffled_chunks(parts, ["row"], lambda frame, numbers: numbers % 3 > 0, 4000, seed=0)
    rows = np.concatenate([chunk["row"].to_numpy() for chunk in islice(chunks, 3)])
    assert (rows % 3 > 0).all()
    assert (np.bincount(rows, minlength=9000)[np.arange(9000) % 3 > 0] == 2).all()


def test_a_stream_without_rows_ends_with_an_error(folder):
    parts = Parts(find_parts([str(folder)]))
    with pytest.raises(InputError, match="must have training rows"):
        next(shuffled_chunks(parts, ["row"], lambda frame, numbers: numbers < 0, 10, seed=0))
