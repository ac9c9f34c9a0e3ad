"""Read the model to export, from a folder, an estimator or a predictor, and find the raw columns of its table."""

from dataclasses import dataclass, field
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any

from ddpn.predictor import Predictor
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.storage.contents import JsonObject
from ddpn.storage.model_files import TASK
from ddpn.tables.cells import LOOKS_MISSING, parse_missing_numbers
from ddpn.tables.columns import Kind
from ddpn.tables.conversion import FALSE, TRUE
from ddpn.tables.roles import Roles

#: The meaning of an input of each kind, for users of the file.
MEANINGS = {
    "number": "a number; NaN if it is missing",
    "boolean": "1 or 0; NaN if it is missing",
    "date": "seconds since 1970-01-01 00:00 in the time zone of the column; NaN if it is missing",
    "category": "text; empty if it is missing",
    "exposure": "a positive number",
    "upper": "the largest possible count, an integer",
    "group": "text; the group within which intervals are calibrated",
}


@dataclass(frozen=True)
class InputColumn:
    """A raw column of the table, which becomes an input of the ONNX file, and how its cells are converted.

    Attributes
    ----------
    name : str
        The name of the column and of the input.
    kind : str
        What the column holds: a key of `MEANINGS`, such as "number" or "exposure".
    names : tuple of str
        The columns that the model derives from it: one per part of a date, otherwise one.
    parts : tuple of str
        The parts of a date, such as "month".
    words : tuple of str
        Text that stands for a missing value in a category.
    markers : tuple of float
        Numbers that stand for a missing value.
    aliases : tuple of pairs of str
        Other spellings of levels: pairs of a text and the level of a category that it stands for.
    by_value : bool
        True if text that spells the same number is the same level of a category, such as 7 and 7.0.
    """

    name: str
    kind: str
    names: tuple[str, ...]
    parts: tuple[str, ...] = ()
    words: tuple[str, ...] = ("",)
    markers: tuple[float, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    by_value: bool = False

    @property
    def element(self) -> str:
        """The type of the elements of the input: f (float64) or s (string)."""
        return "s" if self.kind in ("category", "group") else "f"

    def as_dict(self) -> JsonObject:
        """Return the description of this input that the file contains, as a dict for JSON."""
        facts = {"name": self.name, "type": "string" if self.element == "s" else "float64", "kind": self.kind}
        return {**facts, "meaning": MEANINGS[self.kind]}


def list_input_columns(roles: Roles) -> list[InputColumn]:
    """List the features of a model that `ddpn fit` saved, as inputs of the ONNX file.

    `roles` has the columns of the table to which it was fitted. Columns with other roles, such as the exposure, are not
    in the list, unless they are features as well.
    """
    columns, markers = [], tuple(parse_missing_numbers(roles.missing))
    for column in roles.features:
        words, aliases = {""}, dict[str, str]()
        if column.kind.is_category:
            words |= {"nan", *(word.strip() for word in roles.missing)}
        if column.kind == Kind.NUMBER_CATEGORY:  # words such as n/a, in upper and lower case
            words |= {form for word in LOOKS_MISSING for form in (word, word.upper(), word.capitalize(), word.title())}
        if column.kind == Kind.BOOLEAN_CATEGORY:  # spellings of true and false
            for level, spellings in (("true", TRUE), ("false", FALSE)):
                for word in spellings:
                    cases = product(*zip(word.lower(), word.upper(), strict=True))
                    aliases |= {"".join(letters): level for letters in cases}
        columns.append(
            InputColumn(
                column.name,
                Kind.CATEGORY if column.kind.is_category else column.kind,
                tuple(column.inputs),
                column.parts if column.kind == Kind.DATE else (),
                tuple(sorted(words)),
                markers if column.kind.is_category or column.kind == Kind.NUMBER else (),
                tuple(sorted(aliases.items())),
                column.kind == Kind.NUMBER_CATEGORY,
            )
        )
    return columns


#: The keys of the saved information about the fit that are copied to the file.
_SUMMARY_FACTS = ("date", "data", "command", "split", "versions", "scores", "leaks", "warnings", "interrupted")


@dataclass(frozen=True)
class ExportedModel:
    """Everything about a model that `export_onnx` writes into a file.

    Attributes
    ----------
    predictor : Predictor
        The fitted mixture and its calibration.
    columns : list of InputColumn
        The inputs that are features.
    members : dict
        Facts about each member, for the description that `describe_onnx` reads.
    target : str or None
        The column of counts, if it has a name.
    exposure, upper : str
        The names of the inputs with the exposure and with the upper bound of each row.
    summary : dict
        Facts about the fit, for the description that `describe_onnx` reads.
    """

    predictor: Predictor
    columns: list[InputColumn]
    members: JsonObject
    target: str | None = None
    exposure: str = "exposure"
    upper: str = "upper_bound"
    summary: JsonObject = field(default_factory=dict)


def read_model(model: Any) -> ExportedModel:
    """Read the model to export from the folder of a saved model, a fitted estimator, or a `Predictor`.

    Anything else raises a `ConfigError`.
    """
    if isinstance(model, str | PathLike):
        return _read_folder(Path(model))
    if isinstance(model, Predictor):
        return _describe_predictor(model)
    predictor = getattr(model, "predictor_", None)
    if isinstance(predictor, Predictor):
        return _describe_predictor(predictor)
    expected = "the folder of a saved model, a fitted estimator of ddpn or a Predictor"
    hint = "Networks for images, text and point clouds (CountModel) are exported with torch.onnx."
    raise ConfigError(argument="model", must=f"be {expected}", got=type(model).__name__, remedy=hint)


def _read_folder(path: Path) -> ExportedModel:
    """Read the model to export from the folder of a saved model.

    If `ddpn fit` saved it, the inputs are the raw columns of its table. Otherwise they are the columns of the table X
    to which the estimator was fitted.
    """
    if path.is_file():
        raise InputError(f"{path} is a file, not the folder of a saved model.")
    from ddpn import estimators
    from ddpn.runtime.validation import check_choice
    from ddpn.workflow.model_folder import SavedModel

    saved = SavedModel(path)
    manifest = saved.manifest
    estimator = manifest.get("estimator")
    if estimator is None:
        return _describe_predictor(Predictor.load(path))
    if TASK not in manifest["files"]:
        kind = check_choice("The class of the saved model", estimator["class"], estimators.__all__)
        return read_model(getattr(estimators, kind).load(path))
    predictor, task, roles = saved.load(mixed_only=True).model.predictor_, saved.task, saved.roles
    summary = {name: task[name] for name in _SUMMARY_FACTS if name in task}
    return ExportedModel(
        predictor,
        list_input_columns(roles),
        manifest["members"],
        roles.target,
        roles.exposure or "exposure",
        roles.upper or "upper_bound",
        summary,
    )


def _describe_predictor(predictor: Predictor) -> ExportedModel:
    """Return the model to export for a predictor that was fitted in Python.

    Its inputs are the columns of the table X to which it was fitted. If no member uses columns, a `ConfigError` is
    raised.
    """
    schema = predictor.schema
    if schema is None:
        must = "have a member that uses columns"
        raise ConfigError(argument="model", must=must, got="constant distributions only")
    members = {
        name: {"weight": predictor.weights[name], "seconds": predictor.seconds.get(name), "facts": member.get_facts()}
        for name, member in predictor.members.items()
    }
    columns = [
        InputColumn(name, Kind.CATEGORY if kind.is_category else kind, (name,), by_value=kind == Kind.NUMBER_CATEGORY)
        for name, kind in zip(schema.names, schema.kinds, strict=True)
    ]
    return ExportedModel(predictor, columns, members)
