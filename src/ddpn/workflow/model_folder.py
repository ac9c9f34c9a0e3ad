"""A model folder: what `save` of an estimator writes and, from `ddpn fit`, task.json about how it was fitted.

Reading a task or a description imports no torch.
"""

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_choice
from ddpn.storage.contents import JsonObject, arrays_from_bytes, arrays_to_bytes
from ddpn.storage.model_files import (
    TASK,
    folder_version,
    read_consistently,
    read_files,
    read_manifest,
    wrap_load_errors,
    write_model,
)
from ddpn.tables.columns import Kind
from ddpn.tables.kinds import TableColumn
from ddpn.tables.roles import Roles
from ddpn.tables.row_hashes import SeenRows

if TYPE_CHECKING:
    from ddpn.estimators import CountGLM, CountRegressor

#: The version of task.json.
FORMAT = 3
CHECKPOINT = "checkpoint.safetensors"
#: In a folder of its own, as predictions do not read it.
SEEN_ROWS, FOLDS = "fit/rows.safetensors", "fit/folds.safetensors"


@dataclass(frozen=True)
class ModelFolder:
    """A fitted model, how it was fitted, and to which rows (unknown where it was loaded for predictions only).

    `folds` has the fold of every row of its table, where all rows are cross-fitted and there are no test rows.
    """

    model: "CountRegressor | CountGLM"
    task: JsonObject
    seen: SeenRows | None = None
    folds: np.ndarray | None = None

    @cached_property
    def roles(self) -> Roles:
        """How the table of the fit was read."""
        return Roles.from_dict(self.task["roles"])

    def save(self, path: Path, overwrite: bool = False, checkpoint: Path | None = None) -> None:
        """Save the model, or nothing; with a `checkpoint`, a later fit continues from it."""
        files, manifest = self.model.collect_state()
        files[TASK] = json.dumps(self.task, indent=1).encode()
        if self.seen is not None:
            files[SEEN_ROWS] = self.seen.to_bytes()
        if self.folds is not None:
            files[FOLDS] = arrays_to_bytes(number=self.folds.astype(np.int64))
        if checkpoint is not None and checkpoint.exists():
            files[CHECKPOINT] = checkpoint.read_bytes()
        write_model(path, files, manifest, overwrite)


def _read_task(path: Path, manifest: JsonObject) -> JsonObject:
    digest = manifest["files"].get(TASK)
    if digest is None:
        return _make_task(path, manifest.get("estimator"))
    task = json.loads(read_files(path, {"files": {TASK: digest}})[TASK])
    if task.get("format") != FORMAT:
        got = f"got format {task.get('format')!r}, this version reads {FORMAT}"
        raise InputError(f"{path / TASK} must be of a known format, {got}. Fit the model again.")
    if "test" in task:
        # Version 0.3 scored test rows only.
        rows = "test rows"
        title = f"Scores on {task['test']['rows']:,} {rows}"
        task["scores"] = {"scored_on": rows, "title": title, **task.pop("test")}
    return task


def _make_task(path: Path, estimator: JsonObject | None) -> JsonObject:
    """Make the task of a model that was saved in Python: it knows its columns, not the target, the split or scores."""
    if estimator is None or not estimator["schema"]["is_named"]:
        what = "a Predictor" if estimator is None else "a model that was fitted to an array"
        raise InputError(
            f"{path} holds {what}, without names of columns. Save a model that was fitted to a data frame."
        )
    dates = {
        name: column for column in map(TableColumn.from_dict, estimator.get("dates", ())) for name in column.inputs
    }
    columns = list[TableColumn]()
    for name, kind in zip(estimator["schema"]["names"], estimator["schema"]["kinds"], strict=True):
        column = dates.get(name, TableColumn(name, Kind(kind)))
        columns += [] if column in columns else [column]
    return {"roles": Roles(None, None, None, tuple(columns)).as_dict(), "leaks": [], "warnings": []}


class SavedModel:
    """A model folder that is being read: its manifest and its task, each parsed once; the members are not loaded yet.

    Parameters
    ----------
    path : Path
        The folder.
    **columns
        Columns (target, exposure, weight) whose roles differ from those of the fit, or that a model saved in Python
        does not know.
    """

    def __init__(self, path: Path, **columns: str | None) -> None:
        self.path, self._columns = path, {name: value for name, value in columns.items() if value is not None}
        self._version = folder_version(path)
        self.manifest = read_manifest(path)

    @cached_property
    def task(self) -> JsonObject:
        """What the model was fitted for: likelihood, columns and options, as saved (JSON)."""
        return _read_task(self.path, self.manifest)

    @cached_property
    @wrap_load_errors
    def roles(self) -> Roles:
        """The roles of columns."""
        path = self.path
        columns: JsonObject = self._columns
        roles = replace(Roles.from_dict(self.task["roles"]), **columns)
        if self.manifest["needs_exposure"] and roles.exposure is None:
            raise InputError(f"{path} was fitted with exposures: name their column with `exposure`.")
        if self.manifest.get("counts", {}).get("upper_per_row") and roles.upper is None:
            raise InputError(f"{path} was fitted with an upper bound per row: name its column with `upper_column`.")
        return roles

    @wrap_load_errors
    def describe(self) -> JsonObject:
        """Return what the model is and how it was fitted, ready for JSON.

        `ood` says whether it can flag unusual rows, `recalibration` and `groups` how distributions and intervals are
        calibrated, None where they are not, and `counts` is the range of possible counts.
        """
        about = {name: self.manifest[name] for name in ("ddpn", "members")}
        calibration = {name: self.manifest.get(name) for name in ("groups", "counts")}
        calibration["recalibration"] = self.manifest["recalibration"].get("mixture")
        return {**about, "ood": "ood" in self.manifest, **calibration, "task": self.task}

    @wrap_load_errors
    def load(self, mixed_only: bool = False) -> ModelFolder:
        """Load the model; nothing in the files is executed. A folder that was replaced meanwhile is read again.

        Parameters
        ----------
        mixed_only : bool
            Leave out what the model is compared with, which predictions do not need.
        """

        def read() -> ModelFolder:
            is_current = folder_version(self.path) == self._version
            saved = self if is_current else SavedModel(self.path, **self._columns)
            return saved._load_members(mixed_only)

        return read_consistently(self.path, read)

    def _load_members(self, mixed_only: bool) -> ModelFolder:
        from ddpn import estimators

        manifest = self.manifest
        kind = check_choice("the class of the saved model", manifest["estimator"]["class"], estimators.__all__)
        roles = Roles.from_dict(self.task["roles"]) if TASK in manifest["files"] else None
        model = getattr(estimators, kind).from_manifest(self.path, manifest, mixed_only, roles)
        about_rows = {name: manifest["files"][name] for name in (SEEN_ROWS, FOLDS) if name in manifest["files"]}
        files = {} if mixed_only else read_files(self.path, {"files": about_rows})
        seen = SeenRows.from_bytes(files[SEEN_ROWS]) if SEEN_ROWS in files else None
        folds = arrays_from_bytes(files[FOLDS])["number"] if FOLDS in files else None
        task = {**self.task, "roles": json.loads(json.dumps(self.roles.as_dict()))}
        return ModelFolder(model, task, seen, folds)


@wrap_load_errors
def read_task(path: Path) -> JsonObject:
    """Return how a model was fitted; the model itself is not loaded."""
    return SavedModel(path).task


@wrap_load_errors
def describe(path: Path) -> JsonObject:
    """Return what a saved model is and how it was fitted, as `SavedModel.describe` does."""
    return SavedModel(path).describe()


@wrap_load_errors
def load(path: Path, mixed_only: bool = False, **columns: str | None) -> ModelFolder:
    """Load the model of a folder.

    Parameters
    ----------
    path : Path
        The folder.
    mixed_only : bool
        As for `SavedModel.load`.
    **columns
        As for `SavedModel`.
    """
    return SavedModel(path, **columns).load(mixed_only)
