"""When a search ends, and checks of what a user asks of it. Imports no torch."""

from importlib.util import find_spec
from typing import Any, NamedTuple

from ddpn.runtime.durations import parse_duration
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_integer
from ddpn.workflow.plan import Plan
from ddpn.workflow.tuning.space import check_search, read_search

#: What a search may take by default.
BUDGET = "10m"


class Limit(NamedTuple):
    """When a search ends: after so many seconds, refit included, or so many trials; None for no limit."""

    seconds: float | None = None
    trials: int | None = None


def check_limits(
    plan: Plan, budget: str | float | None, trials: int | None, search: Any
) -> tuple[Limit, dict[str, Any]]:
    """The limit, and the settings to search with what the user said about each; a `ConfigError` for a bad value.

    Parameters
    ----------
    plan : Plan
        What to fit.
    budget, trials, search
        As for `tune`.
    """
    number = None if trials is None else check_integer("trials", trials, 1)
    seconds = None if budget is None else parse_duration(budget, "budget")
    wanted = check_search(plan, read_search(search))
    if find_spec("optuna") is None:
        raise ConfigError("ddpn[tune] is not installed: pip install 'ddpn[tune]'")
    return Limit(parse_duration(BUDGET) if seconds is None and number is None else seconds, number), wanted
