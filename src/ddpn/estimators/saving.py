"""Saving and loading of fitted estimators, without pickle."""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import narwhals as nw
import numpy as np

from ddpn.predictor import Predictor
from ddpn.runtime.errors import InputError
from ddpn.storage.model_files import TASK, read_files, read_manifest, refuses_strange_files, write_model
from ddpn.tables.roles import Roles


class Saved:
    """Writes an estimator that keeps a `Predictor` as `predictor_` to a folder, and reads it again."""

    predictor_: Predictor
    feature_kinds_: list[str] | None
    feature_names_in_: np.ndarray
    n_features_in_: int
    #: Arguments that a saved model does not keep.
    _not_saved: ClassVar[tuple[str, ...]] = ()
    #: How `ddpn fit` read the columns of its file; None for models that were fitted in Python.
    _roles: Roles | None = None

    @property
    def _fitted(self) -> Predictor:
        raise NotImplementedError

    def _features(self, X: Any) -> Any:
        """X as the members take it: models of `ddpn fit` read data frames with the columns of the file."""
        frame = nw.from_native(X, pass_through=True)
        if self._roles is None or not isinstance(frame, nw.DataFrame):
            return X
        written = [column.name for column in self._roles.used]
        if not set(written) <= set(frame.columns) and set(self.feature_names_in_) <= set(frame.columns):
            return X  # dates have become numbers already
        # What is neither text nor number in pandas, such as a column of dates and None, is read as text.
        objects = [nw.col(name).cast(nw.String) for name, dtype in frame.schema.items() if dtype == nw.Object]
        return self._roles.features(frame.with_columns(*objects).to_polars())

    def _extra_state(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Files and JSON values that the estimator keeps besides its predictor."""
        return {}, {}

    def _restore_extra(self, files: dict[str, bytes], extra: dict[str, Any]) -> None:
        """The inverse of `_extra_state`."""

    def saved_state(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Everything that `save` writes: files by name and the manifest."""
        files, manifest = self._fitted.state()
        more, extra = self._extra_state()
        names = getattr(self, "feature_names_in_", None)
        manifest["estimator"] = {
            "class": type(self).__name__,
            "options": plain_options(self, self._not_saved),
            "features": None if names is None else list(map(str, names)),
            "kinds": self.feature_kinds_,
            "n_features": int(self.n_features_in_),
            "extra": extra,
        }
        return files | more, manifest

    def save(self, path: str | PathLike[str], overwrite: bool = False) -> None:
        """Write the fitted model to a folder, whole or not at all. No pickle is written.

        Parameters
        ----------
        path : path
            The folder to make.
        overwrite : bool
            Whether to replace a model that is there already.
        """
        write_model(Path(path), *self.saved_state(), overwrite)

    @classmethod
    @refuses_strange_files
    def load(cls, path: str | PathLike[str], mixed_only: bool = False) -> Self:
        """Load a model that `save` wrote. Nothing in its files is executed, and a damaged file is refused.

        A model of `ddpn fit` takes data frames with the columns of the file that it was fitted to: dates, numbers and
        missing values as they are written there. Other columns are ignored.

        Parameters
        ----------
        path : path
            The folder of the model.
        mixed_only : bool
            Leave out the members that are kept for comparison, which predictions do not need.
        """
        manifest = read_manifest(Path(path))
        known = manifest.get("estimator", {"class": "Predictor"})
        if known["class"] != cls.__name__:
            raise InputError(f"{path} holds a {known['class']}, not a {cls.__name__}. Use {known['class']}.load.")
        needed = [name for name, each in manifest["members"].items() if each["weight"] or not mixed_only]
        files = read_files(Path(path), manifest, needed)
        options = {name: tuple(v) if isinstance(v, list) else v for name, v in known["options"].items()}
        model: Any = cls(**options)
        model.predictor_ = Predictor.from_state(files, manifest, mixed_only)
        model.n_features_in_, model.feature_kinds_ = known["n_features"], known.get("kinds")
        if known["features"] is not None:
            model.feature_names_in_ = np.array(known["features"], dtype=object)
        if TASK in files:
            model._roles = Roles.from_dict(json.loads(files[TASK])["roles"])
        model._restore_extra(files, known["extra"])
        return model


def plain_options(model: Any, without: tuple[str, ...]) -> dict[str, Any]:
    """Constructor arguments that JSON can hold; a random stream or a path cannot be kept."""
    options = {name: _plain(value) for name, value in model.get_params(deep=False).items() if name not in without}
    return {name: value for name, value in options.items() if isinstance(value, str | float | list | dict | int | None)}


def _plain(value: Any) -> Any:
    """Numbers of numpy, sequences and dictionaries as JSON has them; anything else as it is."""
    if isinstance(value, Mapping):
        return {name: _plain(option) for name, option in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(option) for option in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
