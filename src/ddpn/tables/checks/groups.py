"""Find rows that belong together, such as the rows of a person, shop or place. A random split would divide them.

Candidates are rows with equal inputs, rows with nearly equal inputs, and columns whose values may name persons or
units. A quick model then predicts rows twice: with and without other rows of their group in its training set. Groups
are reported only if the predictions with these rows are clearly better.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from ddpn.rows.count_rows import CountRows
from ddpn.rows.groups import encode_groups
from ddpn.tables.checks.findings import FindingKind, TableFinding, are_whole_numbers
from ddpn.tables.checks.group_likeness import are_unit_numbers, have_alike_counts, score_counts
from ddpn.tables.checks.quick_model import MIN_ROWS, QuickModel, count_quick_model_rows, estimate_effects
from ddpn.tables.checks.sampling import choose_rows_of_groups, hash_values
from ddpn.tables.near_rows import (
    choose_near_rows,
    find_clumps,
    find_columns_with_near_rows,
    find_continuous_columns,
    scale_points,
)
from ddpn.tables.row_hashes import hash_rows

#: The fewest distinct values of a column of persons or units, and the fewest if the column is named like an id.
_MIN_GROUPS, _MIN_NAMED_GROUPS = 30, 8
#: The fewest distinct integers that may number units; fewer are taken as a scale.
_MIN_UNITS = 20
_ID_NAMES = re.compile(
    r"(^|[^a-z])(id|ident|person|patient|subject|customer|client|user|member|household|family|employee|student|animal|"
    r"store|shop|site|station|school|driver|doctor|ward|hospital|clinic)([^a-z]|$)|[a-z]_?id$"
)
#: The fewest rows per group on average, and the largest share of all rows in one group: a value that most rows have,
#: such as 0, does not name a person.
_MIN_ROWS_PER_GROUP, _MAX_GROUP_SHARE = 1.5, 0.1
#: The least ratio of the numbers of distinct rows after and before each column is shuffled on its own. It is about 1 in
#: tables of few categories and in factorial designs, and larger if rows belong to persons.
_SHUFFLED_RATIO = 1.4
#: The most columns that are compared: first columns named like an id, then columns with many distinct values.
_MAX_COLUMNS = 3
#: The number of rows by which columns are compared.
_MAX_COMPARED_ROWS = 10_000
#: The least gain, as a share of the deviance, and the largest p-value of a reported group.
#: tests/tables/checks/test_groups.py tests them on designed experiments, for which nothing is reported, and on persons.
_MIN_GAIN, _MAX_P_VALUE = 0.03, 1e-4
#: The largest p-value if an earlier test has shown that counts of a group are alike.
_MAX_SECOND_P_VALUE = 0.01
#: The largest correlation of rows with neighbouring values, as a share of the correlation of rows with one value. In 40
#: simulated tables each, it was 0.40 or more for hours of a day with two sharp peaks, at most 0.21 for 80 stores, and
#: at most 0.37 in 95% of the tables of 22 stores. A column that is named like an id needs less evidence.
_MAX_NEIGHBOUR_SHARE, _MAX_NAMED_NEIGHBOUR_SHARE = 1 / 3, 0.5


class Explained(NamedTuple):
    """Shares of the deviance that a quick model explains, by cross-validation.

    `seen` is the share if the model was fitted to other rows of the same group, and `new` the share if it was not.
    """

    seen: float
    new: float


class Candidate(NamedTuple):
    """A possible grouping of rows, to be tested.

    Attributes
    ----------
    columns : tuple of str
        The columns that define the groups. Empty if rows of a group agree in all inputs.
    rows : array of int, shape (tested rows,)
        The positions of the rows to test.
    labels : array, shape (tested rows,)
        The group label of each of these rows.
    are_near : bool
        True if rows of a group have nearly equal values instead of equal values.
    has_effects : bool
        True if models have an effect per group, as for the levels of a category.
    are_alike : bool
        True if another test has shown that counts of a group are alike. The test is then less strict.
    """

    columns: tuple[str, ...]
    rows: np.ndarray
    labels: np.ndarray
    are_near: bool = False
    #: Whether the mixture has an effect per group, as for the levels of a category.
    has_effects: bool = False
    #: Whether another test has shown that counts of a group are alike.
    are_alike: bool = False


def find_groups(sample: CountRows, skipped: Collection[str] = (), seed: int = 0) -> TableFinding | None:
    """Find the grouping of rows that helps a quick model most to predict a row from other rows of its group.

    Return None if no rows seem to belong together, or if the gain is not clear.

    Parameters
    ----------
    sample : CountRows
        Rows with inputs in a polars frame.
    skipped : collection of str
        Columns that are not tested as names of groups.
    seed : int
        Seed of the folds and of the choice of rows.
    """
    if len(sample) < MIN_ROWS or not np.ptp(sample.y) or not sample.X.width:
        return None
    columns, scores = _ColumnLabels(sample.X, seed), score_counts(sample)
    model = QuickModel(sample, seed)
    inputs = _find_equal_inputs(columns)
    named = _find_unit_columns(columns, scores, skipped)
    if inputs is not None and have_alike_counts(scores[inputs.rows], inputs.labels):
        partition = _hash_partition(columns.hash_rows())
        same = [candidate for candidate in named if _hash_partition(columns.hashes[candidate.columns[0]]) == partition]
        ids = [candidate.columns for candidate in same if not _is_measured(sample.X[candidate.columns[0]])]
        candidate = inputs._replace(columns=ids[0] if ids else ())
        if shares := explain_groups(model, candidate):
            return _describe_groups(candidate, shares, columns)
        named = [candidate for candidate in named if candidate not in same]
    near = [] if inputs is not None else _find_near_inputs(sample.X)
    candidates = [
        *(candidate for candidate in near if have_alike_counts(scores[candidate.rows], candidate.labels)),
        *named,
    ]
    explained = [(candidate, shares) for candidate in candidates if (shares := explain_groups(model, candidate))]
    if any(candidate.are_near and not candidate.columns for candidate, _ in explained):
        # Rows that are near in all columns are also near in a subset of columns, where a few other rows join them.
        explained = [(candidate, shares) for candidate, shares in explained if not candidate.columns]
    best = max(explained, key=lambda entry: entry[1].seen - entry[1].new, default=None)
    return None if best is None else _describe_groups(*best, columns)


class _ColumnLabels:
    """The columns of a polars frame X with a hash of each cell, by which rows with equal cells are grouped.

    `seed` is the seed of the choice of rows in a large table.
    """

    def __init__(self, X: pl.DataFrame, seed: int) -> None:
        self.X, self.seed, self.max_rows = X, seed, count_quick_model_rows(X.width)
        self.hashes = {series.name: hash_values(series) for series in X.iter_columns()}

    def hash_rows(self) -> np.ndarray:
        """Return a hash of each row, computed from all of its cells."""
        return hash_rows(list(self.hashes.values()), self.X.height)

    def choose(self, columns: tuple[str, ...], hashes: np.ndarray, min_groups: int) -> Candidate | None:
        """Make a candidate of the groups of rows with equal hashes, with a sample of the rows if the table is large.

        The sample has whole groups or, if groups are large, many rows of each. Return None if there are fewer than
        `min_groups` groups, too few rows per group, or a group with a large share of all rows.

        Parameters
        ----------
        columns : tuple of str
            The columns that define the groups, which are copied to the candidate.
        hashes : array of uint64, shape (rows,)
            A hash of each row's cells in these columns.
        min_groups : int
            The smallest number of groups.
        """
        sizes = pl.Series(hashes).value_counts()["count"].to_numpy()
        if not _may_be_units(sizes, min_groups):
            return None
        chosen = choose_rows_of_groups(hashes, len(sizes), self.max_rows, self.seed)
        return Candidate(columns, chosen, hashes[chosen])


def count_groups(hashes: np.ndarray) -> int:
    """Return the number of distinct hashes."""
    return int(pl.Series(hashes).n_unique())


def _find_equal_inputs(columns: _ColumnLabels) -> Candidate | None:
    """Find the groups of rows with equal inputs; return None if equal inputs are rare or may occur by chance."""
    hashes = columns.hash_rows()
    candidate = columns.choose((), hashes, _MIN_GROUPS)
    if candidate is None:
        return None
    if columns.X.width == 1:
        # Shuffling a single column changes nothing. Measurements with many different values hardly repeat by chance.
        return candidate if find_continuous_columns(columns.X) else None
    random = np.random.default_rng(0)
    shuffled = hash_rows([random.permutation(column) for column in columns.hashes.values()], len(hashes))
    return candidate if count_groups(shuffled) >= _SHUFFLED_RATIO * count_groups(hashes) else None


def _find_near_inputs(X: pl.DataFrame) -> Iterator[Candidate]:
    """Yield candidates in which the rows of a group nearly agree, in several columns or in all columns of numbers.

    Nothing is yielded if X has fewer than two columns of numbers with many distinct values, or if nearly equal rows may
    occur by chance.
    """
    for names in find_columns_with_near_rows(X):
        # A part of a large table that keeps near rows together has the same clumps as the whole table.
        rows = choose_near_rows(X, names[0])
        clumps = find_clumps(scale_points(X[rows], names))
        if clumps is not None and _may_be_units(encode_groups(len(clumps), clumps)[1], _MIN_GROUPS):
            yield Candidate(() if len(names) == X.width else names, rows, clumps, are_near=True)


def _may_be_units(sizes: np.ndarray, min_groups: int) -> bool:
    """Return True if groups of rows have sizes as if each group were a unit, such as a person or a shop.

    That is the case if there are at least `min_groups` groups, if they have at least 1.5 rows on average, and if none
    has more than a tenth of the rows. `sizes` has the number of rows of each group.
    """
    rows = int(sizes.sum())
    return bool(min_groups <= len(sizes) <= rows / _MIN_ROWS_PER_GROUP and sizes.max() <= _MAX_GROUP_SHARE * rows)


def _find_unit_columns(columns: _ColumnLabels, scores: np.ndarray, skipped: Collection[str]) -> list[Candidate]:
    """Find columns that may name persons or units, such as shops, and whose rows with equal values have similar counts.

    Text may always name units. Numbers are measurements unless one of these is true:

    - The column is named like an id.
    - Another column divides the rows into the same groups.
    - They are integers, and the counts at neighbouring integers are not similar.

    `scores` are the normal scores of the counts. Columns in `skipped` are left out.
    """
    chosen = list[tuple[bool, int, Candidate]]()
    for series in columns.X.iter_columns():
        name, is_named = series.name, _is_named_like_id(series.name)
        min_groups = _MIN_NAMED_GROUPS if is_named else _MIN_UNITS if series.dtype.is_numeric() else _MIN_GROUPS
        if name not in skipped and str(series.dtype) != "Boolean":
            candidate = columns.choose((name,), columns.hashes[name], min_groups)
            if candidate is not None and have_alike_counts(scores[candidate.rows], candidate.labels):
                chosen.append((not is_named, -count_groups(candidate.labels), candidate))
    signs = {candidate.columns: _hash_partition(columns.hashes[candidate.columns[0]]) for *_, candidate in chosen}
    repeats, seen, candidates = Counter(signs.values()), set[bytes](), list[Candidate]()
    for is_unnamed, _, candidate in sorted(chosen, key=lambda entry: (*entry[:2], entry[2].columns)):
        series, sign = columns.X[candidate.columns[0]], signs[candidate.columns]
        is_number = series.dtype.is_numeric()
        if sign in seen:
            continue
        share = _MAX_NEIGHBOUR_SHARE if is_unnamed else _MAX_NAMED_NEIGHBOUR_SHARE
        is_unit = (
            is_number and _is_whole(series) and are_unit_numbers(scores[candidate.rows], series[candidate.rows], share)
        )
        if not is_unnamed or not is_number or repeats[sign] > 1 or is_unit:
            seen.add(sign)
            candidates.append(candidate._replace(has_effects=not is_number or is_unit, are_alike=is_unit))
        if len(candidates) == _MAX_COLUMNS:
            break
    return candidates


def _is_named_like_id(name: str) -> bool:
    """Return True if a column name suggests persons or units, such as "store", "patient_id" and "DriverNo"."""
    return bool(_ID_NAMES.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()))


def _is_whole(series: pl.Series) -> bool:
    values = series.drop_nulls().to_numpy()
    return are_whole_numbers(values[~np.isnan(values)] if values.dtype.kind == "f" else values)


def _is_measured(series: pl.Series) -> bool:
    """Return True for numbers with decimals, because these are measurements rather than names of units."""
    return series.dtype.is_numeric() and not _is_whole(series)


def _hash_partition(labels: np.ndarray) -> bytes:
    """Hash how the first rows are divided into groups with equal labels.

    Two arrays of labels that divide these rows into the same groups have the same hash, whatever the labels are. To
    save time, later rows of a long table are ignored.
    """
    labels = labels[:_MAX_COMPARED_ROWS]
    _, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    # Groups are numbered by their first rows.
    return hashlib.blake2b(first[codes].tobytes(), digest_size=16).digest()


def explain_groups(model: QuickModel, candidate: Candidate) -> Explained | None:
    """Compare two cross-validations of a quick model: with random folds, and with folds that keep groups together.

    Return the shares of the deviance that the model explains with either kind of folds. Return None if random folds are
    not clearly better than folds that keep the groups of `candidate` together. The groups then do not matter.

    `model` is the quick model of all rows. If the candidate has only some of them, a model of these rows is used.
    """
    from scipy.stats import wilcoxon  # slow to import

    labels = candidate.labels
    if len(labels) < len(model.sample):
        model = QuickModel(model.sample.rows(candidate.rows), model.seed)
    codes, _ = encode_groups(len(labels), labels)
    means, weight = model.predict_grouped_means(labels), model.sample.weight_or_ones
    new, seen = model.compute_deviances(means), [model.compute_deviances(model.random_means)]
    if candidate.has_effects:
        effects = estimate_effects(model.sample.y, means, codes, model.random_pairs)
        seen.append(model.compute_deviances(means * effects))
    best = min(seen, key=lambda deviances: np.average(deviances, weights=weight))
    shares = Explained(model.explain_share(best), model.explain_share(new))
    if shares.seen - shares.new < _MIN_GAIN:
        return None
    # A rank test of the groups' means: a few rows with large counts would dominate a test of the mean deviance.
    differences = np.bincount(codes, weight * (new - best)) / np.bincount(codes, weight)
    largest = _MAX_SECOND_P_VALUE if candidate.are_alike else _MAX_P_VALUE
    return shares if wilcoxon(differences, alternative="greater").pvalue < largest else None


def _describe_groups(candidate: Candidate, shares: Explained, columns: _ColumnLabels) -> TableFinding:
    """Make the finding about groups of rows. `shares` says how much they help a quick model."""
    named = " and ".join(candidate.columns)
    shared = f"values of {named}" if named else "inputs"
    if candidate.are_near:
        rows, groups = len(candidate.rows), len(np.unique(candidate.labels))
        whole = "" if rows == columns.X.height else f" of {columns.X.height:,}, which were looked at,"
        start, alike = f"{rows:,} rows{whole} form {groups:,} groups of nearly equal {shared}", "rows of one group"
    else:
        hashes = columns.hashes[named] if named else columns.hash_rows()
        start = f"{columns.X.height:,} rows have {count_groups(hashes):,} different {shared}"
        alike = f"those with {f'the same {named}' if named else 'equal inputs'}"
    statement = (
        f"{start}, and {alike} are alike: a quick model explains {max(shares.seen, 0):.0%} of the deviance if it was "
        f"fitted to other rows of the same group, and {max(shares.new, 0):.0%} if it was not."
    )
    return TableFinding(FindingKind.GROUPS, statement, candidate.columns, are_near=candidate.are_near)
