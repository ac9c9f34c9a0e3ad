"""`RayCluster`: a Ray cluster on which jobs run. Only this module imports Ray, and only on first use."""

import importlib.util
import os
import socket
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from ddpn.runtime.errors import ConfigError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.validation import check_integer, is_number

#: Seconds that the head of a cluster has to answer.
_CONNECT_SECONDS = 10.0
#: Environment variables for Ray, unless the user has set them. Jobs that ask for no GPU see none. Ray's long messages
#: about lost nodes are suppressed, because lost jobs are repeated anyway.
_SETTINGS = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "Raylet is terminated|worker died or was killed|marked dead|will be retried",
}


def import_ray() -> ModuleType:
    """Import Ray; if it is not installed, raise a `ConfigError` that names the extra to install."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they concern Ray's internals
        return import_extra("ray", "cluster")


@dataclass(frozen=True)
class RayCluster:
    """A Ray cluster to pass as `n_jobs` to estimators and to `ddpn.workflow.tuning.tune`; needs the extra `cluster`.

    The connection to Ray is opened on first use. It stays open until the program ends or calls `ray.shutdown()`.

    Parameters
    ----------
    address : str
        The address of the cluster, HOST:PORT or ray://HOST:PORT. "auto" means the address in the environment variable
        RAY_ADDRESS or, if it is not set, the cluster that this machine belongs to. "local" starts a cluster on this
        machine, which ends with the connection.
    cpus : int
        CPU cores per job, which is also its number of threads.
    gpus : float
        GPUs per job. With 0.25, four jobs share one GPU.
    retries : int
        How often Ray repeats a failed job. A job is repeated if its worker or node is lost, or if it raises an error
        other than a `DDPNError`.

    Examples
    --------
    >>> RayCluster("10.0.0.1:6379", gpus=0.25).cpus
    1
    """

    address: str = "auto"
    cpus: int = 1
    gpus: float = 0.0
    retries: int = 3

    def __post_init__(self) -> None:
        check_integer("cpus", self.cpus, 1)
        check_integer("retries", self.retries)
        if not is_number(self.gpus) or self.gpus < 0 or (self.gpus > 1 and self.gpus != int(self.gpus)):
            raise ConfigError(argument="gpus", must="be a share of a GPU or an integer", got=repr(self.gpus))

    def connect(self) -> ModuleType:
        """Connect to the cluster and return the module `ray`.

        Raise a `ConfigError` if there is no cluster, or if it has too few CPU cores or GPUs for a job.
        """
        ray = import_ray()
        if not ray.is_initialized():
            _connect_to_ray(ray, self.address)
        resources = ray.cluster_resources()
        if resources.get("CPU", 0.0) < self.cpus or resources.get("GPU", 0.0) < self.gpus:
            has = f"{resources.get('CPU', 0.0):g} CPU cores and {resources.get('GPU', 0.0):g} GPUs"
            raise ConfigError(f"A job needs {self.cpus} CPU cores and {self.gpus:g} GPUs, but the cluster has {has}.")
        return ray

    @property
    def slots(self) -> int:
        """The number of jobs that can run on the cluster at the same time."""
        resources = self.connect().cluster_resources()
        by_gpu = resources.get("GPU", 0.0) / self.gpus if self.gpus else float("inf")
        return max(1, int(min(resources.get("CPU", 0.0) // self.cpus, by_gpu)))


def _connect_to_ray(ray: ModuleType, address: str) -> None:
    """Connect to the cluster at `address` and suppress Ray's messages."""
    target = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    options: dict[str, object] = {
        "logging_level": "ERROR",
        "log_to_driver": False,
        "runtime_env": _make_worker_environment(),
    }
    if address == "local":
        options["include_dashboard"] = False
    try:
        if target not in ("auto", "local"):  # if nothing answers, Ray would wait for minutes and then end the process
            host, _, port = target.removeprefix("ray://").rpartition(":")
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        if target == "auto":
            raise ConfigError(
                "No Ray cluster is running on this machine. Start one with `ray start --head`, or give an address."
            ) from error
        raise ConfigError(
            f"No Ray cluster can be reached at {target!r}. Give HOST:PORT, as `ray start --head` prints it, and set "
            "RAY_AUTH_MODE=token if the cluster asks for a token."
        ) from error


def _make_worker_environment() -> dict[str, dict[str, str]]:
    """Return the environment of workers, so that they can import ddpn: a dict for Ray's option `runtime_env`.

    It has PYTHONPATH if this process found ddpn there; otherwise it is empty.
    """
    root = Path(importlib.util.find_spec("ddpn").submodule_search_locations[0]).parent  # type: ignore[union-attr,index]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    uses_path = any(path and Path(path).resolve() == root for path in paths)
    return {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}} if uses_path else {}
