"""Where a training runs: one process, or several under torchrun through accelerate."""

import atexit
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from ddpn.errors import ConfigError
from ddpn.training.batches import Share

#: What networks can be computed in.
PRECISIONS = ("float32", "bf16")


class Runtime:
    """A device, its precision, and the other processes there are. One process pays nothing for any of it.

    Processes share each batch and add their gradients, so that several compute what one would.
    """

    def __init__(self, device: torch.device | str = "auto", precision: str = "float32") -> None:
        if precision not in PRECISIONS:
            raise ConfigError(f"precision must be {' or '.join(PRECISIONS)}, got {precision!r}. Choose one.")
        self._accelerator: Any = None
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            self._accelerator = _accelerator(device)
            self.device, self.share = self._accelerator.device, Share(*_place(self._accelerator))
        else:
            self.device, self.share = pick_device(device), Share()
        self.precision = precision

    @property
    def is_main(self) -> bool:
        """Whether this process prints and writes."""
        return self.share.rank == 0

    def wait(self) -> None:
        """Until every process is here."""
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


def _accelerator(device: torch.device | str) -> Any:
    try:
        from accelerate import Accelerator
    except ImportError:
        raise ConfigError(
            f"WORLD_SIZE must be 1 without accelerate, got {os.environ['WORLD_SIZE']}. Install ddpn[distributed]."
        ) from None
    if not torch.distributed.is_initialized():
        atexit.register(_leave)
    # Without a precision: it would be that of the whole program, and every runtime has its own.
    return Accelerator(cpu=pick_device(device).type == "cpu")


def _leave() -> None:
    """Part from the other processes before this one ends: a thread still listening to them at exit aborts it."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _place(accelerator: Any) -> tuple[int, int]:
    return accelerator.process_index, accelerator.num_processes


def pick_device(device: torch.device | str) -> torch.device:
    """The device a user means: "auto" is a GPU where there is one."""
    if str(device) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f'device must be one torch knows, got "{device}". Use "auto", "cpu" or "cuda".') from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f'device must be present, got "{device}" on a machine without CUDA. Use "auto" or "cpu".')
    return found
