"""Split rows into folds, or into training, validation and test rows. Rows of a group stay together."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ddpn.rows.checks import Labels, select_labels
from ddpn.rows.groups import describe_groups, encode_groups
from ddpn.runtime.errors import Argument, InputError
from ddpn.runtime.validation import join_words

#: The number of folds in cross-fitting.
FOLDS = 5
#: The most rows of a small table. Small tables are cross-fitted and get smaller networks and trees; larger tables have
#: validation rows.
SMALL_TABLE_ROWS = 5000
#: The default share of rows that are held out.
HELD_OUT_SHARE = 0.1
#: The fewest rows of a table from which validation rows are held out. With fewer, all rows are needed for fitting, and
#: scores would be too noisy.
MIN_ROWS_TO_VALIDATE = 200


def assign_folds(rows: int, folds: int, seed: int, group: np.ndarray | None = None) -> np.ndarray:
    """Assign rows at random to folds of about equal size; return the fold number of each row.

    Rows with equal labels in `group` share a fold. Without groups, the sizes of folds differ by at most one row. With
    groups, the largest groups are assigned first, each to the fold that has the fewest rows at that point. There are
    never more folds than rows or groups.

    >>> np.bincount(assign_folds(7, 3, seed=0)).tolist()
    [3, 2, 2]
    >>> assign_folds(4, 2, seed=0, group=np.array(["a", "b", "b", "a"])).tolist()
    [0, 1, 1, 0]
    """
    codes, sizes = encode_groups(rows, group)
    order = np.random.default_rng(seed).permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    filled = np.zeros(max(1, min(folds, len(sizes))), dtype=np.int64)
    fold_of = np.empty(len(sizes), dtype=np.int64)
    for number in order.tolist():
        fold_of[number] = filled.argmin()
        filled[fold_of[number]] += sizes[number]
    return fold_of[codes]


def split_folds(
    rows: int, folds: int, seed: int, group: np.ndarray | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Split rows at random into folds, like `KFold`. Return a pair of arrays per fold.

    The first array has the positions of the rows outside the fold, and the second array those of the rows in it. The
    arguments are those of `assign_folds`.

    >>> [outer.tolist() for _, outer in split_folds(4, 2, seed=0, group=np.array(["a", "b", "b", "a"]))]
    [[0, 3], [1, 2]]
    """
    return list_fold_pairs(assign_folds(rows, folds, seed, group))


def list_fold_pairs(fold_numbers: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, for each fold, the positions of the rows outside it and of the rows in it.

    `fold_numbers` has the fold number of each row.

    >>> [inner.tolist() for inner, _ in list_fold_pairs(np.array([0, 1, 1, 0]))]
    [[1, 2], [0, 3]]
    """
    folds = range(int(fold_numbers.max(initial=-1)) + 1)
    return [(np.flatnonzero(fold_numbers != fold), np.flatnonzero(fold_numbers == fold)) for fold in folds]


def split_time_blocks(rows: int, size: int, blocks: int) -> list[tuple[slice, slice]]:
    """Split rows that are sorted by time into pairs of earlier and later rows, like `TimeSeriesSplit`.

    Each pair has two slices: `size` successive rows to predict, preceded by all earlier rows. There are up to `blocks`
    pairs, the latest first. Pairs with at most `size` earlier rows are left out.

    >>> split_time_blocks(10, 3, 4)
    [(slice(0, 7, None), slice(7, 10, None)), (slice(0, 4, None), slice(4, 7, None))]
    """
    ends = [rows - block * size for block in range(blocks) if rows - (block + 1) * size > size]
    return [(slice(0, end - size), slice(end - size, end)) for end in ends]


def split_at_random(rows: int, shares: Sequence[float], seed: int, group: np.ndarray | None = None) -> list[np.ndarray]:
    """Split rows at random into parts with the given shares of the rows; return the row positions of each part.

    The `shares` sum to 1. The rows of a group stay in one part. A part with a share above 0 gets at least one group, if
    there are enough groups. A group with more than half of the rows goes to the first part.

    >>> [len(part) for part in split_at_random(10, (0.7, 0.1, 0.2), seed=0)]
    [7, 1, 2]
    >>> [part.tolist() for part in split_at_random(4, (0.5, 0.5), seed=0, group=np.array(["a", "b", "b", "a"]))]
    [[0, 3], [1, 2]]
    """
    codes, sizes = encode_groups(rows, group)
    order = np.random.default_rng(seed).permutation(len(sizes))
    order = order[np.argsort(sizes[order] <= rows / 2, kind="stable")]
    ends = np.concatenate([[0], np.cumsum(sizes[order])])
    cuts = [int(np.abs(ends - np.rint(rows * share)).argmin()) for share in np.cumsum(shares)[:-1]]
    for part, cut in enumerate(cuts):
        first = cuts[part - 1] if part else 0
        later = sum(share > 0 for share in shares[part + 1 :])
        cuts[part] = max(min(max(cut, first + (shares[part] > 0)), len(sizes) - later), first)
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[order] = np.arange(len(sizes))
    return np.split(np.argsort(rank[codes], kind="stable"), ends[cuts])


def draw_held_out_rows(rows: int, share: float, seed: int, group: np.ndarray | None = None) -> np.ndarray:
    """Draw whole groups at random, with about `share` of the rows; return a mask of the drawn rows.

    Without `group`, single rows are drawn. If there are at least two rows or groups, at least one is drawn and at least
    one is not.

    >>> draw_held_out_rows(10, 0.2, seed=0).sum()
    np.int64(2)
    """
    codes, sizes = encode_groups(rows, group)
    order = np.random.default_rng(seed).permutation(len(sizes))
    target_rows = max(1, round(share * rows))
    number = 1 + int(np.searchsorted(np.cumsum(sizes[order]), target_rows))
    chosen = np.zeros(len(sizes), dtype=bool)
    chosen[order[: min(number, len(sizes) - 1)]] = True
    return chosen[codes]


# Training, validation and test rows -----------------------------------------------------------------------------------

#: The words for each part in a split column.
PARTS = {
    "train": ("train", "training", "fit"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "holdout"),
}


class SplitRows(NamedTuple):
    """The positions of the training, validation and test rows, as three arrays of int."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray

    def join_if_few(self) -> "SplitRows":
        """Use validation rows for training as well, if training and validation rows together are fewer than 200.

        The returned split then has no validation rows. Otherwise this split is returned.
        """
        if len(self.train) + len(self.validation) >= MIN_ROWS_TO_VALIDATE:
            return self
        rows = np.sort(np.concatenate([self.train, self.validation]))
        return SplitRows(rows, rows[:0], self.test)


def read_parts(cells: Sequence[object], name: str, labels: Labels = None) -> np.ndarray:
    """Convert the cells of the user's split column to "train", "validation" or "test", one per row.

    Synonyms such as "dev" are accepted. Other cells raise an `InputError`, which names the column `name`, and rows by
    `labels`.
    """
    words = [str(cell).strip().lower() for cell in cells]
    part_by_word = {word: part for part, spellings in PARTS.items() for word in spellings}
    is_unknown = np.array([word not in part_by_word for word in words])
    if is_unknown.any():
        first = cells[int(is_unknown.argmax())]
        got = "an empty cell" if first is None or not str(first).strip() else repr(first)
        must, rows = "hold train, validation or test in every row", select_labels(is_unknown, labels)
        raise InputError(argument=Argument("split_column", name), must=must, got=got, rows=rows)
    return np.array([part_by_word[word] for word in words])


def split_by_parts(
    row_parts: np.ndarray,
    name: str,
    shares: Sequence[float],
    seed: int,
    group: np.ndarray | None = None,
    group_columns: Sequence[str] = (),
    labels: Labels = None,
) -> SplitRows:
    """Split rows as the user's split column says.

    If the column marks no validation rows, some training rows become validation rows, drawn at random. This needs at
    least 200 training rows. An `InputError` is raised if the column divides a group.

    Parameters
    ----------
    row_parts : array of str, shape (rows,)
        The part of each row: "train", "validation" or "test", as returned by `read_parts`.
    name : str
        The name of the split column in errors.
    shares : sequence of float
        The shares of training, validation and test rows. Only the ratio of the first two is used.
    seed : int
        Seed of the random draw.
    group : array, shape (rows,), optional
        The group label of each row.
    group_columns : sequence of str
        The columns that define the groups, which describe groups in errors.
    labels : sequence, optional
        How errors name the rows. Default: by position.
    """
    argument = Argument("split_column", name)
    split = SplitRows(*(np.flatnonzero(row_parts == part) for part in PARTS))
    if not (len(split.train) and len(split.test)):
        got = f"{join_words(sorted(set(row_parts.tolist())))} only"
        raise InputError(argument=argument, must="mark both train and test rows", got=got)
    if group is not None:
        codes, sizes = encode_groups(len(group), group)
        # The number of rows of each group in the part that has most of them.
        in_one_part = np.max([np.bincount(codes[rows], minlength=len(sizes)) for rows in split], axis=0)
        if len(divided := np.flatnonzero(in_one_part < sizes)):
            got = f"{len(divided):,} groups in several parts, such as the rows with {describe_groups(group_columns)}"
            where, remedy = select_labels(codes == divided[0], labels), "Correct that column, or leave out `group`."
            raise InputError(argument=argument, must="not divide groups", got=got, rows=where, remedy=remedy)
    if len(split.validation) or len(split.train) < MIN_ROWS_TO_VALIDATE:
        return split
    inner = np.array(shares[:2]) / sum(shares[:2])
    train, validation = split_at_random(
        len(split.train), inner.tolist(), seed, None if group is None else group[split.train]
    )
    return SplitRows(split.train[train], split.train[validation], split.test)


def split_by_time(
    times: np.ndarray, name: str, shares: Sequence[float], group: np.ndarray | None = None, seed: int = 0
) -> SplitRows:
    """Split rows by time: the latest rows are test rows, and the rows before them are validation rows.

    Rows of the same time stay together.

    With groups, the groups that begin last are the test groups, and the groups that begin before them are the
    validation groups. A training row is used only if it is earlier than all rows of validation and test groups, and a
    validation row only if it is earlier than all rows of test groups. All other rows of these groups are left out. If
    too many groups begin at the same time for this, as in panel data, groups are divided at random instead
    (`_split_panel`).

    Parameters
    ----------
    times : array, shape (rows,)
        The rank of each row's time.
    name : str
        The name of the time column in errors.
    shares : sequence of float
        The shares of training, validation and test rows.
    group : array, shape (rows,), optional
        The group label of each row.
    seed : int
        Seed of the random division of groups.
    """
    codes, sizes = encode_groups(len(times), group)
    start = np.full(len(sizes), times.max())
    np.minimum.at(start, codes, times)
    begins = start[codes]
    order = np.argsort(begins, kind="stable")
    firsts = np.flatnonzero(np.r_[True, np.diff(begins[order]) > 0])
    cuts = [int(firsts[np.abs(firsts - len(times) * share).argmin()]) for share in np.cumsum(shares)[:2]]
    argument = Argument("time", name)
    if cuts[0] == 0 and (group is None or times.max() == times.min()):
        got = f"{len(np.unique(times))} different times in {len(times)} rows"
        raise InputError(argument=argument, must="have enough distinct values for three parts", got=got)
    if group is not None and (cuts[0] == 0 or cuts[1] == cuts[0]):
        return _split_panel(times, name, shares, group, seed)
    split = SplitRows(*np.split(order, cuts)).join_if_few()
    if group is None:
        return split
    ends = begins[order][[len(split.train), len(split.train) + len(split.validation)]]
    return SplitRows(
        split.train[times[split.train] < ends[0]], split.validation[times[split.validation] < ends[1]], split.test
    )


def _split_panel(times: np.ndarray, name: str, shares: Sequence[float], group: np.ndarray, seed: int) -> SplitRows:
    """Split panel data, in which groups begin together, at random by group and then by time.

    Test rows are the later rows of the test groups. Training and validation rows are the earlier rows of the training
    and validation groups. All other rows are left out. The parameters are those of `split_by_time`.
    """
    order = np.argsort(times, kind="stable")
    firsts = 1 + np.flatnonzero(np.diff(times[order]) > 0)
    is_later = times >= times[order[firsts[np.abs(firsts - (1.0 - shares[2]) * len(times)).argmin()]]]
    train, validation, test = split_at_random(len(times), shares, seed, group)
    test = test[is_later[test]]
    split = SplitRows(train[~is_later[train]], validation[~is_later[validation]], test[np.argsort(times[test])])
    for part, rows in (("training", split.train), ("test", split.test)):
        if not len(rows):
            must, got = f"leave {part} rows with `group`", f"none {'before' if part == 'training' else 'from'} the cut"
            remedy = "Use `time` alone to test on later rows of known groups, or `group` alone to test on new groups."
            raise InputError(argument=Argument("time", name), must=must, got=got, remedy=remedy)
    return split.join_if_few()


def check_folds(fold: ArrayLike, rows: int) -> np.ndarray:
    """Validate the fold numbers of `rows` rows, which are integers of at least 0, and return them as int64.

    Other values, or a different number of them, raise an `InputError`.
    """
    numbers = np.asarray(fold)
    if numbers.shape != (rows,) or numbers.dtype.kind not in "iu":
        got = f"shape {numbers.shape} of {numbers.dtype}"
        raise InputError(argument="fold", must="be one integer per row of X", got=f"{got} for {rows} rows")
    if numbers.min() < 0:
        raise InputError(argument="fold", must="be integers of at least 0", got=str(numbers.min()))
    return numbers.astype(np.int64)
