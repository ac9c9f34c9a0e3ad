"""Warnings about a table whose scores would be too good, or too old: rows that belong together, and counts that trend.

Both compare a model of the mean that is fitted in a second on different rows. Imports no torch.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ddpn.runtime.column_lists import format_option
from ddpn.sample import Sample
from ddpn.tables.kinds import TableColumn
from ddpn.tables.row_hashes import EQUAL_INPUTS, column_codes, hashed
from ddpn.tables.splits import fold_pairs, group_codes, held_out_rows

#: Fewer rows show neither a difference nor a trend.
_MIN_ROWS = 100
#: Cells of a table at most: 10,000 rows of up to 100 columns take about a second per set of folds.
MAX_ROWS, _MAX_CELLS = 10_000, 1_000_000
#: Trees, and rows of a leaf at least: few, so that rows that come again are recognised.
_TREES, _LEAF_ROWS = 60, 5
#: The smallest mean, as a share of the overall rate.
_SMALLEST = 1e-4

Pairs = list[tuple[np.ndarray, np.ndarray]]


def most_rows(columns: int) -> int:
    """Rows that a quick model is fitted to at most; larger tables are sampled."""
    return min(MAX_ROWS, _MAX_CELLS // max(1, columns))


def _means(sample: Sample, pairs: Pairs) -> np.ndarray:
    """The means of the second rows of each pair, by models fitted to the first; NaN for all other rows.

    The models are boosted trees of Poisson rates with few rows per leaf.
    """
    import lightgbm

    from ddpn.members.member import TableReader  # scikit-learn is slow to import

    columns = TableReader().fit(sample.X)
    # Code -1, a missing level, is a missing value to LightGBM, too.
    matrix = np.column_stack([column.values.astype(np.float64) for column in columns])
    categories = [j for j, column in enumerate(columns) if column.kind == "category"]
    exposure = np.ones(len(sample)) if sample.exposure is None else sample.exposure
    rate, weight = sample.y / exposure, sample.weight_or_ones * exposure
    settings = {
        "objective": "poisson", "min_data_in_leaf": _LEAF_ROWS, "num_threads": 1, "deterministic": True,
        "force_row_wise": True, "verbosity": -1,
    }  # fmt: skip
    found = np.full(len(sample), np.nan)
    for inner, outer in pairs:
        if not rate[inner].any():
            found[outer] = 0.0
            continue
        rows = lightgbm.Dataset(
            matrix[inner], rate[inner], weight=weight[inner], params=settings, categorical_feature=categories
        )
        found[outer] = lightgbm.train(settings, rows, _TREES).predict(matrix[outer])
    return np.maximum(found, _SMALLEST * float(np.average(rate, weights=weight))) * exposure


def _deviances(y: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The Poisson deviance of each row."""
    return 2.0 * (y * np.log(np.where(y > 0, y, 1.0) / mean) - y + mean)


# Rows that belong together -------------------------------------------------------------------------------------------

#: Fewer different values are categories, not persons; fewer are enough if a column is named like an id.
_MIN_GROUPS, _MIN_NAMED = 30, 8
_ID_NAMES = re.compile(
    r"(^|[^a-z])(id|ident|person|patient|subject|customer|client|user|member|household|family|employee|student|animal)"
    r"([^a-z]|$)|[a-z]id$"
)
#: Rows per group at least, on average, and the largest share of the rows that a group may have: a value such as 0 that
#: most rows have is no person.
_REPEATS, _LARGEST = 1.5, 0.1
#: In tables of few categories and in factorial designs about as many different rows are left if every column is
#: shuffled on its own; rows of one person become different.
_SHUFFLED = 2.0
#: Columns that are compared at most, those named like an id first, then by their number of values.
_MAX_COLUMNS = 3
_FOLDS = 3
#: The least share of the deviance that is reported, and the largest p-value. tests/workflow/test_table_warnings.py has
#: designed experiments, for which nothing is reported, and persons.
_LEAST_SHARE, _P_VALUE = 0.03, 1e-4


class Repeated(NamedTuple):
    """Rows that seem to belong together: `groups` different ones, by the columns of `option`.

    `seen` and `new` are the shares of the deviance of a constant mean that a quick model explains if it has seen other
    rows of the group and if it has not.
    """

    option: str
    groups: int
    rows: int
    seen: float
    new: float

    @property
    def gain(self) -> float:
        """How much more it explains of rows whose group it has seen."""
        return self.seen - self.new

    @property
    def sentence(self) -> str:
        """The warning."""
        by_inputs = self.option == EQUAL_INPUTS
        what = "inputs" if by_inputs else f"values of {self.option}"
        alike = "equal inputs" if by_inputs else f"the same {self.option}"
        return (
            f"{self.rows:,} rows have {self.groups:,} different {what}, and those with {alike} are alike: a quick "
            f"model explains {max(self.seen, 0):.0%} of their deviance if it has seen others of them, "
            f"{max(self.new, 0):.0%} if not. Rows are split at random, so the scores hold for {what} that occur in "
            f"this table. If the model is to predict new ones, the scores are too good: then use "
            f"{format_option('--group', [self.option])}."
        )


def repeated_rows(sample: Sample, columns: Sequence[TableColumn], seed: int = 0) -> Repeated | None:
    """The groups that a random split divides with the largest gain for a quick model, if it is clear.

    `columns` are those that the model uses. None if no rows seem to belong together, or if that does not matter.
    """
    if len(sample) < _MIN_ROWS or not np.ptp(sample.y):
        return None
    inputs, named = _equal_inputs(sample.X), _columns(sample.X, columns)
    if inputs is not None:
        same = [column for column, labels in named if _are_same(labels, inputs)]
        ids = [column.name for column in same if column.kind == "category" or column.number.integers]
        found = _compared(sample, next(iter(ids), EQUAL_INPUTS), inputs, seed)
        if found is not None:
            return found
        named = [(column, labels) for column, labels in named if column not in same]
    others = (_compared(sample, column.name, labels, seed, column.kind == "category") for column, labels in named)
    return max(filter(None, others), key=lambda found: found.gain, default=None)


def _equal_inputs(X: Any) -> np.ndarray | None:
    """A label per row, the same where all inputs are equal; None if equal inputs are rare, or natural."""
    codes = [column_codes(series) for series in X.iter_columns()]
    labels = hashed(codes, X.height)
    if not _may_be_persons(labels, _MIN_GROUPS):
        return None
    random = np.random.default_rng(0)
    shuffled = len(np.unique(hashed([random.permutation(each) for each in codes], X.height)))
    return labels if shuffled >= _SHUFFLED * len(np.unique(labels)) else None


def _may_be_persons(labels: np.ndarray, least: int) -> bool:
    """Whether there are enough groups, of several rows each, none of them very large."""
    _, sizes = group_codes(len(labels), labels)
    return bool(least <= len(sizes) <= len(labels) / _REPEATS and sizes.max() <= _LARGEST * len(labels))


def _columns(X: Any, columns: Sequence[TableColumn]) -> list[tuple[TableColumn, np.ndarray]]:
    """Columns whose values may be persons or the like, with a label per row.

    Numbers are measurements unless they are named like an id, or another column is the same wherever they are.
    """
    found = []
    for column in columns:
        if column.kind in ("category", "number"):
            is_named = bool(_ID_NAMES.search(column.name.lower()))
            labels = column_codes(X[column.name])
            if _may_be_persons(labels, _MIN_NAMED if is_named else _MIN_GROUPS):
                found.append((not is_named, -len(np.unique(labels)), column, labels))
    found.sort(key=lambda each: each[:2])
    kept: list[tuple[TableColumn, np.ndarray]] = []
    for unnamed, _, column, labels in found:
        twins = [other for _, _, other, others in found if other is not column and _are_same(others, labels)]
        is_first = not any(twin is each for twin in twins for each, _ in kept)
        if is_first and (not unnamed or column.kind == "category" or twins):
            kept.append((column, labels))
    return kept[:_MAX_COLUMNS]


def _are_same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two sets of labels divide the rows in the same way."""
    numbers = len(np.unique(one)), len(np.unique(other)), len(np.unique(np.stack([one, other]), axis=1).T)
    return len(set(numbers)) == 1


def _compared(sample: Sample, option: str, labels: np.ndarray, seed: int, is_category: bool = False) -> Repeated | None:
    """Compare a quick model under random folds and under folds that keep groups together; None if they agree.

    Members of the mixture have an effect for every level of a category, so it counts for the model, too.
    """
    from scipy.stats import wilcoxon  # slow to import

    groups, rows = len(np.unique(labels)), len(sample)
    most = most_rows(sample.X.width)
    if rows > most:
        kept = held_out_rows(rows, most / rows, seed, labels)
        sample, labels = sample.rows(kept), labels[kept]
    y, weight = sample.y, sample.weight_or_ones
    codes, _ = group_codes(len(labels), labels)
    pairs = fold_pairs(len(sample), _FOLDS, seed)
    mean = _means(sample, fold_pairs(len(sample), _FOLDS, seed, labels))
    new, seen = _deviances(y, mean), [_deviances(y, _means(sample, pairs))]
    if is_category:
        seen.append(_deviances(y, mean * _effects(y, mean, codes, pairs)))
    best = min(seen, key=lambda deviance: np.average(deviance, weights=weight))
    exposure = np.ones(len(sample)) if sample.exposure is None else sample.exposure
    constant = _deviances(y, np.average(y / exposure, weights=weight * exposure) * exposure)
    total = np.average(constant, weights=weight)
    shares = [float(1.0 - np.average(each, weights=weight) / total) for each in (best, new)]
    found = Repeated(option, groups, rows, *shares)
    if found.gain < _LEAST_SHARE:
        return None
    # Ranks of the groups' means: deviances of few rows with large counts would make the mean uncertain.
    means = np.bincount(codes, weight * (new - best)) / np.bincount(codes, weight)
    is_clear = wilcoxon(means, alternative="greater").pvalue < _P_VALUE
    return found if is_clear else None


def _effects(y: np.ndarray, mean: np.ndarray, codes: np.ndarray, pairs: Pairs) -> np.ndarray:
    """What multiplies each mean: the ratio of counts to means of the group's rows in other folds, shrunk towards 1.

    The variance of the ratios follows from products of residuals of different rows of a group, so that over-dispersion
    does not count.
    """
    residual = y - mean
    products, sizes = (
        float(np.sum(np.bincount(codes, each) ** 2) - np.sum(np.square(each))) for each in (residual, mean)
    )
    variance = max(0.0, products / sizes) if sizes > 0 else 0.0
    effects = np.ones(len(y))
    for inner, outer in pairs:
        number = codes.max() + 1
        counts, means = (np.bincount(codes[inner], each[inner], minlength=number) for each in (y, mean))
        effects[outer] = ((1.0 + variance * counts) / (1.0 + variance * means))[codes[outer]]
    return effects


# What changes with time -----------------------------------------------------------------------------------------------

#: A column of numbers that rises or falls with time has a rank correlation with it of this size or more.
_MONOTONE = 0.95
#: Values of a column such as the year or the season last for this share of the rows or longer, each time they occur.
_STRETCH = 0.02
#: The share of the rows that a quick model is fitted to, the earliest ones; it predicts the others.
_EARLY = 0.7
#: Successive blocks of later rows: within one, rows need not be independent.
_BLOCKS = 10
#: The least relative difference of the later counts that is reported, and its least size in standard errors of the
#: blocks: chance exceeds that in 0.3% of tables (Student's t with 9 degrees of freedom).
_LEAST_CHANGE, _CLEAR = 0.1, 4.0


def find_trend(sample: Sample, times: Any, time: str, is_input: bool) -> str:
    """A warning if later counts are clearly not what a quick model of earlier rows predicts; "" if they may be.

    Test rows are not among the rows. `time` is the name of the column of `times`, and `is_input` if the model has it.
    """
    if len(sample) < _MIN_ROWS or not np.ptp(sample.y):
        return ""
    order = times.arg_sort().to_numpy()
    most = most_rows(sample.X.width)
    if len(order) > most:
        order = order[np.linspace(0, len(order) - 1, most).astype(np.int64)]
    sample = sample.rows(order)
    early, late = np.split(np.arange(len(sample)), [round(_EARLY * len(sample))])
    if not sample.y[early].any():
        return ""
    mean = _means(sample, [(early, late)])[late]
    weight, y = sample.weight_or_ones[late], sample.y[late]
    excess = np.array([block.sum() for block in np.array_split(weight * (y - mean), _BLOCKS)])
    change = float(excess.sum() / (weight * mean).sum())
    error = float(excess.std(ddof=1) * np.sqrt(_BLOCKS))
    if abs(excess.sum()) <= _CLEAR * error or abs(change) < _LEAST_CHANGE:
        return ""
    side = "higher" if change > 0 else "lower"
    remedy = "" if is_input else f" {format_option('--use', [time])} makes the time an input, too."
    return (
        f"Counts trend with {time}: those of the latest training and validation rows are {abs(change):.0%} {side} than "
        f"a quick model of the earlier rows predicts. Test rows, and rows to predict, may be as far off: trees and "
        f"networks do not extrapolate a trend. Fit again as new rows come in.{remedy}"
    )


def time_columns(X: Any, times: Any) -> list[str]:
    """Names of the columns that are monotone in time, or constant over long stretches of it; `X` is a polars frame.

    `times` is a series of the times of its rows. Nothing could be said about a row without all of its columns, so that
    none is returned where all columns follow time.

    >>> import polars as pl
    >>> days = pl.Series(range(100))
    >>> X = pl.DataFrame({"year": days // 50, "trend": days + 0.5, "weekday": days % 7})
    >>> time_columns(X, days)
    ['year', 'trend']
    """
    order = times.arg_sort()
    ranks = times.gather(order).rank("average").to_numpy()
    found = [name for name in X.columns if _follows(X[name].gather(order), ranks)]
    return found if len(found) < len(X.columns) else []


def _follows(series: Any, ranks: np.ndarray) -> bool:
    codes = series.rank("dense").fill_null(0).to_numpy().astype(np.int64)
    if not np.ptp(codes):
        return False
    is_number = series.dtype.is_numeric() and not series.null_count() and np.ptp(ranks)
    if is_number and abs(np.corrcoef(series.rank("average").to_numpy(), ranks)[0, 1]) >= _MONOTONE:
        return True
    # Whether the stretches of equal values are long for every value, on average.
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    _, rows = np.unique(codes, return_counts=True)
    _, stretches = np.unique(codes[starts], return_counts=True)
    return bool((rows / stretches).min() >= max(_STRETCH * len(codes), 2.0))
