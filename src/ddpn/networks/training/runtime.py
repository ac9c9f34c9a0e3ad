"""`Runtime`: the device, precision and processes of a training; several processes run under torchrun by accelerate."""

import atexit
import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddpn.networks.training.config import PRECISIONS
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.validation import check_choice
from ddpn.storage.files import write_bytes


class Share(NamedTuple):
    """The part of every batch that this process computes: every `world`-th row from `rank` on."""

    rank: int
    world: int


#: The share of a single process.
ALL = Share(rank=0, world=1)


class Runtime:
    """A device, its precision, and the processes that share a training; a single process has no overhead.

    Processes share each batch and add their gradients, so that several compute what one would.

    Parameters
    ----------
    device : torch.device or str
        "auto" (a GPU if there is one), "cpu", "cuda" or a torch device.
    precision : {"float32", "bf16"}
        What networks are computed in.
    """

    def __init__(self, device: torch.device | str = "auto", precision: str = "float32") -> None:
        check_choice("precision", precision, PRECISIONS)
        self._accelerator: Any = None
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            found = self._accelerator = _accelerator(device)
            self.device, self.share = found.device, Share(found.process_index, found.num_processes)
        else:
            self.device, self.share = pick_device(device), ALL
        self.precision = precision

    @property
    def is_main(self) -> bool:
        """Whether this process prints and writes."""
        return self.share.rank == 0

    def wait(self) -> None:
        """Wait until every process is here."""
        if self._accelerator is not None:
            self._accelerator.wait_for_everyone()

    def autocast(self) -> AbstractContextManager:
        """The context in which a network's forward pass runs."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def add_up(self, values: Tensor) -> None:
        """Replace `values` by their sum over all processes."""
        if self._accelerator is not None:
            values.copy_(self._accelerator.reduce(values, reduction="sum"))

    def spread_file(self, path: Path) -> None:
        """Give every process the file that the main process has at `path`, or none if it has none.

        Parameters
        ----------
        path : Path
            On machines that share no folder, a file of each of them.
        """
        if self._accelerator is None:
            return
        known = [path.read_bytes() if self.is_main and path.exists() else None]
        import_extra("accelerate.utils", "distributed").broadcast_object_list(known)
        content = known[0]
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
    _join_after_restart("gloo" if is_cpu else "nccl")
    # Without a precision, which would be that of the whole program: every runtime has its own.
    return accelerate.Accelerator(cpu=is_cpu)


def _join_after_restart(backend: str) -> None:
    """Join the process group of a restart by torchrun, whose store has the addresses of processes that are gone."""
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if restarts != "0" and not torch.distributed.is_initialized():
        store, rank, world = next(torch.distributed.rendezvous("env://"))
        fresh = torch.distributed.PrefixStore(f"restart {restarts}", store)
        torch.distributed.init_process_group(backend, store=fresh, rank=rank, world_size=world)


def _leave() -> None:
    """Leave the process group before this process ends: a thread that still listens to it at exit aborts."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def pick_device(device: torch.device | str) -> torch.device:
    """The torch device of a name; "auto" is a GPU if there is one."""
    if str(device) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError as error:
        must = "be auto, cpu, cuda or another device of torch"
        raise ConfigError(argument="device", must=must, got=repr(str(device))) from error
    if found.type == "cuda" and not torch.cuda.is_available():
        must = "be auto or cpu, as torch finds no CUDA GPU here"
        raise ConfigError(argument="device", must=must, got=repr(str(device)))
    return found
