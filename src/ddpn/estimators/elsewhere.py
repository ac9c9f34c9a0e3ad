"""Where an estimator fits its members, if not in this process."""

from pathlib import Path
from typing import Any

from ddpn.estimators.saving import plain_options
from ddpn.executors import Executor, ResultStore
from ddpn.members.fit_jobs import MemberFits
from ddpn.members.portfolio import Elsewhere
from ddpn.runtime.errors import ConfigError


def elsewhere(model: Any, checkpoint: Path | None, not_saved: tuple[str, ...]) -> Elsewhere | None:
    """How the members of an estimator are fitted on its executor; None if it has none.

    Parameters
    ----------
    model : CountRegressor
        The estimator.
    checkpoint : Path or None
        Its checkpoint: finished fits are kept in a folder beside it, whose name ends with .jobs.
    not_saved : tuple of str
        Arguments that fits do not depend on.
    """
    executor = model.executor
    if executor is None:
        return None
    if not isinstance(executor, Executor):
        raise ConfigError(f"executor must be an Executor such as LocalProcesses(), got {executor!r}.")
    store = None if checkpoint is None else ResultStore(checkpoint.with_name(f"{checkpoint.name}.jobs"))
    about = plain_options(model, (*not_saved, "device"))
    return lambda folds, seed: MemberFits(executor, folds, seed, store, about, model.on_step)
