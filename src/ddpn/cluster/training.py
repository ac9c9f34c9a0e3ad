"""One large training on several nodes of a Ray cluster, by Ray Train: processes share each batch and add gradients."""

import shutil
import tempfile
import warnings
from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from torch import Tensor

from ddpn.cluster.connection import connect, disconnect, environment, import_ray, import_train
from ddpn.executors import JobError
from ddpn.executors.job import RETRIES
from ddpn.model import CountModel
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.threads import limit_threads
from ddpn.runtime.validation import check_integer
from ddpn.tensor_files import read, write
from ddpn.training import History, Runtime, TrainingConfig, fit
from ddpn.training.batches import Source
from ddpn.training.checkpointing import check_identity, data_identity
from ddpn.training.monitoring import EpochReport, monitored
from ddpn.training.trainable import load_trained_tensors, trained_tensors

#: Files of a checkpoint of Ray Train: the state of the training, and in the last one its result.
_STATE, _MODEL = "training.state", "model.safetensors"


def fit_on_ray(
    make: Callable[[int], CountModel],
    train: Source,
    validation: Source | None,
    config: TrainingConfig,
    *,
    storage: str | PathLike[str],
    name: str,
    processes: int = 2,
    cpus: int = 1,
    gpus: bool = False,
    address: str = "auto",
    retries: int = RETRIES,
    start: Tensor | None = None,
    save_seconds: float = 30.0,
) -> tuple[CountModel, History]:
    """Train a model in several processes of a Ray cluster, as `ddpn.training.fit` does in one.

    Processes share each batch, so the weights are those of one process up to the rounding of sums. If a process or its
    node dies, all begin again from the last checkpoint. A program that is killed and started again with the same
    `storage` and `name` continues from there, too, or has the result at once if the training had ended.

    Parameters
    ----------
    make : callable
        Builds a model with the given number of members; weights are drawn from the seeds of `config`.
    train, validation, config
        As for `ddpn.training.fit`.
    storage : path
        A folder that all nodes share, or the URI of one in the cloud, such as s3://bucket/folder.
    name : str
        The name of the training, a folder in `storage`.
    processes : int
        How many share the training.
    cpus : int
        CPU cores of a process; it has as many threads.
    gpus : bool
        Whether each process has a GPU.
    address : str
        The cluster, as for `RayExecutor`.
    retries : int
        How often the training is resumed after a fault.
    start : Tensor, optional
        The bias of fresh weights, see `CountModel.reset`.
    save_seconds : float
        Seconds between two checkpoints.

    Returns
    -------
    tuple of CountModel and History
        The model with each member's best weights, on the CPU, and how the training went.
    """
    check_integer("processes", processes, minimum=1)
    check_integer("retries", retries, minimum=0)
    if not name or "/" in name:
        raise ConfigError(f"name must be the name of a folder, got {name!r}.")
    ray, is_ours = import_ray(), connect(address)
    api, torch_api = import_train()
    try:
        given = {
            "data": ray.put((train, validation)), "make": make, "config": config, "start": start, "cpus": cpus,
            "gpus": gpus, "save_seconds": save_seconds,
        }  # fmt: skip
        trainer = torch_api.TorchTrainer(
            _train,
            train_loop_config=given,
            torch_config=torch_api.TorchConfig(backend="nccl" if gpus else "gloo"),
            scaling_config=api.ScalingConfig(
                num_workers=processes, use_gpu=gpus, resources_per_worker={"CPU": cpus} | ({"GPU": 1} if gpus else {})
            ),
            run_config=api.RunConfig(
                name=name,
                storage_path=_location(storage),
                failure_config=api.FailureConfig(max_failures=retries),
                checkpoint_config=api.CheckpointConfig(num_to_keep=2),
                worker_runtime_env=environment() or None,
            ),
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # on the inner workings of Ray
                checkpoint = trainer.fit().checkpoint
        except api.TrainingFailedError as error:
            last = (str(error).strip().splitlines() or ["no message"])[-1].rstrip(".")
            times = f" {retries + 1} times, the last time" if retries else ""
            raise JobError(f"The training {name} failed{times}: {last}.") from error
        with checkpoint.as_directory() as folder:
            return _result(make(config.members), _identity(train, validation, config), Path(folder) / _MODEL)
    finally:
        if is_ours:
            disconnect()


def _location(storage: str | PathLike[str]) -> str:
    found = fspath(storage)
    return found if "://" in found else str(Path(found).absolute())


def _identity(train: Source, validation: Source | None, config: TrainingConfig) -> dict[str, Any]:
    """What the result of another training that had the same name differs by."""
    return {"config": config.as_dict(), **data_identity(train, validation)}


def _result(model: CountModel, identity: dict[str, Any], path: Path) -> tuple[CountModel, History]:
    tensors, about = read(path)
    check_identity(path, about, identity)
    load_trained_tensors(model, tensors, path)
    return model.eval(), History(**about["history"])


def _train(given: dict[str, Any]) -> None:
    """What every process runs."""
    ray = import_ray()
    api, _ = import_train()
    limit_threads(given["cpus"])
    train, validation = ray.get(given["data"])
    with tempfile.TemporaryDirectory(prefix="ddpn-") as place:
        state, found = Path(place) / _STATE, api.get_checkpoint()
        if found is not None:
            with found.as_directory() as folder:
                if (Path(folder) / _MODEL).exists():
                    return  # it had ended, and the program that waited for it was killed
                shutil.copyfile(Path(folder) / _STATE, state)
        config: TrainingConfig = given["config"]
        runtime = Runtime("cuda" if given["gpus"] else "cpu", config.precision)
        model = given["make"](config.members)
        model.reset(config.seeds, given["start"])
        reports = _Reports(api, state, runtime.is_main)
        with monitored(reports.after_epoch):
            history = fit(
                model, train, validation, config, runtime=runtime, checkpoint=state, save_seconds=given["save_seconds"]
            )
        reports.after_training(model, _identity(train, validation, config) | {"history": history.as_dict()})


class _Reports:
    """What processes report to Ray Train: all of them after every epoch, and one of them a new checkpoint with it."""

    def __init__(self, api: Any, state: Path, is_main: bool) -> None:
        self._api, self._state, self._is_main = api, state, is_main
        self._seen = self._time()

    def _time(self) -> int:
        return self._state.stat().st_mtime_ns if self._state.exists() else 0

    def after_epoch(self, report: EpochReport) -> None:
        is_new, self._seen = self._time() != self._seen, self._time()
        self._send({"epoch": report.epoch}, self._state if is_new else None)

    def after_training(self, model: CountModel, about: dict[str, Any]) -> None:
        path = self._state.with_name(_MODEL)
        if self._is_main:
            write(path, trained_tensors(model), about)
        self._send({"epoch": len(about["history"]["epochs"])}, path)

    def _send(self, numbers: dict[str, Any], file: Path | None) -> None:
        if not self._is_main or file is None:
            self._api.report(numbers)
            return
        with tempfile.TemporaryDirectory(prefix="ddpn-") as place:
            shutil.copyfile(file, Path(place) / file.name)
            self._api.report(numbers, checkpoint=self._api.Checkpoint.from_directory(place))
