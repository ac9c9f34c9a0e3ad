"""An experiment is data: TOML files beside this one say what is run, and unknown words in them are errors."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from importlib.resources import files
from typing import Any

from ddpn.datasets import DATASETS, SIMULATIONS
from ddpn.errors import ConfigError
from ddpn.experiments.experiment import TRAINING, Experiment, Method, Training
from ddpn.experiments.naming import known
from ddpn.experiments.published import datasets, tables

_CATALOGUE = "catalogue"
_METHODS = "methods"


def _read(name: str) -> dict[str, Any]:
    try:
        return tomllib.loads((files(__package__) / _CATALOGUE / f"{name}.toml").read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}.toml must be TOML, got {error}. Mend that line.") from None


def _once(what: str, given: Iterable[Any], where: str) -> None:
    seen: list[Any] = []
    for value in given:
        if value in seen:
            raise ConfigError(f"{what} in {where} must be named once, got {value!r} twice. Drop one of the two.")
        seen.append(value)


def _with_keys(what: str, given: Mapping[str, Any], needed: Iterable[str], where: str, valid: Iterable[str]) -> None:
    """Refuse unknown keys, and missing ones."""
    known(f"keys of {what}" if what else "keys", given, valid, where)
    for missing in needed:
        if missing not in given:
            raise ConfigError(f"{what or 'the file'} in {where} must have the key {missing}, got none. Add it.")


_NEEDED = ("title", "paper", "methods", "training", "minutes")
_ANALYTIC = {"title", "paper", "figures", "minutes", "analytic"}
#: What a data set that is no table needs to be told besides its name.
_DATA_KEYS = {
    "reviews": ("text", "max_length"),
    "coco_people": ("size", "augment"),
    "inventory": ("points",),
    "shelves": ("beams", "points"),
}
#: The networks that can read them; tables and simulations have a perceptron.
_NETWORKS = {
    "reviews": ("text",),
    "coco_people": ("vit", "efficientnet"),
    "inventory": ("countnet3d",),
    "shelves": ("countnet3d",),
}
#: Rows of another kind that a finished run can be shown, and the data they are another kind of.
OUTSIDE = {"bible": "reviews"}
#: Stands where no run will look.
_UNTRAINED = Training(batch_size=1, lr=1.0, weight_decay=0.0, epochs=1, members=1)


def methods() -> dict[str, Method]:
    """Every method by name."""
    return {name: _method(name, row) for name, row in _read(_METHODS).items()}


def _method(name: str, row: Mapping[str, Any]) -> Method:
    where = f"{_METHODS}.toml"
    _with_keys(f"[{name}]", row, ("label", "head"), where, ("label", "head", "options", "exact"))
    method = Method(name=name, **row)
    if method.exact and method.options:
        raise ConfigError(f"[{name}] in {where} must have no options where exact is true, got some. Drop one of both.")
    method.make_head()
    return method


def names() -> list[str]:
    """Every experiment of the catalogue."""
    entries = (files(__package__) / _CATALOGUE).iterdir()
    found = (entry.name.removesuffix(".toml") for entry in entries if entry.name.endswith(".toml"))
    return sorted(name for name in found if name != _METHODS)


def experiment(name: str) -> Experiment:
    """One experiment of the catalogue."""
    known("experiments", [name], names(), "the catalogue")
    return parse(name, _read(name))


def title_of(name: str) -> str:
    """What an experiment shows; one that shows another's runs again has a title of its own."""
    return str(_read(name)["title"])


def parse(name: str, content: Mapping[str, Any]) -> Experiment:
    """An experiment from what its TOML file holds."""
    where = f"{name}.toml"
    if "of" in content:
        return _shown_again(content, where)
    known("keys", content, [f.name for f in fields(Experiment) if f.name not in ("name", "dry_steps")], where)
    if content.get("analytic", False):
        return _analytic(name, content, where)
    _with_keys("", content, _NEEDED, where, content)
    _check_source(content, where)
    _check_backbone(content, where)
    if not isinstance(content.get("apart", False), bool):
        raise ConfigError(f"apart in {where} must be true or false, got {content['apart']!r}. Write it so.")
    every = methods()
    known("methods", content["methods"], every, where)
    _once("methods", content["methods"], where)
    grid = _grid(content.get("grid", {}), where)
    rest = {key: value for key, value in content.items() if key not in ("training", "methods", "grid", "figures")}
    found = Experiment(
        name=name,
        methods=tuple(every[method] for method in content["methods"]),
        training=_training(content["training"], where),
        grid=grid,
        figures=tuple(content.get("figures", ())),
        **rest,
    )
    _check_grid(found, where)
    return found


def _shown_again(content: Mapping[str, Any], where: str) -> Experiment:
    """Another view of an experiment: the same runs in the same folder, under a title of its own."""
    _with_keys("", content, ("of", "title", "paper"), where, ("of", "title", "paper"))
    return replace(experiment(content["of"]), paper=content["paper"])


def _check_source(content: Mapping[str, Any], where: str) -> None:
    if ("data" in content) == ("simulation" in content):
        raise ConfigError(f"{where} must have either data or simulation, got both or none. Keep one.")
    _are_tables(content, ("data", "simulation", "reference", "backbone", "grid", "training"), where)
    if "data" in content:
        _check_data(content["data"], where)
    else:
        _with_keys("simulation", content["simulation"], ("name",), where, ("name",))
        known("simulations", [content["simulation"]["name"]], SIMULATIONS, where)
    if "reference" in content:
        keys = ("table", "dataset")
        _with_keys("reference", content["reference"], keys, where, keys)
        table, dataset = (content["reference"][key] for key in keys)
        known("tables of the paper", [table], tables(), where)
        known("data sets of the paper", [dataset], datasets(table), where)


def _are_tables(content: Mapping[str, Any], names: Iterable[str], where: str) -> None:
    for name in names:
        if name in content and not isinstance(content[name], Mapping):
            raise ConfigError(
                f"{name} in {where} must be a table, got {content[name]!r}. Write [{name}] above its keys."
            )


def _check_data(data: Mapping[str, Any], where: str) -> None:
    known("data sets", [str(data.get("name"))], [*DATASETS, *_DATA_KEYS], where)
    needed = ("name", *_DATA_KEYS.get(data["name"], ("features",)))
    _with_keys("data", data, needed, where, needed)


def _check_backbone(content: Mapping[str, Any], where: str) -> None:
    """Its other options are checked by the backbone itself, when it is built."""
    data, outside = str(content.get("data", {}).get("name")), content.get("outside")
    readers, backbone = _NETWORKS.get(data), content.get("backbone", {})
    if backbone and readers is None:
        raise ConfigError(
            f"{where} must have no [backbone] where rows are a table, got one. Give hidden in [training]."
        )
    if readers is not None:
        known(f"backbones for {data}", [backbone.get("name")], readers, where)
    if readers == ("text",) and "pretrained" not in backbone:
        raise ConfigError(f"[backbone] in {where} must have the key pretrained, got none. Its tokenizer comes with it.")
    if outside is not None:
        known("outside data", [outside], OUTSIDE, where)
        known(f"data with {outside} outside", [data], [OUTSIDE[outside]], where)


def _training(given: Mapping[str, Any], where: str) -> Training:
    _with_keys("[training]", given, ("batch_size", "lr", "weight_decay"), where, TRAINING)
    if ("epochs" in given) == ("steps" in given):
        raise ConfigError(f"[training] of {where} must have either epochs or steps, got both or none. Keep one.")
    found: dict[str, Any] = {key: tuple(value) if key == "hidden" else value for key, value in given.items()}
    return Training(**found)


def _grid(given: Mapping[str, Any], where: str) -> dict[str, tuple[Any, ...]]:
    for key, values in given.items():
        if not isinstance(values, list) or not all(isinstance(value, int | float | str) for value in values):
            raise ConfigError(
                f"{key} of [grid] in {where} must be a list of numbers or words, got {values!r}. Make it one."
            )
        _once(f"values of {key}", values, where)
    return {key: tuple(values) for key, values in given.items()}


def _check_grid(found: Experiment, where: str) -> None:
    """Every point must make sense for every method: a setting of the training, or an option of the head."""
    if "steps" in found.grid and found.training.epochs is not None:
        raise ConfigError(f"{where} must have steps in [training] where [grid] has them, got epochs. Replace them.")
    for method in found.methods:
        known("keys of [grid]", found.grid, [*TRAINING, *method.make_head().options], f"{where} for {method.name}")
        if method.exact and found.grid:
            raise ConfigError(f"{where} must have no [grid] with the exact {method.name}, got one. Drop one of both.")
    for run in found.runs():
        _ = run.head, run.training


def _analytic(name: str, content: Mapping[str, Any], where: str) -> Experiment:
    """Figures of mathematics alone: no rows, no methods, no runs."""
    if content["analytic"] is not True:
        raise ConfigError(f"analytic in {where} must be true or false, got {content['analytic']!r}. Write it so.")
    for missing in sorted(_ANALYTIC - set(content)):
        raise ConfigError(f"{where} must have the key {missing}, got none. Add it.")
    for idle in sorted(set(content) - _ANALYTIC):
        raise ConfigError(f"{where} must have no {idle} where analytic is true, got one. Drop one of the two.")
    return Experiment(**{**content, "figures": tuple(content["figures"])}, name=name, methods=(), training=_UNTRAINED)
