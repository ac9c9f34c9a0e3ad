"""`FeatureProfile`: a summary of the training rows, which scores how unusual the features of new rows are.

The scores depend on the features alone, not on a model.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from ddpn.calibration.columns import STATES, CellScores, ColumnProfile, fit_column
from ddpn.calibration.joint_inputs import JointInputs
from ddpn.calibration.upper_tails import MAX_SURPRISE, UpperTail
from ddpn.rows.checks import TableLike
from ddpn.storage.contents import JsonObject, arrays_from_bytes, arrays_to_bytes, json_to_bytes
from ddpn.tables.columns import ColumnTable
from ddpn.tables.reading import read_table
from ddpn.tables.schema import Schema

#: Rows per block: few enough to limit the memory of wide tables, many enough for numpy to be fast.
_BLOCK_ROWS = 4096
#: The most rows that are set aside; the most rows and inputs for the joint distribution; the fewest rows of a table for
#: which rows are set aside and the joint distribution is fitted.
_MAX_SET_ASIDE_ROWS, _MAX_JOINT_ROWS, _MAX_JOINT_WIDTH, _MIN_ROWS = 5000, 20_000, 256, 40
_TAILS = ("largest", "distance", "residual")
_ARRAYS = ColumnProfile._fields[1:]  # without the kind
_FILES = ("features.json", "features.safetensors")


class TableScores(NamedTuple):
    """Scores of the rows of a table by a `FeatureProfile`, and states of their cells.

    Attributes
    ----------
    score : array, shape (rows,)
        How unusual each row is.
    states : array, shape (columns, states)
        The number of cells of each column that are in each of `STATES`, such as missing or above the training
        range.
    """

    score: np.ndarray
    states: np.ndarray


class FeatureProfile:
    """Summary of the training rows that scores how unusual new rows are.

    A row is measured in three ways. For the last two, it is encoded by normal scores of numbers and indicators of
    levels:

    1. the surprise of its most unusual cell (-log of the probability of a value at least as unusual);
    2. its Mahalanobis distance from the mean;
    3. the residual of the column that the other columns predict worst.

    Each measure is converted to -log of the probability that an ordinary row has at least this value. The score of the
    row is the largest of the three results.

    No training row is stored. The summary consists of quantiles and ranges of numbers, hashes and frequencies of
    levels, shares of missing values, and correlations. `FeatureProfile.fit` makes it from training rows.

    Parameters
    ----------
    schema : Schema
        The columns of the training rows.
    columns : list of ColumnProfile
        The summary of each column.
    joint : JointInputs or None
        The joint distribution of all columns; None if there are few training rows or more than 256 inputs.
    tails : tuple of UpperTail
        The distribution of each of the three measures among ordinary rows; only the first if `joint` is None.
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
        joint: JointInputs | None,
        tails: tuple[UpperTail, ...],
        ignored: Sequence[str] = (),
    ) -> None:
        self.schema, self.columns, self.joint, self.tails = schema, columns, joint, tails
        #: Columns that do not count in the score of a row, such as the year if the model predicts later years.
        self.ignored = tuple(ignored)

    @property
    def names(self) -> list[str]:
        """The names of the columns; x0, x1, ... if the training table had none."""
        return list(self.schema.names)

    @property
    def scored(self) -> list[int]:
        """The positions of the columns that count in the score of a row: all except the ignored ones."""
        return [j for j, name in enumerate(self.names) if name not in self.ignored]

    @property
    def rows(self) -> int:
        """The number of training rows."""
        return int(self.columns[0].rows[0])

    # Fitting -----------------------------------------------------------------------------------------------------

    @classmethod
    def fit(cls, X: TableLike, weight: np.ndarray | None = None, ignored: Sequence[str] = ()) -> Self:
        """Summarise the rows of X with positive weight, which are the training rows.

        `weight` has the weight of each row; None stands for 1. Columns in `ignored` do not count in the score of a row.
        """
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

        These scores are comparable with the scores of new rows. So all training rows can be used to calibrate
        out-of-distribution flags.

        Parameters
        ----------
        X : table
            The training rows.
        weight : array, shape (rows,), optional
            The weights of the rows. Rows of weight 0 are dropped.
        fold : array of int, shape (rows,)
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
            profile.joint = JointInputs.fit(inputs)
            for number in np.unique(fold):
                apart = fold == number
                distances[1:, apart] = np.stack(JointInputs.fit(inputs[~apart]).compute_distances(inputs[apart]))
        largest, *joint = distances
        profile.tails = (UpperTail.fit(largest, min_scale=1.0), *map(UpperTail.fit, joint))
        return profile, profile._score(distances)

    def _fit_scores(self, table: ColumnTable) -> None:
        """Fit the distributions that `_score` uses to the training rows in `table`.

        These are the joint distribution of the columns, and the distribution of each measure among ordinary rows
        (`tails`). The tails are fitted to some of the rows, measured by a summary of the other rows, because new rows
        may also have unseen levels and extreme values. If there are few rows, they are not divided, and there is no
        joint distribution.
        """
        n = len(table)
        if n < _MIN_ROWS:
            largest = _find_largest_surprise(next(self._iter_scored_cells(table)))
            self.tails = (UpperTail.fit(largest, min_scale=1.0),)
            return
        order = np.random.default_rng(0).permutation(n)
        number = min(n // 4, _MAX_SET_ASIDE_ROWS)
        apart, others = table.rows(np.sort(order[:number])), table.rows(np.sort(order[number:]))
        without = FeatureProfile(self.schema, [fit_column(column) for column in others], None, (), self.ignored)
        largest = np.concatenate([_find_largest_surprise(cells) for cells in without._iter_scored_cells(apart)])
        self.tails = (UpperTail.fit(largest, min_scale=1.0),)
        if sum(self.columns[j].width for j in self.scored) <= _MAX_JOINT_WIDTH:
            joint_rows = table.rows(np.sort(order[number : number + _MAX_JOINT_ROWS]))
            self.joint = JointInputs.fit(self._encode_inputs(joint_rows))
            self.tails += tuple(map(UpperTail.fit, self.joint.compute_distances(self._encode_inputs(apart))))

    def _encode_inputs(self, table: ColumnTable) -> np.ndarray:
        return np.concatenate([_join_inputs(cells) for cells in self._iter_scored_cells(table)])

    # Scoring -----------------------------------------------------------------------------------------------------

    def _measure_cells(self, cells: list[CellScores]) -> np.ndarray:
        """Return three measures of how unusual each row is. Shape: (3, rows).

        They are the surprise of the most unusual cell (-log of the probability of a value at least as unusual) and the
        two distances of `JointInputs.compute_distances`. Without a joint distribution, only the first is returned, as
        an array of shape (1, rows). `cells` has the scores of the rows' cells, one entry per column that is not
        ignored.
        """
        joint = () if self.joint is None else self.joint.compute_distances(_join_inputs(cells))
        return np.stack([_find_largest_surprise(cells), *joint])

    def _score(self, measures: np.ndarray) -> np.ndarray:
        """Return the score of each row from its measures (`_measure_cells`). Shape: (1 or 3, rows) -> (rows,).

        Each measure is converted to -log of the probability that an ordinary row has at least this value. The score is
        the largest result.
        """
        surprises = [tail.measure_surprise(measure) for tail, measure in zip(self.tails, measures, strict=True)]
        return np.clip(np.maximum.reduce(surprises), 0.0, MAX_SURPRISE)

    def measure(self, X: TableLike) -> TableScores:
        """Score how unusual the rows of X are, and count the states of their cells, such as missing or unseen.

        X must have the columns of the training rows. Ignored columns do not count in the scores, but their cells are
        counted.
        """
        scores, states = [np.empty(0)], np.zeros((len(self.columns), len(STATES)), dtype=np.int64)
        for _, cells in self.iter_blocks(self.schema.parse(X)):
            scores.append(self._score(self._measure_cells([cells[j] for j in self.scored])))
            states += [np.bincount(scores_of_column.state, minlength=len(STATES)) for scores_of_column in cells]
        return TableScores(np.concatenate(scores), states)

    def name_misfits(self, X: TableLike) -> list[str]:
        """Return, for each row, the name of the column whose value the other columns predict worst.

        Without a joint distribution, all names are "".
        """
        table = self.schema.parse(X)
        if self.joint is None:
            return [""] * len(table)
        owner = np.repeat([self.names[j] for j in self.scored], [self.columns[j].width for j in self.scored])
        return owner[self.joint.find_least_explained_input(self._encode_inputs(table))].tolist()

    def iter_blocks(self, table: ColumnTable) -> Iterator[tuple[ColumnTable, list[CellScores]]]:
        """Yield blocks of consecutive rows of a table with the scores of their cells.

        The scores are a list with one entry per column.
        """
        for start in range(0, len(table), _BLOCK_ROWS):
            some = table.rows(slice(start, start + _BLOCK_ROWS))
            yield some, [profile.score(column) for profile, column in zip(self.columns, some, strict=True)]

    def _iter_scored_cells(self, table: ColumnTable) -> Iterator[list[CellScores]]:
        """Yield the scores of the cells of each block of rows.

        They are a list with one entry per column that is not ignored.
        """
        return ([cells[j] for j in self.scored] for _, cells in self.iter_blocks(table))

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, bytes]:
        """Return the contents of the files that store the profile, keyed by file name."""
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
        """Rebuild a profile from the files that `state` returned; return None if they are not among `files`."""
        if _FILES[0] not in files:
            return None
        about, arrays = json.loads(files[_FILES[0]]), arrays_from_bytes(files[_FILES[1]])
        split = {name: np.split(arrays[name], np.cumsum(arrays[f"{name}.lengths"])[:-1]) for name in _ARRAYS}
        schema = Schema.from_dict(about["schema"])
        columns = [
            ColumnProfile(kind, **{name: split[name][j] for name in _ARRAYS}) for j, kind in enumerate(schema.kinds)
        ]
        joint = JointInputs(*(arrays[f"joint.{field}"] for field in JointInputs._fields)) if about["joint"] else None
        tails = tuple(
            UpperTail(*(arrays[f"{name}.{field}"] for field in UpperTail._fields))
            for name in (_TAILS if about["joint"] else _TAILS[:1])
        )
        return cls(schema, columns, joint, tails, about["ignored"])


def _find_largest_surprise(cells: list[CellScores]) -> np.ndarray:
    """Return the surprise of the most unusual cell of each row.

    The surprise of a cell is -log of the probability of a value at least as unusual.
    """
    return np.maximum.reduce([column.surprise for column in cells])


def _join_inputs(cells: list[CellScores]) -> np.ndarray:
    return np.concatenate([column.inputs for column in cells], axis=1, dtype=np.float32)
