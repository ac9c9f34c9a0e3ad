"""An experiment is data: TOML files beside this one say what is run, and unknown words in them are errors."""

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from itertools import product
from typing import Any, Self

from ddpn.data import DATASETS, SIMULATIONS
from ddpn.errors import ConfigError
from ddpn.heads import Head, make_head

_CATALOGUE = "catalogue"
_METHODS = "methods"


def _read(name: str) -> dict[str, Any]:
    try:
        return tomllib.loads((files(__package__) / _CATALOGUE / f"{name}.toml").read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}.toml must be TOML, got {error}. Mend that line.") from None


def known(what: str, given: Iterable[str], valid: Iterable[str], where: str) -> None:
    """Refuse names that are not valid; the nearest valid one is suggested."""
    listed = list(valid)
    for name in given:
        if name not in listed:
            near = difflib.get_close_matches(str(name), listed, n=1)
            hint = f'Did you mean "{near[0]}"?' if near else "Choose one of these."
            raise ConfigError(f"{what} in {where} must be among {', '.join(listed)}, got {name!r}. {hint}")


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


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_whole(value)


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

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "steps", "members"):
            value = getattr(self, name)
            if not (_is_whole(value) and value >= 1) and (value is not None or name in ("batch_size", "members")):
                raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}. Change it.")
        if not _is_whole(self.seed) or self.seed < 0:
            raise ConfigError(f"seed must be a whole number of at least 0, got {self.seed!r}. Change it.")
        if not self.hidden or not all(_is_whole(width) and width >= 1 for width in self.hidden):
            raise ConfigError(f"hidden must hold widths of at least 1, got {list(self.hidden)}. Use [128, 64], say.")
        if not _is_number(self.lr) or not 0.0 < self.lr < math.inf:
            raise ConfigError(f"lr must be finite and positive, got {self.lr!r}. Use 1e-3, say.")
        if not _is_number(self.weight_decay) or not 0.0 <= self.weight_decay < math.inf:
            raise ConfigError(f"weight_decay must be finite and at least 0, got {self.weight_decay!r}. Change it.")

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
    analytic: bool = False

    @property
    def needs(self) -> str:
        """Where its rows come from."""
        if self.analytic:
            return "nothing"
        return f"data set {self.data['name']}" if self.data else f"simulated ({(self.simulation or {})['name']})"

    def with_methods(self, names: Iterable[str]) -> Self:
        """Only these methods, in the experiment's order."""
        names = list(names)
        known("methods", names, [m.name for m in self.methods], self.name)
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
        source = dict(self.experiment.data or self.experiment.simulation or {})
        head = {"name": self.head.name, "options": self.head.options}
        common = {"source": source, "head": head, "exact": self.method.exact}
        if self.method.exact:
            # The maximum of a likelihood does not depend on how a network would be trained.
            return common
        settings = {name: getattr(self.training, name) for name in _TRAINING}
        return common | settings | {"hidden": list(self.training.hidden)}


_TRAINING = [f.name for f in fields(Training)]
_NEEDED = ("title", "paper", "methods", "training", "minutes")
_ANALYTIC = {"title", "paper", "figures", "minutes", "analytic"}
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


def parse(name: str, content: Mapping[str, Any]) -> Experiment:
    """An experiment from what its TOML file holds."""
    where = f"{name}.toml"
    known("keys", content, [f.name for f in fields(Experiment) if f.name != "name"], where)
    if content.get("analytic", False):
        return _analytic(name, content, where)
    _with_keys("", content, _NEEDED, where, content)
    _check_source(content, where)
    every = methods()
    known("methods", content["methods"], every, where)
    _once("methods", content["methods"], where)
    grid = {key: tuple(values) for key, values in content.get("grid", {}).items()}
    for key, values in grid.items():
        _once(f"values of {key}", values, where)
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


def _check_source(content: Mapping[str, Any], where: str) -> None:
    if ("data" in content) == ("simulation" in content):
        raise ConfigError(f"{where} must have either data or simulation, got both or none. Keep one.")
    if "data" in content:
        _with_keys("data", content["data"], ("name", "features"), where, ("name", "features"))
        known("data sets", [content["data"]["name"]], DATASETS, where)
    else:
        _with_keys("simulation", content["simulation"], ("name",), where, ("name",))
        known("simulations", [content["simulation"]["name"]], SIMULATIONS, where)
    if "reference" in content:
        _with_keys("reference", content["reference"], ("table", "dataset"), where, ("table", "dataset"))


def _training(given: Mapping[str, Any], where: str) -> Training:
    _with_keys("[training]", given, ("batch_size", "lr", "weight_decay"), where, _TRAINING)
    if ("epochs" in given) == ("steps" in given):
        raise ConfigError(f"[training] of {where} must have either epochs or steps, got both or none. Keep one.")
    found: dict[str, Any] = {key: tuple(value) if key == "hidden" else value for key, value in given.items()}
    return Training(**found)


def _check_grid(found: Experiment, where: str) -> None:
    """Every point must make sense for every method: a setting of the training, or an option of the head."""
    for method in found.methods:
        known("keys of [grid]", found.grid, [*_TRAINING, *method.make_head().options], f"{where} for {method.name}")
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
