"""`RayCluster`: which Ray cluster to use, and jobs as tasks of it. Ray is imported on use, by this module only."""

import importlib.util
import os
import pickle
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpn.runtime.errors import ConfigError, DDPNError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.jobs import Job, Result, failed, reason_of
from ddpn.runtime.threads import limit_threads

#: Seconds that the head of a cluster has to answer.
_PATIENCE = 10.0
#: Settings of Ray, unless the user has others: a job without a GPU sees none, and pages on the death of a node are not
#: printed among the output of a program, as what was lost is repeated.
_SETTINGS = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "Raylet is terminated|worker died or was killed|marked dead|will be retried",
}


def import_ray() -> Any:
    """Ray, or a `ConfigError` that names the extra."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on the inner workings of Ray
        return import_extra("ray", "cluster")


@dataclass(frozen=True)
class RayCluster:
    """A Ray cluster, as `n_jobs` of estimators and of `ddpn.workflow.tuning.tune`; needs the extra `cluster`.

    The connection is made on first use and ends with the program, or by `ray.shutdown()`.

    Parameters
    ----------
    address : str
        "auto" for the cluster that this machine belongs to (or that of RAY_ADDRESS), HOST:PORT, ray://HOST:PORT, or
        "local" for one that is started here and ends with the connection.
    cpus : int
        CPU cores of a job; it has as many threads.
    gpus : float
        GPUs of a job. With 0.25, four jobs share one.
    retries : int
        How often Ray repeats a job whose worker or node is lost, or that raises an error that is not one of ddpn's own.

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
        for name, least in (("cpus", 1), ("retries", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ConfigError(argument=name, must=f"be an integer of at least {least}", got=repr(value))
        is_number = isinstance(self.gpus, int | float)
        if not is_number or self.gpus < 0 or (self.gpus > 1 and self.gpus != int(self.gpus)):
            raise ConfigError(argument="gpus", must="be a share of a GPU or an integer", got=repr(self.gpus))

    def connect(self) -> Any:
        """The module `ray`, connected to the cluster; a `ConfigError` if there is none or no job fits into it."""
        ray = import_ray()
        if not ray.is_initialized():
            _init(ray, self.address)
        found = ray.cluster_resources()
        if found.get("CPU", 0.0) < self.cpus or found.get("GPU", 0.0) < self.gpus:
            has = f"{found.get('CPU', 0.0):g} CPU cores and {found.get('GPU', 0.0):g} GPUs"
            raise ConfigError(f"A job needs {self.cpus} CPU cores and {self.gpus:g} GPUs, but the cluster has {has}.")
        return ray

    @property
    def slots(self) -> int:
        """How many jobs the cluster has room for at present."""
        found = self.connect().cluster_resources()
        by_gpu = found.get("GPU", 0.0) / self.gpus if self.gpus else float("inf")
        return max(1, int(min(found.get("CPU", 0.0) // self.cpus, by_gpu)))


def _init(ray: Any, address: str) -> None:
    """Connect, quietly."""
    _check_reachable(os.environ.get("RAY_ADDRESS", address) if address == "auto" else address)
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False, "runtime_env": _environment()}
    if address == "local":
        options["include_dashboard"] = False
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


def _environment() -> dict[str, Any]:
    """What workers need to find ddpn: nothing where it is installed, PYTHONPATH where that leads to it here."""
    root = Path(importlib.util.find_spec("ddpn").submodule_search_locations[0]).parent  # type: ignore[union-attr,index]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    uses_path = any(path and Path(path).resolve() == root for path in paths)
    return {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}} if uses_path else {}


def run_on(
    cluster: RayCluster, jobs: Sequence[Job], shared: Any, on_start: Callable[[Job], object]
) -> Iterator[Result]:
    """Jobs as tasks of Ray, which repeats those whose worker or node dies, and those that raise unexpected errors."""
    ray = cluster.connect()
    # Spread, as Ray fills a node to one half first.
    task = ray.remote(
        num_cpus=cluster.cpus, num_gpus=cluster.gpus, max_retries=cluster.retries, retry_exceptions=True,
        scheduling_strategy="SPREAD",
    )(_on_node)  # fmt: skip
    # As bytes: arrays that Ray maps from its store cannot be written to, and torch wants to.
    content = ray.put(pickle.dumps(shared, protocol=pickle.HIGHEST_PROTOCOL))
    running = {task.remote(job, content, cluster.cpus): job for job in jobs}
    try:
        for job in jobs:
            on_start(job)
        while running:
            for reference in ray.wait([*running], timeout=1.0)[0]:
                yield _received(ray, reference, running.pop(reference), cluster.retries)
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def _on_node(job: Job, content: bytes, cpus: int) -> tuple[Mapping[str, bytes] | None, DDPNError | None]:
    """What a worker runs. Errors of ddpn are returned: they would come again, and Ray repeats what raises."""
    limit_threads(cpus)
    try:
        return dict(job.work(pickle.loads(content), *job.arguments)), None
    except DDPNError as error:
        return None, error


def _received(ray: Any, reference: Any, job: Job, retries: int) -> Result:
    """The result of a task that is over."""
    errors, times = ray.exceptions, f" {retries + 1} times, the last time: " if retries else ": "
    try:
        return Result(job, *ray.get(reference))
    except errors.RayTaskError as error:
        if isinstance(error.cause, ModuleNotFoundError):
            what = f"A node of the cluster has no module {error.cause.name}"
            return Result(job, None, ConfigError(f"{what}. Install the same packages on every node."))
        return Result(job, None, failed(job, times + reason_of(error.cause)), str(error))
    except errors.RuntimeEnvSetupError as error:
        return Result(job, None, ConfigError(f"A node of the cluster cannot be prepared: {reason_of(error)}"))
    except errors.OutOfMemoryError:
        reason = "its node was short of memory. Give each job more CPU cores, so that fewer run at once"
    except errors.RayError as error:
        reason = f"its worker or node was lost ({type(error).__name__})"
    return Result(job, None, failed(job, times + reason))
