"""What is exported: the predictor of a saved folder, of an estimator or by itself, with the columns that it reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from ddpn.export.schema import InputColumn, columns_of_features, columns_of_roles
from ddpn.members.folds import copies_of
from ddpn.members.member import Member
from ddpn.predictor import Predictor
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.storage.model_files import TASK, read_manifest
from ddpn.tables.roles import Roles

#: What a saved task says about the fit, which the file repeats.
_SUMMARY = ("date", "data", "command", "split", "versions", "test", "leaks", "warnings", "interrupted")
#: Members that know the columns by one of these.
_READERS = ("encoder", "reader", "table")


@dataclass(frozen=True)
class ExportedModel:
    """A model to export.

    `exposure` and `upper` are the names of the columns with these roles, `members` and `summary` what the
    file says about the members and the fit.
    """

    predictor: Predictor
    columns: list[InputColumn]
    members: Mapping[str, Any]
    target: str | None = None
    exposure: str = "exposure"
    upper: str = "upper_bound"
    summary: Mapping[str, Any] = field(default_factory=dict)


def source_of(model: Any) -> ExportedModel:
    """The model in a folder, of an estimator, or a predictor itself."""
    if isinstance(model, str | PathLike):
        return _of_folder(Path(model))
    if isinstance(model, Predictor):
        return _of_predictor(model, None, None)
    predictor = getattr(model, "predictor_", None)
    if isinstance(predictor, Predictor):
        names = getattr(model, "feature_names_in_", None)
        return _of_predictor(predictor, names, getattr(model, "feature_kinds_", None))
    what = "a folder of a saved model, a fitted estimator of ddpn or a Predictor"
    hint = "Networks for images, text and point clouds (CountModel) are exported with torch.onnx."
    raise ConfigError(argument="model", must=f"be {what}", got=type(model).__name__, remedy=hint)


def _of_folder(path: Path) -> ExportedModel:
    if path.is_file():
        raise InputError(f"{path} is a file, not the folder of a saved model.")
    manifest = read_manifest(path)
    estimator = manifest.get("estimator")
    if estimator is None:
        return _of_predictor(Predictor.load(path), None, None)
    from ddpn import estimators
    from ddpn.runtime.validation import check_choice
    from ddpn.workflow.model_folder import load, read_task

    if TASK not in manifest["files"]:
        kind = check_choice("The class of the saved model", estimator["class"], estimators.__all__)
        return source_of(getattr(estimators, kind).load(path))
    folder, task = load(path, mixed_only=True), read_task(path)
    predictor, roles = folder.model.predictor_, Roles.from_dict(task["roles"])
    summary = {name: task[name] for name in _SUMMARY if name in task}
    return ExportedModel(
        predictor,
        columns_of_roles(roles, estimator["kinds"]),
        manifest["members"],
        roles.target,
        roles.exposure or "exposure",
        roles.upper or "upper_bound",
        summary,
    )


def _of_predictor(predictor: Predictor, names: Any, kinds: Any) -> ExportedModel:
    """A model that was fitted in Python: the columns are those of X."""
    known = next(filter(None, (_reader(copies_of(member)[0]) for member in predictor.members.values())), None)
    if kinds is None:
        kinds = None if known is None else known.kinds_
    if kinds is None:
        must = "have a member that reads columns"
        raise ConfigError(argument="model", must=must, got="constant distributions only")
    if names is None:
        names = getattr(known, "feature_names_in_", [f"x{j}" for j in range(len(kinds))])
    members = {
        name: {"weight": predictor.weights[name], "seconds": predictor.seconds.get(name), "facts": member.facts()}
        for name, member in predictor.members.items()
    }
    return ExportedModel(predictor, columns_of_features(list(map(str, names)), kinds), members)


def _reader(member: Member) -> Any:
    """What knows the names and kinds of the columns of a member: its encoder or reader."""
    for name in _READERS:
        found = getattr(member, name, None)
        if found is not None:
            return getattr(found, "reader", found)
    return None
