"""Which tensors of a model a training changes, and which it only reads."""

from pathlib import Path

import torch
from torch import Tensor, nn

from ddpn.backbones.fine_tuning import Frozen
from ddpn.errors import InputError
from ddpn.tensor_files import fingerprint


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
