"""Settings of a training run (`TrainingConfig`), and the device and processes on which it runs (`Runtime`).

Multiple processes are started by torchrun and communicate through accelerate.
"""

import atexit
import math
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ddpn.networks.optimizer_options import OptimizerOptions
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.validation import check_choice, check_integer
from ddpn.storage.contents import JsonObject
from ddpn.storage.files import write_bytes


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(OptimizerOptions):
    """Settings of one training run. They are stored in checkpoints.

    Parameters
    ----------
    epochs : int
        The number of passes over the training rows.
    batch_size : int
        The number of rows per step.
    lr : float
        The highest learning rate.
    weight_decay : float
        Decoupled weight decay, as in AdamW.
    warmup : float
        The share of all steps in which the learning rate rises from near 0 to `lr`.
    schedule : {"cosine", "constant"}
        Whether the learning rate then falls along a cosine or stays constant.
    clip : float or None
        The largest gradient norm of each network. Longer gradients are scaled down. None for no limit.
    ema : float
        If above 0, weights are averaged over about 1 / (1 - ema) steps. Validation and predictions use the average.
    score : {"nll", "crps", "loss"}
        The validation score that selects epochs: each network keeps the weights of its best epoch. "loss" is the
        training objective, as in the paper. If the likelihood has an option `beta` above 0, this is not a proper score.
    patience : int, optional
        A network stops if its validation score has not improved for this many epochs. None: it trains for all epochs.
    precision : {"float32", "bf16"}
        The precision in which networks are computed.
    accumulate : int
        The number of parts into which each batch is split to save memory. Their gradients are added up.
    seeds : tuple of int
        One seed per network.

    Examples
    --------
    >>> TrainingConfig(lr=1e-3, seeds=(0, 1)).n_networks
    2
    """

    epochs: int = 100
    batch_size: int = 256
    score: Literal["nll", "crps", "loss"] = "nll"
    accumulate: int = 1
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("epochs", "batch_size", "accumulate"):
            object.__setattr__(self, name, check_integer(name, getattr(self, name), minimum=1))
        check_choice("score", self.score, ("nll", "crps", "loss"))
        seeds: Any = self.seeds
        if not isinstance(seeds, tuple) or not seeds or any(type(s) is not int or not 0 <= s < 2**62 for s in seeds):
            raise ConfigError(f"seeds must be a tuple of one integer of at least 0 per network, got {seeds!r}.")

    @property
    def n_networks(self) -> int:
        """The number of networks."""
        return len(self.seeds)

    def as_dict(self) -> JsonObject:
        """Return the settings as a dictionary that can be written as JSON."""
        return asdict(self) | {"seeds": list(self.seeds)}

    def lr_at(self, step: int, steps: int) -> float:
        """Return the learning rate of a step.

        Parameters
        ----------
        step : int
            The index of the step, from 0.
        steps : int
            The total number of steps.
        """
        warm = math.ceil(self.warmup * steps)
        if step < warm:
            return self.lr * (step + 1) / (warm + 1)
        if self.schedule == "constant":
            return self.lr
        return self.lr * 0.5 * (1.0 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


# Device, precision and processes --------------------------------------------------------------------------------------


class WorkerShard(NamedTuple):
    """The rows of each batch that one process computes: every `world_size`-th row, starting at row `rank`.

    As in torch.distributed, `rank` is the index of the process, and `world_size` is the number of processes.
    """

    rank: int
    world_size: int


#: The share of a single process: all rows of the batch.
WHOLE_BATCH = WorkerShard(rank=0, world_size=1)


class Runtime:
    """The device on which networks are trained, and the processes among which batches are divided.

    Several processes are started by torchrun. They add up their gradients, so they compute the same result as one
    process. A single process has no overhead.

    Parameters
    ----------
    device : torch.device or str
        "auto" (a GPU if there is one), "cpu", "cuda" or a torch device.
    """

    def __init__(self, device: torch.device | str = "auto") -> None:
        self._accelerator: Any = None
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            accelerator = self._accelerator = _make_accelerator(device)
            self.device, self.shard = (
                accelerator.device,
                WorkerShard(accelerator.process_index, accelerator.num_processes),
            )
        else:
            self.device, self.shard = pick_device(device), WHOLE_BATCH

    @property
    def is_main(self) -> bool:
        """True for the main process, which alone prints and writes files."""
        return self.shard.rank == 0

    def wait(self) -> None:
        """Wait until all processes have called this method."""
        if self._accelerator is not None:
            self._accelerator.wait_for_everyone()

    def autocast(self, precision: str) -> AbstractContextManager:
        """Return a context manager in which networks are computed in this precision."""
        if precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def sum_over_processes(self, values: Tensor) -> None:
        """Replace a tensor in place by its sum over all processes. With a single process, it stays unchanged."""
        if self._accelerator is not None:
            values.copy_(self._accelerator.reduce(values, reduction="sum"))

    def broadcast_file(self, path: Path) -> None:
        """Copy the file at `path` from the main process to all other processes.

        If the main process has no such file, the other processes delete theirs. With a single process, nothing happens.
        """
        if self._accelerator is None:
            return
        contents = [path.read_bytes() if self.is_main and path.exists() else None]
        import_extra("accelerate.utils", "distributed").broadcast_object_list(contents)
        content = contents[0]
        if self.is_main:
            return
        if content is None:
            path.unlink(missing_ok=True)
        else:
            write_bytes(path, content)


def _make_accelerator(device: torch.device | str) -> Any:
    accelerate = import_extra("accelerate", "distributed")
    if not torch.distributed.is_initialized():
        atexit.register(_leave_process_group)
    is_cpu = pick_device(device).type == "cpu"
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if restarts != "0" and not torch.distributed.is_initialized():
        # After a restart by torchrun, the store still has the addresses of processes that ended.
        store, rank, world = next(torch.distributed.rendezvous("env://"))
        fresh = torch.distributed.PrefixStore(f"restart {restarts}", store)
        backend = "gloo" if is_cpu else "nccl"
        torch.distributed.init_process_group(backend, store=fresh, rank=rank, world_size=world)
    # No precision is passed, because it would apply to the whole program; every training has its own.
    return accelerate.Accelerator(cpu=is_cpu)


def _leave_process_group() -> None:
    """Destroy torch's process group when the program ends; otherwise a thread that still uses it would abort."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def pick_device(device: torch.device | str) -> torch.device:
    """Return the torch device with this name, where "auto" means a GPU if there is one, else the CPU."""
    if str(device) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        parsed = torch.device(device)
    except RuntimeError as error:
        must = "be auto, cpu, cuda or another device of torch"
        raise ConfigError(argument="device", must=must, got=repr(str(device))) from error
    if parsed.type == "cuda" and not torch.cuda.is_available():
        must = "be auto or cpu, because torch finds no CUDA GPU on this machine"
        raise ConfigError(argument="device", must=must, got=repr(str(device)))
    return parsed
