"""`FlatWeights`: all weights of an ensemble in one (M, D) tensor, of which the modules' parameters are views.

So clipping, averaging, keeping the best epoch and rolling a member back are one operation each, and the optimizer sees
one tensor.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.members import Members
from ddpn.runtime.errors import ConfigError

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
