"""What is searched, and for how long: the settings of a model, their ranges and choices. Imports no torch."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

from ddpn.members.network_options import ENCODINGS, NetworkOptions
from ddpn.networks.heads import check_likelihood
from ddpn.runtime.deadlines import parse_duration
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_choice, check_integer, check_keys, is_integer, is_number
from ddpn.workflow.plan import Plan, read_toml

#: What a search may take by default.
BUDGET = "10m"
#: Settings that can be searched, in the order of tables, and what each is.
SETTINGS = {
    "lr": "learning rate",
    "weight_decay": "weight decay",
    "hidden": "widths of the hidden layers",
    "batch_size": "rows per step",
    "epochs": "passes over the training rows",
    "numeric": "encoding of numbers",
    "likelihood": "distribution of the counts",
}
#: Settings that have a range from a low to a high value; the others have choices.
RANGES = ("lr", "weight_decay", "epochs")
#: Ranges of settings as multiples of the default.
_AROUND = {"lr": (0.2, 4.0), "weight_decay": (0.05, 5.0)}
_EPOCHS = (10, 20, 40, 80, 160)
_WIDTHS = ("32", "64-64", "128-128", "256-256", "128-128-128-64")
_BATCHES = (32, 64, 128, 256, 512)
_LIKELIHOODS = ("mixed", "double_poisson", "negative_binomial", "double_poisson*3", "negative_binomial*2")
_TRAINING = ("lr", "weight_decay", "batch_size")
#: A choice that stands for an empty list, and one for what the number of rows suggests.
_NONE, _AUTO = "none", "auto"

Value = float | int | str
#: A setting's value by name.
Settings = dict[str, Value]


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, searched on a logarithmic scale."""

    low: float
    high: float
    integer: bool = False

    def __contains__(self, value: Value) -> bool:
        return is_number(value) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.low:.4g} to {self.high:.4g}"

    def distribution(self, optuna: Any) -> Any:
        """What Optuna draws from."""
        kind = optuna.distributions.IntDistribution if self.integer else optuna.distributions.FloatDistribution
        return kind(self.low, self.high, log=True)


@dataclass(frozen=True)
class Choices:
    """A few values."""

    values: tuple[Value, ...]

    def __contains__(self, value: Value) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))

    def distribution(self, optuna: Any) -> Any:
        """What Optuna draws from."""
        return optuna.distributions.CategoricalDistribution(self.values)


#: Ranges and choices by name.
Space = dict[str, Range | Choices]


def check_search(plan: Plan, search: Any = None) -> dict[str, Any]:
    """The settings to search: True, or the values that the user gave; a `ConfigError` for one that cannot be searched.

    `search` are names (a list, or text with commas), a TOML file, or a mapping of names to values: true for the usual
    range, [low, high] for lr, weight_decay and epochs, and a list of choices for the others. Default: every setting
    that the plan does not fix.
    """
    fixed = {*plan.model, *(plan.model.get("training_options") or {})}
    if plan.model.get("head_options"):
        fixed.add("likelihood")
    if search is None:
        search = [name for name in SETTINGS if name not in fixed]
        if not search:
            raise ConfigError("Nothing is left to search: every setting has a value. Leave out some of them.")
    if isinstance(search, PathLike) or (isinstance(search, str) and search.strip().endswith(".toml")):
        search = read_toml(Path(search))
    if isinstance(search, str):
        search = [name.strip() for name in search.split(",") if name.strip()]
    if not isinstance(search, Mapping | Sequence) or not search:
        must = f"name one or more of {', '.join(SETTINGS)}"
        raise ConfigError(argument="search", must=must, got=f"{search!r:.60}")
    check_keys(search, SETTINGS, "search")
    for name in search:
        if name in fixed:
            raise ConfigError("has a value and is in `search`", argument=name, remedy="Leave out one of them.")
    wanted = search if isinstance(search, Mapping) else dict.fromkeys(search, True)
    return {name: value if value is True else _given(name, value) for name, value in wanted.items()}


def make_space(wanted: Mapping[str, Any], defaults: Settings, rows: int) -> Space:
    """Ranges and choices of the settings to search, around their defaults, for so many training rows."""
    usual: dict[str, tuple[Value, ...]] = {
        "hidden": _WIDTHS, "numeric": ENCODINGS, "likelihood": _LIKELIHOODS, "epochs": _EPOCHS,
        "batch_size": tuple(size for size in _BATCHES if size <= rows / 4),
    }  # fmt: skip
    space: Space = {}
    for name, values in wanted.items():
        default = defaults[name]
        if values is not True:
            space[name] = values
        elif name in _AROUND:
            low, high = (factor * (float(default) or 0.01) for factor in _AROUND[name])
            space[name] = Range(low, high)
        else:
            space[name] = Choices((*(() if default in usual[name] else (default,)), *usual[name]))
    return space


def _given(name: str, value: Any) -> Range | Choices:
    """Validate the range or the choices of a user."""
    is_list = isinstance(value, list | tuple) and len(value) > 0
    if name not in RANGES:
        if not is_list:
            raise _bad(name, "be true or a list of choices", value)
        return Choices(tuple(dict.fromkeys(_choice(name, each) for each in value)))
    if not (is_list and len(value) == 2 and all(map(is_number, value)) and 0 < value[0] < value[1] < math.inf):
        raise _bad(name, "be true or two numbers above 0, [low, high]", value)
    if name == "epochs" and not all(map(is_integer, value)):
        raise _bad(name, "be two integers", value)
    return Range(value[0], value[1], name == "epochs")


def _bad(name: str, must: str, value: Any) -> ConfigError:
    return ConfigError(argument=f"{name} in search", must=must, got=f"{value!r:.60}")


def _choice(name: str, value: Any) -> Value:
    """Validate a choice of a user; returns it as a plain value."""
    if value == _AUTO and name in ("hidden", "batch_size", "numeric"):
        return _AUTO
    if name == "batch_size":
        return check_integer("batch_size in search", value, 1)
    if name == "numeric":
        return str(check_choice("numeric in search", value, ENCODINGS))
    if name == "hidden" and not isinstance(value, str):
        value = NetworkOptions(hidden=value).hidden
    text = text_of(name, value)
    model_value(name, text)
    return text


def text_of(name: str, value: Any) -> Value:
    """A setting of a model as a plain value: (64, 64) as "64-64", () as "none"."""
    if isinstance(value, str) or is_number(value):
        return value
    return ("-" if name == "hidden" else "+").join(map(str, value)) or _NONE


def model_value(name: str, value: Value) -> dict[str, Any]:
    """The arguments of a model that a plain value stands for; a `ConfigError` if it is invalid."""
    words = str(value)
    if words == _AUTO:
        return {name: value}
    if name == "hidden":
        parts = [] if words == _NONE else words.split("-")
        if not all(part.isdecimal() for part in parts):
            raise _bad(name, 'hold widths such as [64, 64] or "64-64"', value)
        return {"hidden": NetworkOptions(hidden=tuple(map(int, parts))).hidden}
    if name == "likelihood":
        family, _, components = words.partition("*")
        if components and not (components.isdecimal() and int(components) >= 1):
            raise _bad(name, "be NAME, NAME*NUMBER or NAME+NAME", value)
        names = tuple(family.split("+"))
        check_likelihood(names if len(names) > 1 else family)
        model: dict[str, Any] = {"likelihood": names if len(names) > 1 else family}
        return model | ({"head_options": {"components": int(components)}} if components else {})
    return {name: value}


def with_settings(plan: Plan, settings: Mapping[str, Value]) -> Plan:
    """The plan with these settings in place of its own."""
    model, training = dict(plan.model), dict(plan.model.get("training_options") or {})
    for name, value in settings.items():
        found = model_value(name, value)
        if name in _TRAINING:
            training |= found
        else:
            model |= found
    return replace(plan, model=model | ({"training_options": training} if training else {}))


def default_settings(plan: Plan, names: Iterable[str]) -> Settings:
    """What the plan means, of the settings to search; "auto" follows the number of rows."""
    own = {name: plan.model[name] for name in ("hidden", "numeric", "epochs") if name in plan.model}
    options = NetworkOptions(**own, **(plan.model.get("training_options") or {}))
    known: dict[str, Any] = {name: getattr(options, name, None) for name in SETTINGS}
    if "likelihood" in names:
        known["likelihood"] = plan.regressor().likelihood
    return {name: text_of(name, known[name]) for name in names}


def check_limits(
    plan: Plan, budget: str | float | None, trials: int | None, search: Any
) -> tuple[float | None, int | None, dict[str, Any]]:
    """Seconds and trials of a search, None for no limit, and `check_search`; a `ConfigError` for a bad value."""
    number = None if trials is None else check_integer("trials", trials, 1)
    seconds = None if budget is None else parse_duration(budget, "budget")
    wanted = check_search(plan, search)
    if find_spec("optuna") is None:
        raise ConfigError("ddpn[tune] is not installed: pip install 'ddpn[tune]'")
    return parse_duration(BUDGET) if seconds is None and number is None else seconds, number, wanted
