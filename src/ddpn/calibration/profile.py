"""`FeatureProfile`: a summary of the training rows by which later rows are unusual or not, whatever the model."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from ddpn.calibration.columns import LARGEST, NEVER, NEW, STATES, Cells, ColumnProfile, UpperTail, fit_column
from ddpn.calibration.joint import Joint
from ddpn.members.member import arrays_from_bytes, arrays_to_bytes, json_to_bytes
from ddpn.members.reader import TableReader
from ddpn.tables.encoding.kinds import WITH_NUMBERS
from ddpn.tables.encoding.table import Column

#: Rows that are worked on at a time: few enough that a wide table stays small, many enough for numpy.
_CHUNK = 4096
#: Rows that are set aside, at most; cells for the joint distribution, at most; the fewest rows for either.
_MOST_APART, _JOINT_CELLS, _FEWEST_ROWS = 5000, 3_000_000, 40
_TAILS = ("largest", "distance", "residual")
_ARRAYS = ColumnProfile._fields[1:]  # without the kind
_FILES = ("features.json", "features.safetensors")


class Measured(NamedTuple):
    """Scores of rows, and how many cells of each column are in each state of `columns.STATES`.

    Shape: (rows,), (columns, states).
    """

    score: np.ndarray
    states: np.ndarray


class FeatureProfile:
    """What is ordinary in every column of the training rows, and in all of them together.

    The score of a row is the largest of three surprises, each -log of a tail probability: that of its most unusual
    cell and, in an encoding by normal scores and levels, that of its distance from the mean and that of the column that
    the others predict worst. No training row is kept: the summary has some quantiles and the range of numbers, hashes
    and frequencies of levels, shares of missing values, and principal directions.

    Parameters
    ----------
    reader : TableReader
        Reads tables with the columns of the training rows. `fit` makes it and the others.
    columns : list of ColumnProfile
        What is ordinary in each column.
    joint : Joint or None
        What is ordinary in all columns together; None where training rows are few.
    tails : tuple of UpperTail
        The upper tails of the scores.
    ignored : sequence of str
        Columns that do not count in the score of a row.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> profile = FeatureProfile.fit(X)
    >>> profile.measure([[0.1, -0.2], [9.0, 0.0], [None, 0.0]]).score.round(1).tolist()
    [0.0, 26.1, 25.5]
    """

    def __init__(
        self,
        reader: TableReader,
        columns: list[ColumnProfile],
        joint: Joint | None,
        tails: tuple[UpperTail, ...],
        ignored: Sequence[str] = (),
    ) -> None:
        self.reader, self.columns, self.joint, self.tails = reader, columns, joint, tails
        #: Columns that do not count in the score of a row, such as the year where later years are to be predicted.
        self.ignored = tuple(ignored)

    @property
    def names(self) -> list[str]:
        """The columns' names, or x0, x1, ... where they have none."""
        named = getattr(self.reader, "feature_names_in_", None)
        return [f"x{j}" for j in range(len(self.columns))] if named is None else [str(name) for name in named]

    @property
    def scored(self) -> list[int]:
        """Positions of the columns that count in the score of a row: all but the ignored ones."""
        return [j for j, name in enumerate(self.names) if name not in self.ignored]

    @property
    def rows(self) -> int:
        """Training rows."""
        return int(self.columns[0].rows[0])

    # Fitting -----------------------------------------------------------------------------------------------------

    @classmethod
    def fit(cls, X: Any, weight: np.ndarray | None = None, ignored: Sequence[str] = ()) -> Self:
        """Summarise training rows.

        Parameters
        ----------
        X : table
            Training rows.
        weight : array, optional
            Integer weights count a row so many times; others only leave out rows of weight 0.
        ignored : sequence of str
            Columns that do not count in the score of a row; some column must be left.
        """
        reader = TableReader()
        table = reader.fit(X)
        counts = np.ones(len(table[0].values)) if weight is None else np.asarray(weight, dtype=np.float64)
        used = counts > 0.0
        if not used.all():
            table, counts = _rows(table, np.flatnonzero(used)), counts[used]
        if not (counts == np.rint(counts)).all():
            counts = np.ones(len(counts))
        profile = cls(reader, _fit_columns(table, counts), None, (), ignored)
        profile._fit_scores(table, counts)
        return profile

    def _fit_scores(self, table: list[Column], counts: np.ndarray) -> None:
        """The tails of the scores, and the joint distribution where there are enough rows.

        Some rows are set aside, so that tails are those of rows that a summary does not know: these have levels and
        extremes that it does not know either.
        """
        n, width = len(counts), sum(self.columns[j].width for j in self.scored)
        apart = np.sort(np.random.default_rng(0).permutation(n)[: min(n // 4, _MOST_APART)])
        if n < _FEWEST_ROWS:
            largest = _largest(next(self._scored_cells(table)))
            self.tails = (UpperTail.fit(largest, least_scale=1.0),)
            return
        rest = np.setdiff1d(np.arange(n), apart)
        without = FeatureProfile(self.reader, _fit_columns(_rows(table, rest), counts[rest]), None, (), self.ignored)
        largest = np.concatenate([_largest(cells) for cells in without._scored_cells(_rows(table, apart))])
        size = min(len(rest), max(_JOINT_CELLS // max(width, 1), 1000))
        known = np.sort(np.random.default_rng(1).choice(rest, size, replace=False))
        inputs, others = (
            np.concatenate([_inputs(cells) for cells in self._scored_cells(_rows(table, rows))])
            for rows in (known, apart)
        )
        self.joint = Joint.fit(inputs)
        tails = map(UpperTail.fit, self.joint.distances(others))
        self.tails = (UpperTail.fit(largest, least_scale=1.0), *tails)

    # Scoring -----------------------------------------------------------------------------------------------------

    def measure(self, X: Any) -> Measured:
        """Score later rows.

        Parameters
        ----------
        X : table
            Rows with the columns of `fit`.
        """
        scores, states = [], np.zeros((len(self.columns), len(STATES)), dtype=np.int64)
        for _, cells in self.chunks(self.reader.read(X)):
            scores.append(self._score([cells[j] for j in self.scored]))
            states += [np.bincount(each.state, minlength=len(STATES)) for each in cells]
        return Measured(np.concatenate(scores), states)

    def misfits(self, X: Any) -> list[str]:
        """The column of each row that fits the others least; "" where there were too few training rows to know."""
        table = self.reader.read(X)
        if self.joint is None:
            return [""] * len(table[0].values)
        owner = np.repeat([self.names[j] for j in self.scored], [self.columns[j].width for j in self.scored])
        inputs = (_inputs(cells) for cells in self._scored_cells(table))
        return [name for each in inputs for name in owner[self.joint.worst(each)].tolist()]

    def chunks(self, table: list[Column]) -> Iterator[tuple[list[Column], list[Cells]]]:
        """Some rows of a table at a time, with their cells, of all columns."""
        for start in range(0, len(table[0].values), _CHUNK):
            some = _rows(table, slice(start, start + _CHUNK))
            yield some, [own.cells(column) for own, column in zip(self.columns, some, strict=True)]

    def _scored_cells(self, table: list[Column]) -> Iterator[list[Cells]]:
        """The cells of some rows at a time, of the columns that count."""
        return ([cells[j] for j in self.scored] for _, cells in self.chunks(table))

    def _score(self, cells: list[Cells]) -> np.ndarray:
        found = self.tails[0].of(_largest(cells))
        if self.joint is not None:
            for tail, scores in zip(self.tails[1:], self.joint.distances(_inputs(cells)), strict=True):
                found = np.maximum(found, tail.of(scores))
        return np.clip(found, 0.0, LARGEST)

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, bytes]:
        """Files by name."""
        arrays = {}
        for name in _ARRAYS:
            each = [getattr(column, name) for column in self.columns]
            arrays[name], arrays[f"{name}.lengths"] = np.concatenate(each), np.array([len(own) for own in each])
        for name, part in self._parts().items():
            arrays |= {f"{name}.{field}": values for field, values in part._asdict().items()}
        about = {**self.reader.as_dict(), "joint": self.joint is not None, "ignored": self.ignored}
        return dict(zip(_FILES, (json_to_bytes(about), arrays_to_bytes(**arrays)), strict=True))

    def _parts(self) -> dict[str, Any]:
        tails = dict(zip(_TAILS, self.tails, strict=False))
        return tails if self.joint is None else {"joint": self.joint, **tails}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self | None:
        """The inverse of `state`; None where a model has no profile."""
        if _FILES[0] not in files:
            return None
        about, arrays = json.loads(files[_FILES[0]]), arrays_from_bytes(files[_FILES[1]])
        split = {name: np.split(arrays[name], np.cumsum(arrays[f"{name}.lengths"])[:-1]) for name in _ARRAYS}
        # A reader distinguishes two sorts of categories, by whether their levels are numbers.
        kinds = ["category" if kind == WITH_NUMBERS else kind for kind in about["kinds"]]
        columns = [ColumnProfile(kind, **{name: split[name][j] for name in _ARRAYS}) for j, kind in enumerate(kinds)]
        joint = Joint(*(arrays[f"joint.{field}"] for field in Joint._fields)) if about["joint"] else None
        tails = tuple(
            UpperTail(*(arrays[f"{name}.{field}"] for field in UpperTail._fields))
            for name in (_TAILS if about["joint"] else _TAILS[:1])
        )
        return cls(TableReader.from_dict(about), columns, joint, tails, about["ignored"])


def _fit_columns(table: list[Column], counts: np.ndarray) -> list[ColumnProfile]:
    return with_absent([fit_column(column, counts) for column in table])


def _rows(table: list[Column], rows: np.ndarray | slice) -> list[Column]:
    return [column._replace(values=column.values[rows]) for column in table]


def with_absent(columns: list[ColumnProfile]) -> list[ColumnProfile]:
    """The columns with the surprise of a missing value, and of a present one where most are missing.

    A column that was never missing borrows from the others (Good-Turing over columns): where some were missing in one
    row only, the next to be missing may be this one; where none was, nothing suggests it.
    """
    missing = np.array([column.rows[1] for column in columns])
    never, once = int((missing == 0).sum()), int((missing == 1).sum())
    filled = []
    for column in columns:
        n, absent = column.rows
        unseen = -float(np.log(min(1.0, (once + 0.5) / max(never, 1)) / (float(n) + 1.0))) + (NEW if once else NEVER)
        share = absent / n
        if_missing = unseen if not absent else -np.log(share) if share < 0.5 else 0.0
        if_present = np.log(n + 1.0) + NEVER if absent == n else -np.log(1.0 - share) if share > 0.5 else 0.0
        filled.append(column._replace(absent=np.array([if_missing, if_present])))
    return filled


def _largest(cells: list[Cells]) -> np.ndarray:
    """The surprise of the most unusual cell of each row."""
    return np.maximum.reduce([each.surprise for each in cells])


def _inputs(cells: list[Cells]) -> np.ndarray:
    return np.concatenate([each.inputs for each in cells], axis=1, dtype=np.float32)
