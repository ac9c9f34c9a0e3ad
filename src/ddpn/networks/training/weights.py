"""What a training changes: `FlatWeights`, all weights of an ensemble as one tensor, and `Buffers`, the rest.

The weights are one (M, D) tensor, of which the modules' parameters are views. So clipping, averaging, keeping the best
epoch and rolling a member back are one operation each, and the optimizer sees one tensor.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.fine_tuning import Frozen
from ddpn.networks.backbones.members import Members
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.storage.tensor_files import fingerprint

#: Containers of torch that may hold parameters with a member axis.
_LISTS = (nn.ParameterList, nn.ParameterDict)


class _Weight(NamedTuple):
    """One parameter of every member: a stacked one with the member axis first, or one tensor per member."""

    tensors: list[nn.Parameter]
    members: int
    is_decayed: bool

    def rows(self, given: list[Tensor]) -> Tensor:
        """Values or gradients, one row per member. Shape: (M, D)."""
        if len(given) == 1:
            return given[0].reshape(self.members, -1)
        return torch.stack([each.reshape(-1) for each in given])

    def view(self, values: Tensor) -> None:
        """Make the parameters views of `values` (M, D)."""
        stacked = len(self.tensors) == 1
        for parameter, part in zip(self.tensors, [values] if stacked else values, strict=True):
            parameter.data = part.view(parameter.shape)


class FlatWeights:
    """`values` and `grad` (M, D); `decayed` (D,) is 1 for weights, 0 for biases and the scales of norms.

    Every trainable parameter must have the member axis first, or belong to a network of `backbones.Members`.
    """

    def __init__(self, model: nn.Module, members: int) -> None:
        self._weights = [*_stacked(model, members), *_looped(model, members)]
        self.parameters = [p for weight in self._weights for p in weight.tensors]
        parts = [weight.rows([p.detach() for p in weight.tensors]) for weight in self._weights]
        self.values = torch.cat(parts, dim=1)
        self.grad = torch.zeros_like(self.values)
        decayed = [torch.full_like(part[0], float(w.is_decayed)) for part, w in zip(parts, self._weights, strict=True)]
        self.decayed = torch.cat(decayed)
        widths = [part.shape[1] for part in parts]
        for weight, values in zip(self._weights, self.values.split(widths, dim=1), strict=True):
            weight.view(values)

    def add_gradient_of(self, loss: Tensor, fresh: bool) -> None:
        """Differentiate a scalar; the result replaces `grad` if `fresh`, else it is added."""
        # A user's network may have weights that its forward pass does not use.
        found = iter(torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True))
        parts = [weight.rows([next(found) for _ in weight.tensors]) for weight in self._weights]
        if fresh:
            torch.cat(parts, dim=1, out=self.grad)
        else:
            self.grad += torch.cat(parts, dim=1)

    def norms(self) -> Tensor:
        """Each member's gradient norm. Shape: (M,)."""
        return torch.linalg.vector_norm(self.grad, dim=1)


def _stacked(model: nn.Module, members: int) -> list[_Weight]:
    looped = {id(p) for module in model.modules() if isinstance(module, Members) for p in module.parameters()}
    # Torch's own layers have no member axis, even if one of their axes happens to be as long.
    shared = {id(p) for module in model.modules() if _is_torchs(module) for p in module.parameters(recurse=False)}
    found = []
    for name, p in model.named_parameters():
        if not p.requires_grad or id(p) in looped:
            continue
        if p.dim() == 0 or len(p) != members or id(p) in shared:
            must, got = f"have the {members} members along their first axis", f"{name} of shape {tuple(p.shape)}"
            remedy = "Build the network from the layers of ddpn.networks.backbones, or wrap it in Members."
            raise ConfigError(f"parameters must {must}, got {got}. {remedy}")
        found.append(_Weight([p], members, not name.endswith("bias")))
    return found


def _is_torchs(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.nn.modules.") and not isinstance(module, _LISTS)


def _looped(model: nn.Module, members: int) -> list[_Weight]:
    found = []
    for module in model.modules():
        if isinstance(module, Members):
            if len(module) != members:
                raise ConfigError(f"Members must hold the {members} members of the training, got {len(module)}.")
            for together in zip(*(network.parameters() for network in module), strict=True):
                if together[0].requires_grad:
                    found.append(_Weight(list(together), members, together[0].dim() > 1))
    return found


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
        self._each = _looped_buffers(model, named)
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


def _looped_buffers(model: nn.Module, named: dict[str, Tensor]) -> dict[str, list[Tensor]]:
    """Buffers of networks in a `Members` list, by the name of the list and their name in each network."""
    found = {}
    for path, module in model.named_modules():
        if isinstance(module, Members):
            before = f"{path}." if path else ""
            for name, _ in module[0].named_buffers():
                if f"{before}0.{name}" in named:
                    found[f"{before}{name}"] = [named[f"{before}{number}.{name}"] for number in range(len(module))]
    return found
