"""Summaries of the training columns, which score how unusual the cells of new rows are.

The score of a cell is its surprise: -log of the probability that an ordinary row has a value at least as unusual. The
surprise of a number follows from its rank among the training values. Outside their range, an exponential tail is
assumed. The surprise of a category level follows from its frequency. For levels that did not occur in training, it
follows from their Good-Turing estimate. Only summaries are stored, no training rows.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from ddpn.calibration.upper_tails import choose_tail_edges, measure_mean_excess, measure_tail_surprise
from ddpn.tables.columns import Column, Kind
from ddpn.tables.row_hashes import hash_texts

#: States of a cell: usual; missing (in a column with missing training values); missing for the first time; a level or
#: value that is not in the training rows; a number above or below the training range.
USUAL, MISSING, NEVER_MISSING, UNSEEN, ABOVE, BELOW = STATES = range(6)
#: Additions to the surprise of events that did not occur in training. The first exceeds the surprise of any frequency;
#: it is for events that no training row hints at. The second ranks unseen levels above equally rare numbers in a tail.
UNPRECEDENTED, NEW_LEVEL = 20.0, 5.0
#: Numeric columns with at most this many distinct values are summarised like levels; and the most levels of a summary.
MAX_DISCRETE_VALUES, MAX_LEVELS = 32, 100_000
#: The smallest share of a level that is an input of the joint score, and the most such levels per column.
_MIN_CODED_SHARE, _MAX_CODED = 0.01, 20
_NONE = np.empty(0)
_NO_KEYS = np.empty(0, dtype=np.uint64)


# One column -----------------------------------------------------------------------------------------------------------


class CellScores(NamedTuple):
    """Scores of the cells of one column.

    Attributes
    ----------
    surprise : array, shape (rows,)
        How unusual each cell is: -log of the probability of a value at least as unusual.
    state : array, shape (rows,)
        One of `STATES` for each cell, such as `MISSING` or `UNSEEN`.
    inputs : array, shape (rows, width)
        The encoding of each cell in the joint distribution of all columns (`JointInputs`): normal scores or indicators.
    """

    surprise: np.ndarray
    state: np.ndarray
    inputs: np.ndarray


class ColumnProfile(NamedTuple):
    """Summary of one training column, which scores how unusual the cells of new rows are.

    The surprise of a value is -log of the probability of a value at least as unusual. Arrays that do not apply to the
    type of the column are empty.

    Attributes
    ----------
    kind : Kind
        The type of the column, such as number or category.
    rows : array, shape (2,)
        The number of rows, followed by the number of missing values.
    absent : array, shape (2,)
        The surprise of a missing value, followed by that of a value that is not missing.
    edges : array, shape (edges,)
        Selected training values of a numeric column, ascending (`choose_tail_edges`).
    surprise : array, shape (edges,)
        The surprise of each value in `edges`.
    normal : array, shape (edges,)
        The normal score of each value in `edges`: the normal quantile of its rank.
    scales : array, shape (2,)
        The scale of the exponential tail below the training range, followed by that above it, in the unit of the
        column (`measure_mean_excess`).
    keys : array, shape (keys,)
        The hashes of the levels of a category, or the values of a number that has few distinct ones; ascending.
    key_surprise : array, shape (keys,)
        The surprise of each of `keys`.
    coded : array, shape (keys,)
        For each of `keys`, its share of the training rows if the joint distribution has an indicator of it, else 0.
    unseen : array, shape (2,)
        The surprise of a value that is not among `keys`, followed by the probability of such values.
    """

    kind: Kind
    rows: np.ndarray
    absent: np.ndarray
    edges: np.ndarray = _NONE
    surprise: np.ndarray = _NONE
    normal: np.ndarray = _NONE
    scales: np.ndarray = _NONE
    keys: np.ndarray = _NO_KEYS
    key_surprise: np.ndarray = _NONE
    coded: np.ndarray = _NONE
    unseen: np.ndarray = _NONE

    @property
    def missing_share(self) -> float:
        return float(self.rows[1] / self.rows[0])

    @property
    def _missing_coded(self) -> bool:
        return _MIN_CODED_SHARE <= self.missing_share <= 1.0 - _MIN_CODED_SHARE

    @property
    def width(self) -> int:
        """The number of inputs that encode a cell of this column in the joint distribution of all columns.

        A number has one input, its normal score. A category has an indicator of each frequent level (at most 20). If 1%
        to 99% of the column's values are missing, there is one more input, an indicator of missing values.
        """
        coded = np.count_nonzero(self.coded) if self.kind.is_category else 1
        return int(coded) + self._missing_coded

    def score(self, column: Column) -> CellScores:
        """Score the cells of a column of new rows. It must have the same kind as the training column."""
        values, missing = column.values, column.is_missing
        surprise, state = np.zeros(len(values)), np.full(len(values), USUAL, dtype=np.int8)
        inputs = np.zeros((len(values), self.width))
        if len(self.edges):
            surprise = np.interp(values, self.edges, self.surprise)
            inputs[:, 0] = np.where(missing, 0.0, np.interp(values, self.edges, self.normal))
        if len(self.keys):
            position = self.find_positions(column)
            surprise = np.where(position >= 0, self.key_surprise[position], self.unseen[0])
            state[position < 0] = UNSEEN
            for j, key in enumerate(np.flatnonzero(self.coded) if self.kind.is_category else ()):
                inputs[:, j] = np.where(missing, 0.0, _standardise_indicator(position == key, self.coded[key]))
        if len(self.edges):
            for sign, edge, scale, kind in (
                (1.0, self.edges[-1], self.scales[1], ABOVE),
                (-1.0, self.edges[0], self.scales[0], BELOW),
            ):
                where = sign * values > sign * edge
                if where.any():
                    surprise[where] = self._measure_outside(sign * values[where], sign * edge, scale)
                    state[where] = kind
        if self._missing_coded:
            inputs[:, -1] = _standardise_indicator(missing, self.missing_share)
        state[missing] = MISSING if self.rows[1] else NEVER_MISSING
        return CellScores(np.where(missing, self.absent[0], surprise + self.absent[1]), state, inputs)

    def measure_left_out(self, column: Column, fold: np.ndarray) -> np.ndarray:
        """Return the surprise of each training cell as if its fold had been left out of the summary.

        The surprise of a cell is -log of the probability of a value at least as unusual. A level that has m rows in the
        other folds is scored like a level that has m rows in the training table. A level that occurs only in its own
        fold is scored like an unseen level.

        Parameters
        ----------
        column : Column
            The column that the summary was fitted to.
        fold : array of int, shape (rows,)
            The fold of each row. Rows that belong together are in one fold.
        """
        # Training cells must take exactly the values that new cells can take. Fitting a summary to the other folds
        # would give slightly different values. Where many rows share one surprise, such as that of a new name, all new
        # rows would then be more unusual than all training rows, or none would be.
        values, surprise = column.values, self.score(column).surprise
        missing = column.is_missing
        _, level, counts = np.unique(np.where(missing, 0, values) + 0, return_inverse=True, return_counts=True)
        counts = np.bincount(level[~missing], minlength=len(counts))
        for number in np.unique(fold):
            inside, others = (fold == number) & ~missing, (fold != number) & ~missing
            if len(self.keys):
                other_counts = np.bincount(level[others], minlength=len(counts))
                surprise[inside] = self._measure_levels(other_counts, counts)[level[inside]] + self.absent[1]
            for sign in (1.0, -1.0) if len(self.edges) and others.any() else ():
                distinct, often = np.unique(sign * values[others], return_counts=True)
                far = inside & (sign * values > distinct[-1])
                scale = measure_mean_excess(distinct, often)
                surprise[far] = self._measure_outside(sign * values[far], distinct[-1], scale) + self.absent[1]
            if not missing[fold != number].any():
                surprise[(fold == number) & missing] = np.log(self.rows[0] + 1.0) + UNPRECEDENTED
        return surprise

    def _measure_levels(self, other_counts: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the surprise that each level has if one fold is left out of the summary.

        The surprise is -log of the probability of a level at least as rare. `other_counts` has the number of rows of
        each level in the remaining folds, and `counts` has the number in all folds. A level that occurs in no other
        fold has the surprise of an unseen level. Shape: (levels,) each.
        """
        ascending = np.sort(counts)
        rows = np.concatenate([[0], np.cumsum(ascending)])[np.searchsorted(ascending, other_counts, side="right")]
        # If no level has this count, the level itself must be added to the rows that are as rare.
        rows = np.where(np.isin(other_counts, counts), rows, rows + other_counts)
        return np.where(other_counts > 0, -np.log(np.maximum(rows, 1) / counts.sum()), self.unseen[0])

    def _measure_outside(self, values: np.ndarray, edge: float, scale: float) -> np.ndarray:
        """Return the surprise of numbers above the training range: -log of the probability of values as unusual.

        `edge` is the largest training value, and `scale` is the scale of the upper tail. To score numbers below the
        range, pass their negatives as `values`, the negative of the smallest training value as `edge`, and the scale of
        the lower tail.
        """
        outside = np.log((self.rows[0] - self.rows[1] + 1.0) / 2.0)
        return np.maximum(
            outside + measure_tail_surprise(values, edge, scale), self.unseen[0] if len(self.keys) else 0.0
        )

    def find_positions(self, column: Column) -> np.ndarray:
        """Return, for each cell of a column, the position of its value in `keys`, or -1 if it is not one of them.

        `keys` has the hashes of the levels of a category, or the distinct values of a number. Shape: (rows,).
        """
        if column.is_category:
            return column.compute_per_level(self.keys, lambda levels: self.find_keys(hash_texts(levels)), -1)
        return self.find_keys(np.ascontiguousarray(column.values.astype(np.float64) + 0.0).view(np.uint64))

    def find_keys(self, searched_keys: np.ndarray) -> np.ndarray:
        """Return the position in `keys` of each hash or value in `searched_keys`, or -1 if `keys` does not have it."""
        if not len(self.keys):
            return np.full(len(searched_keys), -1)
        position = np.minimum(np.searchsorted(self.keys, searched_keys), len(self.keys) - 1)
        return np.where(self.keys[position] == searched_keys, position, -1)


def _standardise_indicator(indicator: np.ndarray, share: float) -> np.ndarray:
    """Scale a boolean indicator to mean 0 and variance 1; `share` is the share of training rows where it is True."""
    return (indicator - share) / np.sqrt(share * (1.0 - share))


def fit_column(column: Column) -> ColumnProfile:
    """Summarise a training column: its quantiles or levels, its tails, and how often its values are missing.

    The levels of a category with more than 100,000 levels are not summarised; its cells are then scored only by whether
    they are missing.
    """
    missing = column.is_missing
    rows = np.array([len(missing), missing.sum()], dtype=np.float64)
    # The surprise of a missing value, and of one that is not missing.
    share = np.array([rows[1], rows[0] - rows[1]]) / max(rows[0], 1.0)
    rarity = -np.log(np.where(share > 0.0, share, 1.0))
    absent = np.where(share > 0.0, np.where(share < 0.5, rarity, 0.0), np.log(rows[0] + 1.0) + UNPRECEDENTED)
    present = column.values[~missing]
    fields: dict[str, np.ndarray] = {}
    if len(present) and column.is_category:
        counts = column.count_levels()
        kept = counts > 0
        fields = _summarise_levels(hash_texts(column.levels)[kept], counts[kept]) if kept.sum() <= MAX_LEVELS else {}
    elif len(present):
        fields = _summarise_numbers(present.astype(np.float64))
    return ColumnProfile(column.kind, rows, absent, **fields)


def _summarise_numbers(x: np.ndarray) -> dict[str, np.ndarray]:
    values, counts = np.unique(x + 0.0, return_counts=True)
    kept, upto, total = choose_tail_edges(counts), np.cumsum(counts), len(x)
    below, above = upto / (total + 1.0), (total - upto + counts) / (total + 1.0)
    both = np.maximum(0.0, -np.log(2.0 * np.minimum(below, above)))
    normal = ndtri((upto - 0.5 * counts) / total)
    fields = {
        "edges": values[kept],
        "surprise": both[kept],
        "normal": normal[kept],
        "scales": np.array([measure_mean_excess(-values[::-1], counts[::-1]), measure_mean_excess(values, counts)]),
    }
    if len(values) <= MAX_DISCRETE_VALUES and len(values) <= total / 3.0:
        fields |= _summarise_levels(np.ascontiguousarray(values).view(np.uint64), counts)
    return fields


def _summarise_levels(keys: np.ndarray, counts: np.ndarray) -> dict[str, np.ndarray]:
    order = np.argsort(keys)
    keys, counts = keys[order], counts[order]
    total, by_count = counts.sum(), np.sort(counts)
    as_rare = np.cumsum(by_count)[np.searchsorted(by_count, counts, side="right") - 1]
    # Good-Turing: the share of new levels in later rows is the share of training rows whose level occurs once.
    single = np.count_nonzero(counts == 1)
    probability = (single + 0.5) / (total + 1.0)
    shares = counts / total
    least = np.sort(shares)[-_MAX_CODED:][0]
    is_coded = (shares >= max(_MIN_CODED_SHARE, least)) & (shares < 1.0)
    return {
        "keys": keys,
        "key_surprise": -np.log(as_rare / total),
        "coded": np.where(is_coded, shares, 0.0),
        "unseen": np.array([-np.log(probability) + (NEW_LEVEL if single else UNPRECEDENTED), probability]),
    }
