"""The connection to a Ray cluster. Other files of this package get Ray from here."""

import importlib.util
import os
import socket
import warnings
from pathlib import Path
from typing import Any

from ddpn.runtime.errors import ConfigError
from ddpn.runtime.extras import import_extra

#: Where ddpn is imported from.
_ROOT = Path(importlib.util.find_spec("ddpn").submodule_search_locations[0]).parent  # type: ignore[union-attr,index]


#: Seconds that the head of a cluster has to answer.
_PATIENCE = 10.0
#: Settings of Ray, unless the user has others: a job without a GPU sees none, and pages on the death of a node are not
#: printed among the output of a program, as what was lost is repeated.
_SETTINGS = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "Raylet is terminated|worker died or was killed|marked dead|will be retried",
}


def import_ray() -> Any:
    """The module `ray`, or a `ConfigError` that names the extra."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    return import_extra("ray", "cluster")


def import_train() -> tuple[Any, Any]:
    """The modules `ray.train` and `ray.train.torch`."""
    import_ray()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on the inner workings of Ray
        return import_extra("ray.train", "cluster"), import_extra("ray.train.torch", "cluster")


def import_data() -> Any:
    """The module `ray.data`."""
    import_ray()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_extra("ray.data.exceptions", "cluster")
        return import_extra("ray.data", "cluster")


def connect(address: str = "auto") -> bool:
    """Connect to a cluster, unless this process is connected already; whether it was this call that connected.

    Parameters
    ----------
    address : str
        "auto" for the cluster that this machine belongs to (or that of RAY_ADDRESS), HOST:PORT, ray://HOST:PORT, or
        "local" for one that is started here and ends with this process.
    """
    ray = import_ray()
    if ray.is_initialized():
        return False
    _check_reachable(os.environ.get("RAY_ADDRESS", address) if address == "auto" else address)
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False, "runtime_env": environment()}
    if address == "local":
        options |= {"include_dashboard": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        if address == "auto":
            raise ConfigError(
                "No Ray cluster was found on this machine. Start one with `ray start --head`, or give an address."
            ) from error
        raise _unreachable(address) from error
    return True


def _check_reachable(address: str) -> None:
    """Raise a `ConfigError` if nothing answers at HOST:PORT: Ray would wait for minutes, and end the process."""
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
    except (OSError, ValueError) as error:
        raise _unreachable(address) from error


def _unreachable(address: str) -> ConfigError:
    how = (
        "Give HOST:PORT, as `ray start --head` prints it, and set RAY_AUTH_MODE=token if the cluster asks for a token."
    )
    return ConfigError(f"No Ray cluster can be reached at {address!r}. {how}")


def environment() -> dict[str, Any]:
    """What workers need to find ddpn: nothing where it is installed, PYTHONPATH where that leads to it here."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    uses_path = any(path and Path(path).resolve() == _ROOT for path in paths)
    return {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}} if uses_path else {}


def disconnect() -> None:
    """End the connection; jobs that still run end with it."""
    import_ray().shutdown()
