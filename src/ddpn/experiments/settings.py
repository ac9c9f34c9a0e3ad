"""An experiment is data: TOML files beside this one say what is run, and unknown words in them are errors."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from itertools import product
from typing import Any, Self

from ddpn.errors import ConfigError
from ddpn.heads import Head, make_head

_CATALOGUE = "catalogue"
_METHODS = "methods"


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((files(__package__) / _CATALOGUE / f"{name}.toml").read_text(encoding="utf-8"))


def known(what: str, given: Iterable[str], valid: Iterable[str], where: str) -> None:
    """Refuse names that are not valid; the nearest valid one is suggested."""
    listed = list(valid)
    for name in given:
        if name not in listed:
            near = difflib.get_close_matches(str(name), listed, n=1)
            hint = f'Did you mean "{near[0]}"?' if near else "Choose one of these."
            raise ConfigError(f"{what} in {where} must be among {', '.join(listed)}, got {name!r}. {hint}")


@dataclass(frozen=True)
class Method:
    """A row of a table: a likelihood with its options; `exact` is a GLM fitted to its maximum likelihood."""

    name: str
    label: str
    head: str
    options: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False

    @property
    def is_gaussian(self) -> bool:
        """Whether its law lives on the line."""
        return "gaussian" in self.head

    def make_head(self, **more: Any) -> Head:
        """The head, with options of one run besides its own."""
        return make_head(self.head, **{**self.options, **more})


@dataclass(frozen=True)
class Training:
    """The paper's settings: AdamW and a cosine, no warm-up, no averaging, no clipping, a head that starts anywhere.

    `steps` stands in for `epochs` where rows are fewer than the paper's.
    """

    batch_size: int
    lr: float
    weight_decay: float
    epochs: int | None = None
    steps: int | None = None
    hidden: tuple[int, ...] = (128, 128, 128, 64)
    members: int = 5
    seed: int = 0

    def epochs_for(self, rows: int) -> int:
        """How often `rows` rows are gone through."""
        if self.epochs is not None:
            return self.epochs
        assert self.steps is not None
        return max(1, round(self.steps / max(1, rows // min(self.batch_size, rows))))


@dataclass(frozen=True)
class Experiment:
    """What one file of the catalogue says."""

    name: str
    title: str
    paper: str
    methods: tuple[Method, ...]
    training: Training
    minutes: float
    data: Mapping[str, Any] | None = None
    simulation: Mapping[str, Any] | None = None
    reference: Mapping[str, str] | None = None
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    figures: tuple[str, ...] = ()

    @property
    def needs(self) -> str:
        """Where its rows come from."""
        return f"data set {self.data['name']}" if self.data else f"simulated ({(self.simulation or {})['name']})"

    def with_methods(self, names: Iterable[str]) -> Self:
        """Only these methods, in the experiment's order."""
        names = list(names)
        known("methods", names, [m.name for m in self.methods], f"--only of {self.name}")
        return replace(self, methods=tuple(m for m in self.methods if m.name in names))

    def with_training(self, **changes: Any) -> Self:
        """Other settings of the training."""
        return replace(self, training=replace(self.training, **changes))

    def runs(self) -> list["Run"]:
        """Every method at every point of the grid."""
        points = [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]
        return [Run(self, method, point) for method in self.methods for point in points]


@dataclass(frozen=True)
class Run:
    """One training (or exact fit) of an experiment."""

    experiment: Experiment
    method: Method
    point: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The folder it writes."""
        return "-".join([self.method.name, *(f"{key}={value}" for key, value in self.point.items())])

    @property
    def head(self) -> Head:
        """The head at this point of the grid."""
        options = {key: value for key, value in self.point.items() if key not in _TRAINING}
        return self.method.make_head(**options)

    @property
    def training(self) -> Training:
        """The settings at this point of the grid."""
        return replace(
            self.experiment.training, **{key: value for key, value in self.point.items() if key in _TRAINING}
        )

    def as_dict(self) -> dict[str, Any]:
        """All its results depend on, besides the rows."""
        settings = {f.name: getattr(self.training, f.name) for f in fields(Training)}
        source = dict(self.experiment.data or self.experiment.simulation or {})
        head = {"name": self.head.name, "options": self.head.options}
        return (
            {"source": source, "head": head, "exact": self.method.exact}
            | settings
            | {"hidden": list(self.training.hidden)}
        )


_TRAINING = {f.name for f in fields(Training)}


def methods() -> dict[str, Method]:
    """Every method by name."""
    return {name: Method(name=name, **row) for name, row in _read(_METHODS).items()}


def names() -> list[str]:
    """Every experiment of the catalogue."""
    entries = (files(__package__) / _CATALOGUE).iterdir()
    found = (entry.name.removesuffix(".toml") for entry in entries if entry.name.endswith(".toml"))
    return sorted(name for name in found if name != _METHODS)


def experiment(name: str) -> Experiment:
    """One experiment of the catalogue."""
    known("experiments", [name], names(), "the catalogue")
    return parse(name, _read(name))


def parse(name: str, content: Mapping[str, Any]) -> Experiment:
    """An experiment from what its TOML file holds."""
    where = f"{name}.toml"
    known("keys", content, [f.name for f in fields(Experiment) if f.name != "name"], where)
    for missing in {"title", "paper", "methods", "training", "minutes"} - set(content):
        raise ConfigError(f"{where} must have the key {missing}, got none. Add it.")
    if ("data" in content) == ("simulation" in content):
        raise ConfigError(f"{where} must have either data or simulation, got both or none. Keep one.")
    known("keys of [training]", content["training"], _TRAINING, where)
    known("methods", content["methods"], methods(), where)
    settings = dict(content["training"])
    if ("epochs" in settings) == ("steps" in settings):
        raise ConfigError(f"[training] of {where} must have either epochs or steps, got both or none. Keep one.")
    if "hidden" in settings:
        settings["hidden"] = tuple(settings["hidden"])
    rest = {key: value for key, value in content.items() if key not in ("training", "methods", "grid", "figures")}
    return Experiment(
        name=name,
        methods=tuple(methods()[method] for method in content["methods"]),
        training=Training(**settings),
        grid={key: tuple(values) for key, values in content.get("grid", {}).items()},
        figures=tuple(content.get("figures", ())),
        **rest,
    )
