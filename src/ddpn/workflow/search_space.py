"""The settings that `ddpn tune` can search, with their ranges or choices. Imports no torch."""

from collections.abc import Mapping, Sequence

from ddpn.members.network_options import ENCODINGS, NetworkOptions
from ddpn.networks.heads import DEFAULT_LIKELIHOOD
from ddpn.runtime.deadlines import parse_duration
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.validation import check_integer, check_keys
from ddpn.storage.contents import JsonObject
from ddpn.workflow.config import FitConfig

#: The default time budget of a search.
BUDGET = "10m"
_DEFAULTS = NetworkOptions()
#: The settings that can be searched, with their choices or, for `RANGES`, their limits. "64-64" stands for the widths
#: (64, 64), and "double_poisson*3" for three components of this likelihood.
SETTINGS: dict[str, tuple[float | int | str, ...]] = {
    "lr": (0.2 * _DEFAULTS.lr, 4.0 * _DEFAULTS.lr),
    "weight_decay": (0.05 * _DEFAULTS.weight_decay, 5.0 * _DEFAULTS.weight_decay),
    "hidden": ("auto", "32", "64-64", "128-128", "256-256", "128-128-128-64"),
    "batch_size": ("auto", 32, 64, 128, 256, 512),
    "epochs": ("auto", 10, 20, 40, 80, 160),
    "numeric": ("auto", *ENCODINGS),
    "likelihood": ("mixed", "double_poisson", "negative_binomial", "double_poisson*3", "negative_binomial*2"),
}
#: Settings that have a range, which is searched on a logarithmic scale.
RANGES = ("lr", "weight_decay")
#: Settings that belong to `training_options`.
_TRAINING = ("lr", "weight_decay", "batch_size")

#: Values of settings by name.
Settings = dict[str, float | int | str]


def check_search(
    plan: FitConfig, budget: str | float | None, trials: int | None, search: str | Sequence[str] | None
) -> tuple[float | None, int | None, list[str]]:
    """Check the options of a search; raise a `ConfigError` if one is invalid.

    `search` is a list of settings to search, or a string of their names separated by commas. By default, all settings
    are searched that have no value in the plan. The results are:

    - the time limit in seconds, or None
    - the number of trials, or None
    - the settings to search
    """
    number = None if trials is None else check_integer("trials", trials, 1)
    seconds = None if budget is None else parse_duration(budget, "budget")
    if seconds is None and number is None:
        seconds = parse_duration(BUDGET)
    fixed = {*plan.estimator_options, *(plan.training_options or {})}
    if plan.estimator_options.get("head_options"):
        fixed.add("likelihood")
    if search is None:
        search = [name for name in SETTINGS if name not in fixed]
        if not search:
            raise ConfigError("Nothing is left to search, because every setting has a value. Leave out some values.")
    names = [name.strip() for name in search.split(",") if name.strip()] if isinstance(search, str) else search
    if not isinstance(names, list | tuple) or not names:
        must = f"name one or more of {', '.join(SETTINGS)}"
        raise ConfigError(argument="search", must=must, got=f"{search!r:.60}")
    check_keys(names, SETTINGS, "search")
    for name in names:
        if name in fixed:
            raise ConfigError("has a value, but is also in `search`", argument=name, remedy="Leave out one of them.")
    import_extra("optuna", "tune")
    return seconds, number, list(dict.fromkeys(names))


def default_settings(names: Sequence[str]) -> Settings:
    """Return the default values of some settings, as `ddpn fit` uses them.

    The value "auto" means that the setting depends on the number of rows.
    """
    return {name: getattr(_DEFAULTS, name, DEFAULT_LIKELIHOOD) for name in names}


def apply_settings(plan: FitConfig, settings: Mapping[str, float | int | str]) -> FitConfig:
    """Return a copy of a plan with these settings. The plan must not have a value for any of them."""
    options, training = JsonObject(), dict(plan.training_options or {})
    for name, value in settings.items():
        if name in _TRAINING:
            training[name] = value
        elif name == "hidden" and value != "auto":
            options[name] = tuple(map(int, str(value).split("-")))
        elif name == "likelihood":
            options[name], _, components = str(value).partition("*")
            options |= {"head_options": {"components": int(components)}} if components else {}
        else:
            options[name] = value
    return plan.replace(**options, training_options=training or None)
