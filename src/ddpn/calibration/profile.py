"""`FeatureProfile`: a summary of the training rows by which later rows are unusual or not, whatever the model."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from ddpn.calibration.columns import LARGEST, STATES, Cells, ColumnProfile, UpperTail, fit_column
from ddpn.members.member import arrays_from_bytes, arrays_to_bytes, json_to_bytes
from ddpn.members.reader import TableReader
from ddpn.tables.encoding.table import WITH_NUMBERS, Column

#: Rows that are worked on at a time: few enough that a wide table stays small, many enough for numpy.
_CHUNK = 4096
#: Rows that are set aside, at most; rows and inputs of the joint distribution, at most; the fewest rows for either.
_MOST_APART, _JOINT_ROWS, _JOINT_WIDTH, _FEWEST_ROWS = 5000, 20_000, 256, 40
#: Variance that every direction has at least, as a share of the mean one: rounding is not evidence.
_LEAST = 1e-3
#: The share of training rows whose residual stays below the scale of an input.
_RARE = 0.995
_TAILS = ("largest", "distance", "residual")
_ARRAYS = ColumnProfile._fields[1:]  # without the kind
_FILES = ("features.json", "features.safetensors")


class Measured(NamedTuple):
    """Scores of rows, and how many cells of each column are in each state of `columns.STATES`.

    Shape: (rows,), (columns, states).
    """

    score: np.ndarray
    states: np.ndarray


class Joint(NamedTuple):
    """How unusual the values of a row are together: a Mahalanobis distance of standardised inputs.

    `scale` is the size of the residual that each input rarely has when it is predicted from the others.
    Shape: (width,), (width, width), (width,).
    """

    mean: np.ndarray
    precision: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(cls, inputs: np.ndarray) -> Self:
        """From encoded training rows, with the shrinkage of Ledoit and Wolf."""
        from sklearn.covariance import ledoit_wolf  # slow to import

        mean = inputs.mean(0, dtype=np.float64)
        centred = inputs - mean
        covariance, _ = ledoit_wolf(centred, assume_centered=True)
        typical = max(float(np.trace(covariance)) / len(mean), _LEAST)  # about 1, or 0 where nothing varies
        precision = np.linalg.inv(covariance + _LEAST * typical * np.eye(len(mean)))
        # At least their standard deviation: an input that hardly ever differs from 0 has a smaller quantile.
        rare = np.quantile(np.abs(centred @ precision), _RARE, axis=0)
        scale = np.maximum(rare, np.sqrt(np.diag(precision)))
        return cls(*(part.astype(np.float32) for part in (mean, precision, scale)))

    def worst(self, inputs: np.ndarray) -> np.ndarray:
        """The input of each row that the others predict worst, by position."""
        return np.abs((inputs - self.mean) @ self.precision / self.scale).argmax(1)

    def distances(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Per row the squared distance from the mean, and the largest residual of an input given the others."""
        centred = inputs - self.mean
        weighted = centred @ self.precision
        return (centred * weighted).mean(1, dtype=np.float64), np.abs(weighted / self.scale).max(1).astype(np.float64)


class FeatureProfile:
    """What is ordinary in every column of the training rows, and in all of them together.

    The score of a row is the largest of three surprises, each -log of a tail probability: that of its most unusual
    cell and, in an encoding by normal scores and levels, that of its distance from the mean and that of the column that
    the others predict worst. No training row is kept: the summary has some quantiles and the range of numbers, hashes
    and frequencies of levels, shares of missing values, and correlations of inputs.

    Parameters
    ----------
    reader : TableReader
        Reads tables with the columns of the training rows. `fit` makes it and the others.
    columns : list of ColumnProfile
        What is ordinary in each column.
    joint : Joint or None
        What is ordinary in all columns together; None where training rows are few, or inputs more than 256.
    tails : tuple of UpperTail
        The upper tails of the scores.
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
            Rows of weight 0 are left out.
        ignored : sequence of str
            Columns that do not count in the score of a row; some column must be left.
        """
        reader = TableReader()
        table = reader.fit(X)
        if weight is not None:
            table = _rows(table, np.flatnonzero(np.asarray(weight) > 0.0))
        profile = cls(reader, [fit_column(column) for column in table], None, (), ignored)
        profile._fit_scores(table)
        return profile

    def _fit_scores(self, table: list[Column]) -> None:
        """The tails of the scores, and the joint distribution where there are enough rows.

        Some rows are set aside, so that tails are those of rows that a summary does not know: these have levels and
        extremes that it does not know either.
        """
        n = len(table[0].values)
        if n < _FEWEST_ROWS:
            largest = _largest(next(self._scored_cells(table)))
            self.tails = (UpperTail.fit(largest, least_scale=1.0),)
            return
        order = np.random.default_rng(0).permutation(n)
        number = min(n // 4, _MOST_APART)
        apart, rest = _rows(table, np.sort(order[:number])), _rows(table, np.sort(order[number:]))
        without = FeatureProfile(self.reader, [fit_column(column) for column in rest], None, (), self.ignored)
        largest = np.concatenate([_largest(cells) for cells in without._scored_cells(apart)])
        self.tails = (UpperTail.fit(largest, least_scale=1.0),)
        if sum(self.columns[j].width for j in self.scored) <= _JOINT_WIDTH:
            known = _rows(table, np.sort(order[number : number + _JOINT_ROWS]))
            self.joint = Joint.fit(self._all_inputs(known))
            self.tails += tuple(map(UpperTail.fit, self.joint.distances(self._all_inputs(apart))))

    def _all_inputs(self, table: list[Column]) -> np.ndarray:
        return np.concatenate([_inputs(cells) for cells in self._scored_cells(table)])

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
        return owner[self.joint.worst(self._all_inputs(table))].tolist()

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


def _rows(table: list[Column], rows: np.ndarray | slice) -> list[Column]:
    return [column._replace(values=column.values[rows]) for column in table]


def _largest(cells: list[Cells]) -> np.ndarray:
    """The surprise of the most unusual cell of each row."""
    return np.maximum.reduce([each.surprise for each in cells])


def _inputs(cells: list[Cells]) -> np.ndarray:
    return np.concatenate([each.inputs for each in cells], axis=1, dtype=np.float32)
