"""How and where a training runs: `TrainingConfig`, which is written into every checkpoint, and `Runtime`.

Several processes run under torchrun by accelerate.
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
    """Settings of one training.

    Parameters
    ----------
    epochs : int
        Passes over the training rows.
    batch_size : int
        Rows per step.
    lr : float
        The highest learning rate.
    weight_decay : float
        Decoupled weight decay, as in AdamW.
    warmup : float
        The share of all steps over which the learning rate rises.
    schedule : {"cosine", "constant"}
        Whether the learning rate then falls along a cosine or stays constant.
    clip : float or None
        Bounds each network's gradient norm.
    ema : float
        Above 0, weights are averaged over about 1 / (1 - ema) steps; validation and predictions use the average.
    score : {"nll", "crps", "loss"}
        The validation score that selects epochs: each network keeps the weights of its best epoch. "loss" is the
        training objective, as in the paper; where it is weighted by a beta it is not a proper score.
    patience : int, optional
        A network that has not improved for so many epochs has stopped.
    precision : {"float32", "bf16"}
        What the networks are computed in.
    accumulate : int
        Splits a batch into so many parts that are computed one after the other.
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
        """Number of networks."""
        return len(self.seeds)

    def as_dict(self) -> JsonObject:
        """Return plain values, for a manifest."""
        return asdict(self) | {"seeds": list(self.seeds)}

    def lr_at(self, step: int, steps: int) -> float:
        """Compute the learning rate of a step.

        Parameters
        ----------
        step : int
            The step, counted from 0.
        steps : int
            The number of steps in all.
        """
        warm = math.ceil(self.warmup * steps)
        if step < warm:
            return self.lr * (step + 1) / (warm + 1)
        if self.schedule == "constant":
            return self.lr
        return self.lr * 0.5 * (1.0 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


# Device, precision and processes --------------------------------------------------------------------------------------


class WorkerShard(NamedTuple):
    """The part of every batch that this process computes: every `world`-th row from `rank` on."""

    rank: int
    world: int


#: The share of a single process.
WHOLE_BATCH = WorkerShard(rank=0, world=1)


class Runtime:
    """A device, and the processes that share a training; a single process has no overhead.

    Processes share each batch and add their gradients, so that several compute what one would.

    Parameters
    ----------
    device : torch.device or str
        "auto" (a GPU if there is one), "cpu", "cuda" or a torch device.
    """

    def __init__(self, device: torch.device | str = "auto") -> None:
        self._accelerator: Any = None
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            accelerator = self._accelerator = _accelerator(device)
            self.device, self.share = (
                accelerator.device,
                WorkerShard(accelerator.process_index, accelerator.num_processes),
            )
        else:
            self.device, self.share = pick_device(device), WHOLE_BATCH

    @property
    def is_main(self) -> bool:
        """True for the process that prints and writes."""
        return self.share.rank == 0

    def wait(self) -> None:
        """Wait until every process calls this."""
        if self._accelerator is not None:
            self._accelerator.wait_for_everyone()

    def autocast(self, precision: str) -> AbstractContextManager:
        """Return the context for a network's forward pass."""
        if precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def add_up(self, values: Tensor) -> None:
        """Replace `values` by their sum over all processes."""
        if self._accelerator is not None:
            values.copy_(self._accelerator.reduce(values, reduction="sum"))

    def spread_file(self, path: Path) -> None:
        """Copy the main process's file at `path` to the other processes, or delete it there if there is none."""
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


def _accelerator(device: torch.device | str) -> Any:
    accelerate = import_extra("accelerate", "distributed")
    if not torch.distributed.is_initialized():
        atexit.register(_leave)
    is_cpu = pick_device(device).type == "cpu"
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if restarts != "0" and not torch.distributed.is_initialized():
        # After a restart by torchrun the store has the addresses of processes that are gone.
        store, rank, world = next(torch.distributed.rendezvous("env://"))
        fresh = torch.distributed.PrefixStore(f"restart {restarts}", store)
        backend = "gloo" if is_cpu else "nccl"
        torch.distributed.init_process_group(backend, store=fresh, rank=rank, world_size=world)
    # Without a precision, which would be that of the whole program: every training has its own.
    return accelerate.Accelerator(cpu=is_cpu)


def _leave() -> None:
    """Leave the process group before this process ends: a thread that still listens to it at exit aborts."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def pick_device(device: torch.device | str) -> torch.device:
    """Return the torch device of a name; "auto" is a GPU if there is one."""
    if str(device) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        parsed = torch.device(device)
    except RuntimeError as error:
        must = "be auto, cpu, cuda or another device of torch"
        raise ConfigError(argument="device", must=must, got=repr(str(device))) from error
    if parsed.type == "cuda" and not torch.cuda.is_available():
        must = "be auto or cpu, as torch finds no CUDA GPU here"
        raise ConfigError(argument="device", must=must, got=repr(str(device)))
    return parsed
