"""Find rows that seem to belong together although no group was named, where a random split flatters the model.

Rows that share all inputs, or the value of a column such as a person, are compared with a quick model twice: once it
has seen other rows of their group, once it has not. Imports no torch.
"""

import re
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ddpn.sample import Sample
from ddpn.tables.hashing import column_codes, hashed
from ddpn.tables.roles import TableColumn
from ddpn.tables.row_groups import EQUAL_INPUTS
from ddpn.tables.splits import fold_pairs, group_codes, held_out_rows
from ddpn.workflow.quick_model import Pairs, QuickModel, most_rows

#: Fewer rows do not show a difference.
_MIN_ROWS = 100
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
#: The least share of the deviance that is reported, and the largest p-value. tests/workflow/test_repeated_rows.py has
#: designed experiments, for which nothing is reported, and persons.
_LEAST, _P_VALUE = 0.03, 1e-4


class Repeated(NamedTuple):
    """Rows that seem to belong together.

    Attributes
    ----------
    option : str
        What `--group` should be.
    groups, rows : int
        The number of different groups, and of all rows.
    seen, new : float
        The share of the deviance of a constant mean that a quick model explains, if it has seen other rows of the group
        and if it has not.
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
            f"this table. If the model is to predict new ones, the scores are too good: then use --group "
            f"{shlex.quote(self.option)}."
        )


def repeated_rows(sample: Sample, columns: Sequence[TableColumn], seed: int = 0) -> Repeated | None:
    """The groups that a random split divides with the largest gain for a quick model, if it is clear.

    Parameters
    ----------
    sample : Sample
        All rows; `X` is a polars DataFrame.
    columns : sequence of TableColumn
        The columns that the model uses.
    seed : int
        Seed of the folds.

    Returns
    -------
    Repeated or None
        None if no rows seem to belong together, or if that does not matter.
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
    model, weight = QuickModel(sample), sample.weight_or_ones
    codes, _ = group_codes(len(labels), labels)
    pairs = fold_pairs(len(sample), _FOLDS, seed)
    new, seen = model.predict(fold_pairs(len(sample), _FOLDS, seed, labels)), [model.predict(pairs)]
    if is_category:
        seen.append(model.scored(new.mean * _effects(sample.y, new.mean, codes, pairs)))
    best = min((each.deviance for each in seen), key=lambda deviance: np.average(deviance, weights=weight))
    shares = [1.0 - np.average(each, weights=weight) / model.constant_deviance for each in (best, new.deviance)]
    found = Repeated(option, groups, rows, *map(float, shares))
    if found.gain < _LEAST:
        return None
    # Ranks of the groups' means: deviances of few rows with large counts would make the mean uncertain.
    means = np.bincount(codes, weight * (new.deviance - best)) / np.bincount(codes, weight)
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
