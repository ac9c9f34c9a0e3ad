"""What of a model a training changes, and what it only reads."""

from pathlib import Path

import torch
from torch import Tensor, nn

from ddpn.backbones.fine_tuning import Frozen
from ddpn.errors import InputError
from ddpn.training.checkpoint import fingerprint


def learned(model: nn.Module) -> dict[str, Tensor]:
    """What a training changes: weights that have gradients, and the buffers of networks that are not frozen."""
    frozen = {id(b) for module in model.modules() if isinstance(module, Frozen) for b in module.buffers()}
    kept = set(model.state_dict())
    weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return weights | {name: b for name, b in model.named_buffers() if name in kept and id(b) not in frozen}


def load_learned(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """The inverse of `learned`; names and shapes must be the model's."""
    own = learned(model)
    if {name: t.shape for name, t in own.items()} != {name: t.shape for name, t in tensors.items()}:
        raise InputError(f"{path} must fit the network, got other names or shapes. Build it as it was trained.")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def of_frozen(model: nn.Module) -> int:
    """A number of what a training does not change and its files do not hold."""
    changing, total = set(learned(model)), 0
    for name, tensor in model.state_dict().items():
        total = total if name in changing else fingerprint(tensor, total)
    return total
