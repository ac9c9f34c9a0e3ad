"""The experiments: TOML files in the folder `catalogue`, listed, selected, read and validated. Imports no torch.

The numbers that the paper prints are in the folder `reference`.

Names of heads, their options and data sets are validated when they are used.
"""

import csv
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rich.table import Table

from ddpn.paper.experiments.experiment import Experiment, Method, Training
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_choice, check_keys

#: Stands for every experiment with `in_all`.
EVERY = "all"
_FOLDER = "catalogue"
_REFERENCE = files(__package__) / "reference"
_METHODS = "methods"
_Declared = TypeVar("_Declared", Experiment, Method, Training)


class Kind(NamedTuple):
    """What a kind of data needs: keys of [data] besides its name, and the backbones that can read it."""

    keys: tuple[str, ...]
    backbones: tuple[str, ...] = ()


#: The data sets that are not tables.
KINDS = {
    "reviews": Kind(("text", "max_length"), ("text",)),
    "coco_people": Kind(("size", "augment"), ("vit", "efficientnet")),
    "inventory": Kind(("points",), ("countnet3d",)),
    "shelves": Kind(("beams", "points"), ("countnet3d",)),
}
#: Out-of-distribution rows, and the data set that they can be predicted beside.
OOD = {"bible": "reviews"}


def names() -> list[str]:
    """The names of all experiments."""
    found = [Path(entry.name) for entry in (files(__package__) / _FOLDER).iterdir()]
    return sorted(path.stem for path in found if path.suffix == ".toml" and path.stem != _METHODS)


def listing() -> Table:
    """A table of all experiments with what they need and how long they take."""
    table = Table(title="ddpn reproduce NAME")
    for heading in ("experiment", "what it shows", "in the paper", "needs"):
        table.add_column(heading, no_wrap=heading == "experiment", overflow="fold")
    table.add_column("minutes", justify="right")
    for name in names():
        found = experiment(name)
        # A view of another experiment has a title of its own.
        table.add_row(name, read(name)["title"], found.paper, found.needs, f"{found.minutes:g}")
    table.caption = "Minutes on two CPU cores; 600 or more are estimates for experiments that need a GPU."
    return table


def select(
    chosen: Sequence[str],
    *,
    only: Sequence[str] = (),
    quick: bool = False,
    max_steps: int | None = None,
    **training: Any,
) -> list[Experiment]:
    """The experiments with these names, each once, as they are to be run; with other settings of the `training`.

    `only` must be methods of at least one of them. `quick` and `max_steps` (a dry run) shorten the training.
    """
    known = [*names(), EVERY]
    if not chosen:
        raise ConfigError(f"NAME must be one or more of {', '.join(known)}. `ddpn reproduce --list` describes them.")
    for name in chosen:
        check_choice("NAME", name, known)
    every = [each for each in map(experiment, names()) if each.in_all] if EVERY in chosen else []
    # By their own names: a view of another experiment is that experiment.
    found = {each.name: each for each in [*every, *(experiment(name) for name in chosen if name != EVERY)]}
    for method in only:
        check_choice("method in --only", method, dict.fromkeys(m.name for each in found.values() for m in each.methods))
    shorter = [each.quick() if quick else each for each in found.values()]
    shorter = [each if max_steps is None else each.dry(max_steps) for each in shorter]
    return [each.with_training(**training) for each in shorter]


def read(name: str) -> dict[str, Any]:
    """The content of a file of the catalogue."""
    try:
        return tomllib.loads((files(__package__) / _FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}.toml is not valid TOML: {error}.") from None


def reference(table: str, dataset: str | None = None) -> dict[tuple[str, str, str], float]:
    """The paper's numbers by (kind, method, metric); the kind is "" in a table without kinds.

    `dataset` is one of the data sets of the table, if it has several.
    """
    check_choice("table of the paper", table, sorted(entry.name.removesuffix(".csv") for entry in _REFERENCE.iterdir()))
    rows = list(csv.DictReader((_REFERENCE / f"{table}.csv").read_text(encoding="utf-8").splitlines()))
    if "dataset" in rows[0]:
        check_choice(f"dataset of the table {table}", dataset, dict.fromkeys(row["dataset"] for row in rows))
        rows = [row for row in rows if row["dataset"] == dataset]
    return {(row.get("kind", ""), row["method"], row["metric"]): float(row["mean"]) for row in rows}


def methods() -> dict[str, Method]:
    """Every method by name."""
    rows = read(_METHODS)
    return {name: _built(Method, row, f"[{name}] of {_METHODS}.toml", name=name) for name, row in rows.items()}


def experiment(name: str) -> Experiment:
    """The experiment of that name."""
    return parse(check_choice("experiment", name, names()), read(name))


def parse(name: str, content: Mapping[str, Any]) -> Experiment:
    """The experiment that the content of a TOML file describes."""
    where = f"{name}.toml"
    if "of" in content:
        # Another view of an experiment: the same runs in the same folder.
        check_keys(content, ("of", "title", "paper"), where, required=("title", "paper"))
        return replace(experiment(content["of"]), paper=content["paper"])
    if content.get("analytic", False) is True:
        # Figures only: no rows, no methods, no runs.
        check_keys(content, ("analytic", "title", "paper", "minutes", "figures"), where, required=("figures",))
        return _built(Experiment, {key: value for key, value in content.items() if key != "analytic"}, where, name=name)
    check_keys(content, content, where, required=("methods", "training"))
    _check_source(content, where)
    every, grid = methods(), content.get("grid", {})
    _check_unique(f"methods of {where}", content["methods"])
    for key, values in grid.items():
        _check_unique(f"{key} in [grid] of {where}", values)
    declared = {
        "name": name,
        "methods": tuple(every[check_choice(f"methods of {where}", each, every)] for each in content["methods"]),
        "training": _built(Training, content["training"], f"[training] of {where}"),
        "grid": {key: tuple(values) for key, values in grid.items()},
    }
    rest = {key: value for key, value in content.items() if key not in ("methods", "training", "grid")}
    found = _built(Experiment, rest, where, **declared)
    for run in found.runs():
        if run.method.exact and found.grid:
            raise ConfigError(f"{where} must have no [grid] with {run.method.name}, which is fitted exactly.")
        _ = run.training  # validates the settings at this point of the grid
    return found


def _built(declared: type[_Declared], values: Mapping[str, Any], where: str, **more: Any) -> _Declared:
    """An instance of a dataclass from the keys of a TOML table; lists become tuples."""
    known = [each.name for each in fields(declared) if each.name not in ("name", "dry_steps")]
    needed = [f.name for f in fields(declared) if f.default is MISSING and f.default_factory is MISSING]
    check_keys(values, known, where, required=[name for name in needed if name not in more])
    for each in fields(declared):
        if each.type is bool and not isinstance(values.get(each.name, False), bool):
            raise ConfigError(f"{each.name} of {where} must be true or false, got {values[each.name]!r}.")
    plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return declared(**plain, **more)


def _check_unique(name: str, values: Any) -> None:
    if not isinstance(values, list) or not all(isinstance(value, int | float | str) for value in values):
        raise ConfigError(f"{name} must be a list of numbers or strings, got {values!r}.")
    for value in values:
        if values.count(value) > 1:
            raise ConfigError(f"{name} must be unique, got {value!r} twice.")


def _check_source(content: Mapping[str, Any], where: str) -> None:
    """The rows, the backbone that reads them, and the paper's numbers."""
    if ("data" in content) == ("simulation" in content):
        raise ConfigError(f"{where} must have either data or simulation, got both or neither.")
    for name in ("data", "simulation", "reference", "backbone", "grid", "training"):
        if not isinstance(content.get(name, {}), Mapping):
            raise ConfigError(f"{name} of {where} must be a table, got {content[name]!r}.")
    data, backbone = content.get("data", {}), content.get("backbone", {})
    kind = KINDS.get(data.get("name"), Kind(("features",)))
    keys = {"data": ("name", *kind.keys), "simulation": ("name",), "reference": ("table", "dataset")}
    for name, needed in keys.items():
        if name in content:
            check_keys(content[name], needed, f"{name} of {where}", required=needed)
    if "reference" in content:
        reference(**content["reference"])  # raises if the paper has no such numbers
    if backbone and not kind.backbones:
        raise ConfigError(f"{where} must have no [backbone] for a table. Set hidden in [training].")
    if kind.backbones:
        check_choice(f"backbone of {where}", backbone.get("name"), kind.backbones)
        # The tokenizer comes with pretrained weights; the backbone validates its other options when it is built.
        required = ("pretrained",) if "text" in kind.backbones else ()
        check_keys(backbone, {*backbone, *required}, f"[backbone] of {where}", required=required)
    if "ood" in content:
        name = OOD[check_choice(f"ood of {where}", content["ood"], OOD)]
        check_choice(f"data of {where} with ood", data.get("name"), [name])
