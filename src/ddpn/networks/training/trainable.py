"""Which tensors of a model a training changes, and which it only reads; `Buffers`, those that are no weights."""

from pathlib import Path

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.fine_tuning import Frozen
from ddpn.networks.backbones.members import Members
from ddpn.runtime.errors import InputError
from ddpn.storage.tensor_files import fingerprint


def trained_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Persistent buffers, such as running statistics, of networks that are not frozen."""
    frozen = {id(b) for module in model.modules() if isinstance(module, Frozen) for b in module.buffers()}
    persistent = set(model.state_dict())
    return {name: b for name, b in model.named_buffers() if name in persistent and id(b) not in frozen}


def trained_tensors(model: nn.Module) -> dict[str, Tensor]:
    """What a training changes: weights that have gradients, and `trained_buffers`."""
    weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return weights | trained_buffers(model)


def load_trained_tensors(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Copy what `trained_tensors` returned into a model of the same names and shapes; `path` is for the message."""
    own = trained_tensors(model)
    if {name: t.shape for name, t in own.items()} != {name: t.shape for name, t in tensors.items()}:
        raise InputError(f"{path} does not fit the network: names or shapes differ. Build it as it was trained.")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def frozen_fingerprint(model: nn.Module) -> int:
    """A checksum of the tensors that a training does not change, and that its files do not hold."""
    changing, total = set(trained_tensors(model)), 0
    for name, tensor in model.state_dict().items():
        total = total if name in changing else fingerprint(tensor, total)
    return total


class Buffers:
    """The buffers of a model that a training can change, each with the member axis first where members have their own.

    Buffers that all members share, such as a table of constants, are included, so that a resumed training has them.
    """

    def __init__(self, model: nn.Module, members: int) -> None:
        named = trained_buffers(model)
        self._each = _looped(model, named)
        looped = {id(b) for each in self._each.values() for b in each}
        whole = {name: b for name, b in named.items() if id(b) not in looped}
        self._shared = {name: b for name, b in whole.items() if b.dim() == 0 or len(b) != members}
        self._each |= {name: [*b.unbind()] for name, b in whole.items() if name not in self._shared}

    def copied(self) -> dict[str, Tensor]:
        """A copy of the current values; one tensor (M, ...) for what every member has."""
        stacked = {name: torch.stack(each) for name, each in self._each.items()}
        return stacked | {name: buffer.clone() for name, buffer in self._shared.items()}

    def load(self, tensors: dict[str, Tensor], member: int | None = None) -> None:
        """Take over what `copied` returned; with `member`, only what is that member's own."""
        for name, each in self._each.items():
            for number, buffer in enumerate(each):
                if member in (None, number):
                    buffer.copy_(tensors[name][number])
        for name, buffer in self._shared.items() if member is None else ():
            buffer.copy_(tensors[name])

    def copy_member(self, tensors: dict[str, Tensor], member: int) -> None:
        """Write one member's current values, and what all share, into what `copied` returned."""
        for name, each in self._each.items():
            tensors[name][member] = each[member]
        for name, buffer in self._shared.items():
            tensors[name].copy_(buffer)


def _looped(model: nn.Module, named: dict[str, Tensor]) -> dict[str, list[Tensor]]:
    """Buffers of networks in a `Members` list, by the name of the list and their name in each network."""
    found = {}
    for path, module in model.named_modules():
        if isinstance(module, Members):
            before = f"{path}." if path else ""
            for name, _ in module[0].named_buffers():
                if f"{before}0.{name}" in named:
                    found[f"{before}{name}"] = [named[f"{before}{number}.{name}"] for number in range(len(module))]
    return found
