"""Flag rows that are unlike the calibration rows, by a conformal p-value of a score of their features.

`FeatureProfile`, a summary of the training rows, scores the features of a row independently of the model. It also
describes what is unusual about a row or a table.
"""

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from ddpn.calibration.columns import (
    ABOVE,
    BELOW,
    MAX_SURPRISE,
    MISSING,
    NEVER_MISSING,
    STATES,
    UNSEEN,
    CellScores,
    ColumnProfile,
    UpperTail,
    fit_column,
)
from ddpn.rows.checks import TableLike
from ddpn.runtime.display import format_day, plural
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import is_number, join_words
from ddpn.storage.contents import JsonObject, arrays_from_bytes, arrays_to_bytes, json_to_bytes
from ddpn.tables.columns import Column, ColumnTable
from ddpn.tables.reading import read_table
from ddpn.tables.schema import Schema

#: Rows per block: few enough to limit the memory of wide tables, many enough for numpy to be fast.
_BLOCK_ROWS = 4096
#: The most rows that are set aside; the most rows and inputs for the joint distribution; the fewest rows of a table for
#: which rows are set aside and the joint distribution is fitted.
_MAX_SET_ASIDE_ROWS, _MAX_JOINT_ROWS, _MAX_JOINT_WIDTH, _MIN_ROWS = 5000, 20_000, 256, 40
#: The smallest variance of a direction, as a share of the mean variance. Smaller ones are rounding errors.
_MIN_VARIANCE_SHARE = 1e-3
#: The scale of an input is this quantile of its absolute residuals in the training rows.
_RESIDUAL_QUANTILE = 0.995
_TAILS = ("largest", "distance", "residual")
_ARRAYS = ColumnProfile._fields[1:]  # without the kind
_FILES = ("features.json", "features.safetensors")
#: The reason that is given if no single column explains a flag.
COMBINATION = "unusual combination of values"
#: A cell is a reason if at most this share of ordinary rows has a cell as unusual in any column.
_MAX_CELL_SHARE = 0.05
#: The most columns that are named per row, and the most sentences per table.
_MAX_REASONS, _MAX_SENTENCES = 3, 10
#: A number of cells is reported if it lies this many standard deviations above the expected number.
_MIN_DEVIATIONS = 4.0
#: The probability of a false report about numbers outside the training range.
_FALSE_REPORT_PROBABILITY = 1e-3
#: Scores that differ by less, relatively or absolutely, count as equal: rounding depends on the other rows of a block.
_TIE_TOLERANCE = 1e-9


# The score of a row ---------------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """The score of each row, and the number of cells in each state, per column. Shape: (rows,), (columns, states)."""

    score: np.ndarray
    states: np.ndarray


class Joint(NamedTuple):
    """The joint distribution of standardised inputs, for the Mahalanobis distance of a row.

    `scale` has, for each input, the size that its residual rarely exceeds when it is predicted from the others. Shape:
    (width,), (width, width), (width,).
    """

    mean: np.ndarray
    precision: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(cls, inputs: np.ndarray) -> Self:
        """Fit to the encoded training rows, with Ledoit-Wolf shrinkage."""
        from sklearn.covariance import ledoit_wolf  # slow to import

        mean = inputs.mean(0, dtype=np.float64)
        centred = inputs - mean
        covariance, _ = ledoit_wolf(centred, assume_centered=True)
        typical = max(
            float(np.trace(covariance)) / len(mean), _MIN_VARIANCE_SHARE
        )  # about 1, but 0 if all columns are constant
        precision = np.linalg.inv(covariance + _MIN_VARIANCE_SHARE * typical * np.eye(len(mean)))
        # Not below the standard deviation: the quantile of an input that is almost always 0 is smaller.
        rare = np.quantile(np.abs(centred @ precision), _RESIDUAL_QUANTILE, axis=0)
        scale = np.maximum(rare, np.sqrt(np.diag(precision)))
        return cls(*(part.astype(np.float32) for part in (mean, precision, scale)))

    def find_least_explained(self, inputs: np.ndarray) -> np.ndarray:
        """Return the position of the input that the other inputs predict worst, for each row."""
        return np.abs((inputs - self.mean) @ self.precision / self.scale).argmax(1)

    def compute_distances(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each row's squared distance from the mean, and its largest residual of an input given the others.

        Computed in float64, because rounding depends on the number of rows that are multiplied at once.
        """
        centred = inputs - self.mean.astype(np.float64)
        weighted = centred @ self.precision.astype(np.float64)
        return (centred * weighted).mean(1), np.abs(weighted / self.scale).max(1)


class FeatureProfile:
    """A summary of the training rows that shows which values are ordinary, in each column and in combination.

    The score of a row is the largest of three surprises, each the -log of a tail probability. The first is that of its
    most unusual cell. The other two concern an encoding of the row by normal scores and levels: its distance from the
    mean, and the residual of the column that the others predict worst. No training row is kept: the summary consists of
    quantiles and ranges of numbers, hashes and frequencies of levels, shares of missing values, and correlations of
    inputs.

    Parameters
    ----------
    schema : Schema
        The columns of the training rows. `fit` makes all of these arguments.
    columns : list of ColumnProfile
        The summary of each column.
    joint : Joint or None
        The joint distribution of all columns; None if there are few training rows or more than 256 inputs.
    tails : tuple of UpperTail
        The upper tails of the three distances.
    ignored : sequence of str
        Columns that do not count in the score of a row.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> profile = FeatureProfile.fit(X)
    >>> profile.measure([[0.1, -0.2], [9.0, 0.0], [None, 0.0]]).score.round(1).tolist()
    [0.0, 26.1, 24.1]
    """

    def __init__(
        self,
        schema: Schema,
        columns: list[ColumnProfile],
        joint: Joint | None,
        tails: tuple[UpperTail, ...],
        ignored: Sequence[str] = (),
    ) -> None:
        self.schema, self.columns, self.joint, self.tails = schema, columns, joint, tails
        #: Columns that do not count in the score of a row, such as the year if the model predicts later years.
        self.ignored = tuple(ignored)

    @property
    def names(self) -> list[str]:
        """The columns' names, or x0, x1, ... for tables without names."""
        return list(self.schema.names)

    @property
    def scored(self) -> list[int]:
        """Positions of the columns that count in the score of a row: all but the ignored ones."""
        return [j for j, name in enumerate(self.names) if name not in self.ignored]

    @property
    def rows(self) -> int:
        """The number of training rows."""
        return int(self.columns[0].rows[0])

    # Fitting -----------------------------------------------------------------------------------------------------

    @classmethod
    def fit(cls, X: TableLike, weight: np.ndarray | None = None, ignored: Sequence[str] = ()) -> Self:
        """Summarise the training rows of positive weight; `ignored` columns do not count in the score of a row."""
        table = read_table(X)
        if weight is not None:
            table = table.rows(np.flatnonzero(np.asarray(weight) > 0.0))
        profile = cls(Schema.from_table(table), [fit_column(column) for column in table], None, (), ignored)
        profile._fit_scores(table)
        return profile

    @classmethod
    def cross_fit(
        cls, X: TableLike, weight: np.ndarray | None, fold: np.ndarray, ignored: Sequence[str] = ()
    ) -> tuple[Self, np.ndarray]:
        """Summarise all training rows, and score each row as if its fold had been left out of the summary.

        The scores of training rows are then comparable with those of later rows, so that all training rows can
        calibrate flags.

        Parameters
        ----------
        X : table
            The training rows.
        weight : array, optional
            The weights of the rows. Rows of weight 0 are dropped.
        fold : array of int
            The fold of each row. There must be at least two folds.
        ignored : sequence of str
            Columns that do not count in the score of a row.

        Returns
        -------
        tuple of FeatureProfile and array
            The summary, and the scores of the rows of positive weight.
        """
        table = read_table(X)
        if weight is not None:
            used = np.asarray(weight) > 0.0
            table, fold = table.rows(np.flatnonzero(used)), fold[used]
        profile = cls(Schema.from_table(table), [fit_column(column) for column in table], None, (), ignored)
        has_joint = len(fold) >= _MIN_ROWS and sum(profile.columns[j].width for j in profile.scored) <= _MAX_JOINT_WIDTH
        distances = np.empty((len(_TAILS) if has_joint else 1, len(fold)))
        distances[0] = np.max([profile.columns[j].measure_left_out(table[j], fold) for j in profile.scored], axis=0)
        if has_joint:
            inputs = profile._encode_inputs(table)
            profile.joint = Joint.fit(inputs)
            for number in np.unique(fold):
                apart = fold == number
                distances[1:, apart] = np.stack(Joint.fit(inputs[~apart]).compute_distances(inputs[apart]))
        largest, *joint = distances
        profile.tails = (UpperTail.fit(largest, least_scale=1.0), *map(UpperTail.fit, joint))
        return profile, profile._score(distances)

    def _fit_scores(self, table: ColumnTable) -> None:
        """Fit the tails of the distances and, if there are enough rows, the joint distribution.

        The tails are fitted to rows that are set aside from the summary, because later rows, too, may have unseen
        levels and extremes.
        """
        n = len(table)
        if n < _MIN_ROWS:
            largest = _find_largest(next(self._iter_scored_cells(table)))
            self.tails = (UpperTail.fit(largest, least_scale=1.0),)
            return
        order = np.random.default_rng(0).permutation(n)
        number = min(n // 4, _MAX_SET_ASIDE_ROWS)
        apart, others = table.rows(np.sort(order[:number])), table.rows(np.sort(order[number:]))
        without = FeatureProfile(self.schema, [fit_column(column) for column in others], None, (), self.ignored)
        largest = np.concatenate([_find_largest(cells) for cells in without._iter_scored_cells(apart)])
        self.tails = (UpperTail.fit(largest, least_scale=1.0),)
        if sum(self.columns[j].width for j in self.scored) <= _MAX_JOINT_WIDTH:
            joint_rows = table.rows(np.sort(order[number : number + _MAX_JOINT_ROWS]))
            self.joint = Joint.fit(self._encode_inputs(joint_rows))
            self.tails += tuple(map(UpperTail.fit, self.joint.compute_distances(self._encode_inputs(apart))))

    def _encode_inputs(self, table: ColumnTable) -> np.ndarray:
        return np.concatenate([_join_inputs(cells) for cells in self._iter_scored_cells(table)])

    # Scoring -----------------------------------------------------------------------------------------------------

    def _measure_rows(self, table: ColumnTable) -> np.ndarray:
        """Compute the distances of each row: its largest surprise and, with a joint distribution, two more."""
        return np.concatenate([self._measure_cells(cells) for cells in self._iter_scored_cells(table)], axis=1)

    def _measure_cells(self, cells: list[CellScores]) -> np.ndarray:
        joint = () if self.joint is None else self.joint.compute_distances(_join_inputs(cells))
        return np.stack([_find_largest(cells), *joint])

    def _score(self, distances: np.ndarray) -> np.ndarray:
        """Score each row by the largest surprise of its distances."""
        surprises = [
            tail.measure_surprise(row_distances) for tail, row_distances in zip(self.tails, distances, strict=True)
        ]
        return np.clip(np.maximum.reduce(surprises), 0.0, MAX_SURPRISE)

    def measure(self, X: TableLike) -> Measured:
        """Score new rows, and count the states of their cells."""
        scores, states = [], np.zeros((len(self.columns), len(STATES)), dtype=np.int64)
        for _, cells in self.iter_blocks(self.schema.parse(X)):
            scores.append(self._score(self._measure_cells([cells[j] for j in self.scored])))
            states += [np.bincount(scores_of_column.state, minlength=len(STATES)) for scores_of_column in cells]
        return Measured(np.concatenate(scores), states)

    def name_misfits(self, X: TableLike) -> list[str]:
        """Name the column of each row that fits the others least; "" if the profile has no joint distribution."""
        table = self.schema.parse(X)
        if self.joint is None:
            return [""] * len(table)
        owner = np.repeat([self.names[j] for j in self.scored], [self.columns[j].width for j in self.scored])
        return owner[self.joint.find_least_explained(self._encode_inputs(table))].tolist()

    def iter_blocks(self, table: ColumnTable) -> Iterator[tuple[ColumnTable, list[CellScores]]]:
        """Yield blocks of a table with the scores of their cells, column by column."""
        for start in range(0, len(table), _BLOCK_ROWS):
            some = table.rows(slice(start, start + _BLOCK_ROWS))
            yield some, [profile.score(column) for profile, column in zip(self.columns, some, strict=True)]

    def _iter_scored_cells(self, table: ColumnTable) -> Iterator[list[CellScores]]:
        """Yield the scores of the cells of each block, without the ignored columns."""
        return ([cells[j] for j in self.scored] for _, cells in self.iter_blocks(table))

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, bytes]:
        """Return the files of the profile by name."""
        arrays = {}
        for name in _ARRAYS:
            fields = [getattr(column, name) for column in self.columns]
            arrays[name], arrays[f"{name}.lengths"] = np.concatenate(fields), np.array([len(part) for part in fields])
        parts: JsonObject = dict(zip(_TAILS, self.tails, strict=False))
        for name, part in (parts if self.joint is None else parts | {"joint": self.joint}).items():
            arrays |= {f"{name}.{field}": values for field, values in part._asdict().items()}
        about = {"schema": self.schema.as_dict(), "joint": self.joint is not None, "ignored": self.ignored}
        return dict(zip(_FILES, (json_to_bytes(about), arrays_to_bytes(**arrays)), strict=True))

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self | None:
        """Rebuild a profile from the result of `state`; None if the model has no profile."""
        if _FILES[0] not in files:
            return None
        about, arrays = json.loads(files[_FILES[0]]), arrays_from_bytes(files[_FILES[1]])
        split = {name: np.split(arrays[name], np.cumsum(arrays[f"{name}.lengths"])[:-1]) for name in _ARRAYS}
        schema = Schema.from_dict(about["schema"])
        columns = [
            ColumnProfile(kind, **{name: split[name][j] for name in _ARRAYS}) for j, kind in enumerate(schema.kinds)
        ]
        joint = Joint(*(arrays[f"joint.{field}"] for field in Joint._fields)) if about["joint"] else None
        tails = tuple(
            UpperTail(*(arrays[f"{name}.{field}"] for field in UpperTail._fields))
            for name in (_TAILS if about["joint"] else _TAILS[:1])
        )
        return cls(schema, columns, joint, tails, about["ignored"])


def _find_largest(cells: list[CellScores]) -> np.ndarray:
    """Return the surprise of the most unusual cell of each row."""
    return np.maximum.reduce([column.surprise for column in cells])


def _join_inputs(cells: list[CellScores]) -> np.ndarray:
    return np.concatenate([column.inputs for column in cells], axis=1, dtype=np.float32)


# Reasons --------------------------------------------------------------------------------------------------------------


def describe_unusual_cells(profile: FeatureProfile, X: TableLike, days: Container[str] = ()) -> list[list[str]]:
    """Describe the unusual cells of each row, the most unusual first; the list of an ordinary row is empty.

    `days` are columns with days since 1970, which are shown as dates.
    """
    reasons: list[list[str]] = []
    scored = profile.scored
    for table, cells in profile.iter_blocks(profile.schema.parse(X)):
        surprise = np.stack([cells[j].surprise for j in scored])
        is_reason = surprise >= np.log(len(scored) / _MAX_CELL_SHARE)
        is_reason |= np.stack([np.isin(cells[j].state, (NEVER_MISSING, ABOVE, BELOW)) for j in scored])
        order = np.argsort(-np.where(is_reason, surprise, -1.0), axis=0, kind="stable")[:_MAX_REASONS]
        for row, first in enumerate(order.T.tolist()):
            columns = [scored[rank] for rank in first if is_reason[rank, row]]
            reasons.append(
                [_describe_cell(profile.columns[j], table[j], cells[j], row, table[j].name in days) for j in columns]
            )
    return reasons


def _describe_cell(profile: ColumnProfile, column: Column, cells: CellScores, row: int, is_day: bool) -> str:
    name, edges, state, value = column.name, profile.edges, cells.state[row], column.values[row]
    shown_as = format_day if is_day else "{:.6g}".format
    if column.rows([row]).is_missing[0]:
        return f"missing {name!r}"
    if state == ABOVE:
        return f"{name!r} above the training range: {shown_as(value)} > {shown_as(edges[-1])}"
    if state == BELOW:
        return f"{name!r} below the training range: {shown_as(value)} < {shown_as(edges[0])}"
    shown, what = (repr(column.levels[value]), "level") if column.is_category else (shown_as(value), "value")
    return f"{'unseen' if state == UNSEEN else 'unusual'} {what} {shown} of {name!r}"


class TableSummary:
    """Counts the states of cells over the blocks of a table, and describes what is unusual in the table."""

    def __init__(self, profile: FeatureProfile) -> None:
        self.profile = profile
        self.states = np.zeros((len(profile.columns), len(STATES)), dtype=np.int64)

    def add(self, states: np.ndarray) -> None:
        """Add the states of a block of rows, as `FeatureProfile.measure` returns them."""
        self.states += states

    def write_sentences(self) -> list[str]:
        """Write one sentence per finding, sorted by the number of rows; all ignored columns share a sentence."""
        findings = [finding for j in self.profile.scored for finding in self._list_findings(j)]
        ignored = self.profile.ignored
        if ignored:
            verb, pronoun = ("does", "it follows") if len(ignored) == 1 else ("do", "they follow")
            words = (
                f"{join_words([*map(repr, ignored)])} {verb} not count in the out-of-distribution score: {pronoun} time"
            )
            findings.append((0, f"{words}, and later rows are expected to have other values."))
        findings.sort(key=lambda finding: -finding[0])
        shown = [sentence for _, sentence in findings[:_MAX_SENTENCES]]
        left = len(findings) - len(shown)
        return [*shown, f"Not shown: {plural(left, 'more finding')}."] if left else shown

    def _list_findings(self, j: int) -> list[tuple[int, str]]:
        """List the findings about one column, each as its number of rows and a sentence."""
        column, name, rows = self.profile.columns[j], self.profile.names[j], int(self.states[j].sum())
        counts, findings = self.states[j].tolist(), list[tuple[int, str]]()

        def is_many(count: int, share: float) -> bool:
            return count > share * rows + _MIN_DEVIATIONS * np.sqrt(max(share * rows, 0.1) * (1.0 - share))

        never, absent, unseen = counts[NEVER_MISSING], counts[MISSING], counts[UNSEEN]
        if never:
            findings.append(
                (never, f"{_count_rows_with(never)} a missing {name!r}, which was never missing in training.")
            )
        if absent and is_many(absent, column.missing_share):
            shares = f"{absent / rows:.1%} of rows, against {column.missing_share:.1%} in training"
            findings.append((absent, f"{name!r} is missing in {shares}."))
        expected = column.unseen[1] * rows if unseen else 0.0
        if unseen and (expected < 1.0 or is_many(unseen, column.unseen[1])):
            usual = f" (about {expected:,.0f} expected)" if expected >= 1.0 else ""
            what = "level" if column.kind.is_category else "value"
            findings.append((unseen, f"{_count_rows_with(unseen)} an unseen {what} of {name!r}{usual}."))
        # If n training rows and N new rows are alike, the k largest values all belong to new rows with a probability of
        # at most (N / (N + n)) ** k. A smaller probability than `chance` is reported.
        chance = np.log(_FALSE_REPORT_PROBABILITY / len(self.profile.columns))
        for count, where, edge in ((counts[ABOVE], "above", -1), (counts[BELOW], "below", 0)):
            if count and count * np.log(rows / (rows + self.profile.rows)) < chance:
                words = f"{name!r} {where} the training range, which ends at {column.edges[edge]:.6g}"
                findings.append((count, f"{_count_rows_with(count)} {words}."))
        return findings


def _count_rows_with(count: int) -> str:
    return "1 row has" if count == 1 else f"{count:,} rows have"


# P-values -------------------------------------------------------------------------------------------------------------


class OODScores(NamedTuple):
    """The sorted scores of n calibration rows.

    The p-value of a row is (1 + number of scores at least as high) / (n + 1).

    For rows exchangeable with the calibration rows, P(p-value <= alpha) <= alpha for every alpha.

    Parameters
    ----------
    scores : array
        Scores of the inputs (`FeatureProfile.measure`), ascending.
    alpha : float
        The share of ordinary rows that are flagged.

    Examples
    --------
    >>> OODScores.fit(np.arange(19.0), alpha=0.05).pvalue(np.array([9.0, 18.0, 40.0])).tolist()
    [0.55, 0.1, 0.05]
    """

    scores: np.ndarray
    alpha: float

    @classmethod
    def fit(cls, scores: np.ndarray, alpha: float) -> Self:
        """Sort the scores of rows that the summary left out. `alpha` may be too small to flag any row."""
        return cls(np.sort(scores), alpha)

    @property
    def warning(self) -> str:
        """A sentence that explains why no row can be flagged at `alpha`; "" if rows can be flagged."""
        rows, smallest = len(self.scores), 1.0 / (len(self.scores) + 1.0)
        if self.alpha >= smallest:
            return ""
        return (
            f"No row can be flagged as out-of-distribution at alpha {self.alpha:g}: with {rows} calibration rows the "
            f"smallest p-value is {smallest:.2g}."
        )

    def pvalue(self, scores: np.ndarray) -> np.ndarray:
        """Return the p-value of each row. Shape: (rows,).

        Parameters
        ----------
        scores : array
            Scores of the rows. NaN counts as the highest score.
        """
        n = len(self.scores)
        lower = np.searchsorted(self.scores, scores - _TIE_TOLERANCE * (1.0 + np.abs(scores)), side="left")
        return (1.0 + n - lower) / (n + 1.0)

    def is_ood(self, pvalue: np.ndarray, alpha: float | None = None) -> np.ndarray:
        """Flag rows whose p-value is at most `alpha`.

        Parameters
        ----------
        pvalue : array
            The result of `pvalue`.
        alpha : float, optional
            The largest p-value of a flagged row. No row can be flagged if `check_alpha` refuses it. Default: the value
            that `fit` was given.
        """
        return pvalue <= (self.alpha if alpha is None else alpha)


def check_alpha(alpha: float, n: int) -> float:
    """Return `alpha` as a float; raise an error if no p-value of n calibration rows can be as small."""
    if not is_number(alpha) or not 0.0 < alpha < 1.0:
        remedy = "Use 0.05 to flag 5% of ordinary rows."
        raise ConfigError(argument="alpha", must="lie between 0 and 1", got=repr(alpha), remedy=remedy)
    if alpha < 1.0 / (n + 1.0):
        smallest = f"1 / (n + 1) = {1.0 / (n + 1.0):.2g} with n = {n} calibration rows"
        must, remedy = f"be at least {smallest}", "Calibrate with more rows, or raise alpha."
        raise InputError(argument="alpha", must=must, got=f"{alpha:g}", remedy=remedy)
    return float(alpha)
