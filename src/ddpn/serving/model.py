"""`ServedModel`: one version of a model folder, loaded, checked and ready to answer requests."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ddpn.serving.answers import answers
from ddpn.serving.columns import row_model, served_columns
from ddpn.serving.problems import REFUSALS, refusal
from ddpn.serving.schemas import Row, Wanted
from ddpn.storage.model_files import read_manifest, read_unchanged
from ddpn.tables.encoding.table import WITH_NUMBERS, Column, PreparedTable
from ddpn.workflow.model_folder import describe, load
from ddpn.workflow.prediction import predict_rows

#: Changes of cells that make a row of typical values ordinary, at most, and cells of the rows that are tried for each.
_CHANGES, _TRIED = 12, 50_000


class PredictorInputs(NamedTuple):
    """What a predictor takes: the table, and exposures, upper bounds and group labels where the model has them."""

    table: PreparedTable
    exposure: np.ndarray | None
    upper: np.ndarray | None
    groups: np.ndarray | None


class ServedModel:
    """A loaded model that predicts rows of JSON.

    Parameters
    ----------
    name : str
        What it is called in paths.
    path : Path
        The model folder.
    **columns
        Columns (exposure, upper) that a model saved in Python does not know.

    Attributes
    ----------
    version : str
        The first digits of the checksum of its files.
    Row : type
        The pydantic model of its rows.
    """

    def __init__(self, name: str, path: Path, **columns: str | None) -> None:
        self.name, self.path = name, path
        folder, self.saved, checksum = read_unchanged(
            path, lambda: (load(path, mixed_only=True, **columns), describe(path), read_manifest(path)["checksum"])
        )
        self.folder, self.predictor = folder, folder.model.predictor_
        self.version = str(checksum)[:12]
        self.columns = served_columns(folder)
        self.Row = row_model(name, self.columns)
        self._field = {field.alias: name for name, field in self.Row.model_fields.items()}
        profile = self.predictor.profile
        kinds = (folder.model.feature_kinds_ if profile is None else profile.reader.kinds_) or []
        names = [part for column in folder.roles.used for part in column.inputs]
        self._kinds = {
            part: "category" if kind == WITH_NUMBERS else kind for part, kind in zip(names, kinds, strict=True)
        }
        self._days = folder.roles.days
        self.example = self._ordinary_row()
        self.Row.model_config["json_schema_extra"] = {"examples": [self.example]}
        self.warm_up()

    def _ordinary_row(self) -> dict[str, Any]:
        """A row that could occur, although a folder has no row of the training.

        Typical values of each column need not go together, such as a month with a season. From them on, the one change
        of a cell is made that makes the row most like the training rows, again and again.
        """
        # Of a column that is a feature and has a role, too, the feature comes first and is typical.
        row = {column.name: column.example for column in reversed(self.columns) if column.is_required}
        profile = self.predictor.profile
        if profile is None:
            return row
        # A column with a role must also satisfy the role: its cell stays.
        roles = {column.name for column in self.columns if not column.parts}
        cells = [(column.name, cell) for column in self.columns if column.name not in roles for cell in column.points]
        rng = np.random.default_rng(0)
        for _ in range(_CHANGES):
            some = rng.permutation(len(cells))[: _TRIED // len(self.columns)]
            tried = [row, *({**row, cells[i][0]: cells[i][1]} for i in some)]
            scores = profile.measure(self.inputs([self.Row.model_validate(each) for each in tried]).table).score
            row = tried[int(scores.argmin())]
        return row

    def warm_up(self) -> None:
        """Predict a typical row, twice: the first prediction of a process imports and caches much."""
        for _ in range(2):
            self.predict([([self.Row.model_validate(self.example)], Wanted())])

    def inputs(self, rows: Sequence[Row]) -> PredictorInputs:
        """Rows as the predictor takes them.

        Parameters
        ----------
        rows : sequence of Row
            Validated rows.
        """
        parts: dict[str, tuple[Any, ...]] = {}
        for column in self.columns:
            if column.is_required:
                field = self._field[column.name]
                values = [column.values(getattr(row, field)) for row in rows]
                parts |= dict(zip(column.parts or (f"role {column.kind}",), zip(*values, strict=True), strict=True))
        table = PreparedTable([_column(name, kind, parts[name]) for name, kind in self._kinds.items()])
        exposure, upper = (np.array(parts[role]) if role in parts else None for role in ("role exposure", "role upper"))
        groups = np.array(parts["role group"], dtype=object) if "role group" in parts else None
        return PredictorInputs(table, exposure, upper, groups)

    def predict(self, requests: Sequence[tuple[Sequence[Row], Wanted]]) -> list[list[dict[str, Any]] | Exception]:
        """Predict the rows of several requests together: an answer, or the error, of each.

        Parameters
        ----------
        requests : sequence of tuple
            The rows and what is wanted, of each request.
        """
        try:
            return self._predicted(requests)
        except REFUSALS as error:
            if len(requests) == 1:
                return [refusal(error)]
        # One of them is to blame: the others must not fail with it.
        return [answer for request in requests for answer in self.predict([request])]

    def _predicted(self, requests: Sequence[tuple[Sequence[Row], Wanted]]) -> list[list[dict[str, Any]] | Exception]:
        inputs = self.inputs([row for rows, _ in requests for row in rows])
        batch = predict_rows(self.predictor, *inputs, days=self._days)
        found: list[list[dict[str, Any]] | Exception] = []
        start = 0
        for wanted, same in groupby(requests, key=lambda request: request[1]):
            sizes = [len(rows) for rows, _ in same]
            every = answers(batch.rows(slice(start, start + sum(sizes))), wanted)
            ends = np.cumsum(sizes).tolist()
            found += [every[end - size : end] for size, end in zip(sizes, ends, strict=True)]
            start += sum(sizes)
        return found


def _column(name: str, kind: str, values: Sequence[Any]) -> Column:
    """A column of floats, or of codes into the levels that occur, -1 where missing."""
    if kind != "category":
        return Column(name, kind, np.array(values))
    index: dict[str, int] = {}
    codes = [-1 if value is None else index.setdefault(value, len(index)) for value in values]
    return Column(name, "category", np.array(codes, dtype=np.int64), tuple(index))
