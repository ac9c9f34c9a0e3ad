"""Shapley values by sampling: a row is reached from a background row, one column at a time, in random orders."""

from typing import NamedTuple

import numpy as np

from ddpn.analysis.explanations.inputs import Inputs

#: Cells of the table of hybrid rows that are built at a time.
_CELLS = 2_000_000


class Walks(NamedTuple):
    """Ways from background rows to explained rows.

    Shape: start and end (walks,) are rows of the inputs, order (walks, columns) says in which order columns change.
    """

    start: np.ndarray
    end: np.ndarray
    order: np.ndarray

    def part(self, rows: slice) -> "Walks":
        """Some of the walks."""
        return Walks(*(each[rows] for each in self))


def shapley_values(
    inputs: Inputs, rows: np.ndarray, background: np.ndarray, quantity: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Contributions of every column to each row, and their standard errors. Shape: (rows, columns) each.

    Every background row is the start of two walks, in a random order of the columns and in its reverse: antithetic
    walks, whose mean varies less. The contributions of a row add up to its prediction minus the mean prediction of the
    background.
    """
    width, pairs = len(inputs.columns), len(background)
    forth = np.stack([rng.permutation(width) for _ in range(len(rows) * pairs)])
    order = np.stack([forth, forth[:, ::-1]], 1).reshape(-1, width)
    walks = Walks(np.repeat(np.tile(background, len(rows)), 2), np.repeat(rows, 2 * pairs), order)
    ends = _predicted(inputs, np.concatenate([background, rows]), {}, quantity)
    known = dict(zip(np.concatenate([background, rows]).tolist(), ends.tolist(), strict=True))
    size = max(1, _CELLS // width**2)
    parts = [
        _walk(inputs, walks.part(slice(first, first + size)), known, quantity)
        for first in range(0, len(walks.start), size)
    ]
    each = np.concatenate(parts).reshape(len(rows), pairs, 2, width).mean(2)
    error = each.std(1, ddof=1) / np.sqrt(pairs) if pairs > 1 else np.full(each.shape[::2], np.nan)
    return each.mean(1), error


def _walk(inputs: Inputs, walks: Walks, known: dict[int, float], quantity: int) -> np.ndarray:
    """What each step of a walk changes, by column. Shape: (walks, columns)."""
    values = [column.values for column in inputs.columns]
    differs = np.stack([~_same(each[walks.start], each[walks.end]) for each in values], 1)
    steps = np.take_along_axis(differs, walks.order, 1)  # by step, not by column
    # Steps between equal values change nothing, and the last step that changes anything reaches the explained row.
    left = steps[:, ::-1].cumsum(1)[:, ::-1]
    walk, step = np.nonzero(steps & (left > 1))
    rank = np.argsort(walks.order, 1)
    done = rank[walk] <= step[:, None]
    source = np.where(done, walks.end[walk, None], walks.start[walk, None])
    first, last = (np.array([known[row] for row in ends.tolist()]) for ends in (walks.start, walks.end))
    path = np.where((left == 0) | (steps & (left == 1)), last[:, None], np.nan)
    if len(walk):
        path[walk, step] = _predicted(inputs, source[:, 0], {j: source[:, j] for j in range(source.shape[1])}, quantity)
    path = np.concatenate([first[:, None], path], 1)
    # A walk between equal rows never leaves its start.
    path[left[:, 0] == 0] = first[left[:, 0] == 0, None]
    changes = np.diff(_filled_forward(path), axis=1)
    found = np.zeros_like(changes)
    np.put_along_axis(found, walks.order, changes, 1)
    return found


def _same(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one == other) | ((one != one) & (other != other))


def _filled_forward(path: np.ndarray) -> np.ndarray:
    """NaN replaced by the last value before it."""
    place = np.where(np.isnan(path), 0, np.arange(path.shape[1]))
    return np.take_along_axis(path, np.maximum.accumulate(place, 1), 1)


def _predicted(inputs: Inputs, rows: np.ndarray, sources: dict[int, np.ndarray], quantity: int) -> np.ndarray:
    moments = inputs.moments(rows, sources, variance=quantity == 1, recalibrated=True)
    return moments.quantities(inputs.log)[quantity, :, 0]
