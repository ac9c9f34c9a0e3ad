"""Save and load model folders: the files of an estimator and, if `ddpn fit` wrote the folder, task.json.

The task is information about the fit: its options, the roles of columns, the split, warnings and scores. Reading it
imports no torch.
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
    read_files,
    read_manifest,
    wrap_load_errors,
    write_model,
)
from ddpn.tables.columns import Kind
from ddpn.tables.conversion import TableColumn
from ddpn.tables.roles import Roles
from ddpn.tables.seen_rows import SeenRows

if TYPE_CHECKING:
    from ddpn.estimators import CountGLM, CountRegressor
    from ddpn.predictor import Predictor
    from ddpn.tables.table import Table

CHECKPOINT = "checkpoint.safetensors"
#: Files about the training rows, in a separate folder because predictions do not need them.
SEEN_ROWS, FOLDS = "fit/rows.safetensors", "fit/folds.safetensors"


@dataclass(frozen=True)
class ModelFolder:
    """A fitted model, with information about its fit and its training rows.

    - `task` is the content of task.json.
    - `seen` has hashes of the training rows, by which another table's rows are recognised as training rows. It is None
      if the model was loaded for predictions only.
    - `folds` has the fold number of each training row if the model is cross-fitted and has no test rows; otherwise it
      is None.
    """

    model: "CountRegressor | CountGLM"
    task: JsonObject
    seen: SeenRows | None = None
    folds: np.ndarray | None = None

    @cached_property
    def roles(self) -> Roles:
        """The role of each column of the table in the fit, such as target, exposure or feature."""
        return Roles.from_dict(self.task["roles"])

    def for_table(self, table: "Table") -> "ModelFolder":
        """Return a copy that reads the dates of a long table in the format that all its rows show."""
        roles = table.find_date_formats(self.roles)
        return self if roles is self.roles else replace(self, task={**self.task, "roles": roles.as_dict()})

    def save(self, path: Path, overwrite: bool = False, checkpoint: Path | None = None) -> None:
        """Save the model in the folder `path`, either completely or not at all.

        If `overwrite` is True, an existing model is replaced. If the file `checkpoint` exists, it is saved with the
        model, so that an interrupted fit can continue from it.
        """
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
    """Read task.json of a model folder.

    A model that was saved in Python has no such file. Its task is made from the manifest.
    """
    digest = manifest["files"].get(TASK)
    if digest is None:
        return _make_task(path, manifest)
    return dict(json.loads(read_files(path, {"files": {TASK: digest}})[TASK]))


def _make_task(path: Path, manifest: JsonObject) -> JsonObject:
    """Make the task of a model that was saved in Python, whose folder has no task.json.

    The columns are those of the estimator's schema in the manifest, and only blank cells stand for missing values. If
    intervals were calibrated by group, every table needs the column that gave the groups their name. The target, the
    split and the scores are unknown. Raise an `InputError` if there are no column names, because a `Predictor` was
    saved, or because the estimator was fitted to an array.
    """
    estimator = manifest.get("estimator")
    if estimator is None or not estimator["schema"]["is_named"]:
        what = "a Predictor" if estimator is None else "a model that was fitted to an array"
        raise InputError(f"{path} contains {what}, without column names. Save a model that was fitted to a data frame.")
    dates = {
        name: column for column in map(TableColumn.from_dict, estimator.get("dates", ())) for name in column.inputs
    }
    columns = list[TableColumn]()
    for name, kind in zip(estimator["schema"]["names"], estimator["schema"]["kinds"], strict=True):
        column = dates.get(name, TableColumn(name, Kind(kind)))
        columns += [] if column in columns else [column]
    leaks = list(estimator.get("leaks", ()))
    groups = manifest["groups"]["by"] if "groups" in manifest else None
    roles = Roles(None, None, None, tuple(columns), missing=("",), interval_groups=groups)
    return {"roles": roles.as_dict(), "leaks": leaks, "warnings": []}


class SavedModel:
    """A model folder whose manifest and task can be read without loading the model. Each file is read only once.

    Parameters
    ----------
    path : Path
        The folder.
    **columns
        Column names by role (target, exposure, weight, upper). They replace the names of the fit. They must be given if
        the model was saved in Python, because such a model does not store them.
    """

    def __init__(self, path: Path, **columns: str | None) -> None:
        self.path, self._columns = path, {name: value for name, value in columns.items() if value is not None}
        self.manifest = read_manifest(path)

    @cached_property
    @wrap_load_errors
    def task(self) -> JsonObject:
        """The saved information about the fit: options, roles of columns, warnings and scores."""
        return _read_task(self.path, self.manifest)

    @cached_property
    @wrap_load_errors
    def roles(self) -> Roles:
        """The role of each column, as in the fit, except for columns that were named in the constructor."""
        path = self.path
        columns: JsonObject = self._columns
        roles = replace(Roles.from_dict(self.task["roles"]), **columns)
        if self.manifest["needs_exposure"] and roles.exposure is None:
            raise InputError(f"{path} was fitted with exposures. Name their column with `exposure`.")
        if self.manifest.get("counts", {}).get("upper_per_row") and roles.upper is None:
            raise InputError(f"{path} was fitted with an upper bound per row. Name its column with `upper_column`.")
        return roles

    @wrap_load_errors
    def describe(self) -> JsonObject:
        """Return information about the model and its fit, ready for JSON.

        The keys include:

        - `members`: a dict by name of the models in the mixture and those compared with it, with weights and facts
        - `task`: the saved information about the fit
        - `ood`: True if the model can flag out-of-distribution rows
        - `counts`: the range of possible counts
        - `recalibration`: how the predicted distributions were recalibrated, or None
        - `groups`: the groups within which intervals were calibrated, or None
        """
        about = {name: self.manifest[name] for name in ("ddpn", "members")}
        calibration = {name: self.manifest.get(name) for name in ("groups", "counts")}
        calibration["recalibration"] = self.manifest["recalibration"].get("mixture")
        return {**about, "ood": "ood" in self.manifest, **calibration, "task": self.task}

    @wrap_load_errors
    def load_predictor(self, mixed_only: bool = False) -> "Predictor":
        """Load the predictor alone, without the estimator around it, which would import scikit-learn.

        Parameters
        ----------
        mixed_only : bool
            Whether to leave out the models that were fitted for comparison.
        """
        from ddpn.predictor import Predictor, read_predictor_files

        files = read_predictor_files(self.path, self.manifest, mixed_only)
        return Predictor.from_state(files, self.manifest, mixed_only)

    @wrap_load_errors
    def load(self, mixed_only: bool = False) -> ModelFolder:
        """Load the model; nothing in the files is executed.

        If the folder is replaced while it is read, an `InputError` is raised: the files have other hashes than those in
        the manifest.

        Parameters
        ----------
        mixed_only : bool
            Whether to load only what predictions need. The models that were fitted for comparison are then left out,
            and so is the information about training rows.
        """
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
def load(path: Path, mixed_only: bool = False, **columns: str | None) -> ModelFolder:
    """Load a model from a folder.

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
