"""Read the model to export, from a folder or an estimator: its predictor, and the raw columns of its table."""

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
    """A raw column of the table, which is an input of the file, and how its cells are converted.

    - `kind` is a key of `MEANINGS`.
    - `names` are the columns that the model derives from it: one for each of the `parts` of a date, else one.
    - `markers` are numbers that stand for a missing value, and `words` are texts that do so in a category.
    - `aliases` are pairs of a text and the level of a category that it stands for.
    - If `by_value` is True, texts that represent the same number, such as 7 and 7.0, are the same level.
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
        """Return the description of this input in the file, ready for JSON."""
        facts = {"name": self.name, "type": "string" if self.element == "s" else "float64", "kind": self.kind}
        return {**facts, "meaning": MEANINGS[self.kind]}


def list_input_columns(roles: Roles) -> list[InputColumn]:
    """List the inputs of the file for a model that `ddpn fit` saved."""
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

    `columns` are the inputs that are features. `exposure` and `upper` are the names of the inputs with the exposure and
    the upper bound of each row, and `target` is the column of counts, or None. `members` (facts about each member) and
    `summary` (about the fit) are copied to the description that `describe_onnx` reads.
    """

    predictor: Predictor
    columns: list[InputColumn]
    members: JsonObject
    target: str | None = None
    exposure: str = "exposure"
    upper: str = "upper_bound"
    summary: JsonObject = field(default_factory=dict)


def read_model(model: Any) -> ExportedModel:
    """Read the model to export, from the folder of a saved model, a fitted estimator, or a `Predictor`."""
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
    """Read the model to export from a model folder. If `ddpn fit` saved it, its task names the raw columns."""
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
    """Convert a predictor that was fitted in Python to the model to export; its columns are those of X."""
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
