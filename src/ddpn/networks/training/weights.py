"""What a training changes: `FlatWeights`, all weights of an ensemble as one tensor, and its `Optimizer`.

The weights are one (M, D) tensor, of which the modules' parameters are views. So clipping, averaging, keeping the best
epoch and rolling a member back are one operation each, and the `Optimizer` sees one tensor.
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from ddpn.networks.backbones.members import Members
from ddpn.networks.training.config import TrainingConfig
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.storage.tensor_files import fingerprint

#: Containers of torch that may hold parameters with a member axis.
_LISTS = (nn.ParameterList, nn.ParameterDict)
#: Adam's usual constants; weights decay apart from it, as biases do not.
_ADAM: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
_ADAM |= {"fused": True, "amsgrad": False, "maximize": False}
#: As many tensors as torch's fused AdamW takes in one launch.
_PIECES = 36


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
    torchs = [m for m in model.modules() if type(m).__module__.startswith("torch.nn.modules.")]
    shared = {id(p) for m in torchs if not isinstance(m, _LISTS) for p in m.parameters(recurse=False)}
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


def trained_tensors(model: nn.Module) -> dict[str, Tensor]:
    """What a training changes: weights that have gradients."""
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}


def check_no_statistics(model: nn.Module) -> None:
    """Raise a `ConfigError` for running statistics, as of batch norm: averaged weights would not fit them."""
    for name, module in model.train().named_modules():
        if module.training and getattr(module, "running_mean", None) is not None:
            must, got = "have no running statistics that a training changes", f"{type(module).__name__} at {name}"
            raise ConfigError(f"networks must {must}, got {got}. Use LayerNorm or GroupNorm.")


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


class Optimizer:
    """AdamW on one flat tensor (decoupled decay on weights, none on biases), with an exponential average of the result.

    `healthy` (M,) shows whose loss and gradient were finite in the last step. The others learn nothing from it, and on
    a CPU, where they are rolled back at once, their weights stay as they were.
    """

    def __init__(self, flat: FlatWeights, config: TrainingConfig) -> None:
        self.flat, self.config = flat, config
        self._on_host = flat.values.device.type == "cpu"
        # Not in the default dtype: torch's fused kernel counts steps in float32.
        number = partial(torch.tensor, dtype=torch.float32, device=flat.values.device)
        # As tensors on a GPU, where a captured graph reads them at every replay.
        self.lr, self.step, self._one = number(config.lr), number(0.0), number(1.0)
        self.average = flat.values.clone() if config.ema else flat.values
        self.healthy = flat.values.new_ones(len(flat.values), dtype=torch.bool)
        self.exp_avg, self.exp_avg_sq = torch.zeros_like(flat.values), torch.zeros_like(flat.values)
        # A fused kernel gives each tensor few blocks: on a GPU one long tensor would leave most of the card idle.
        pieces = 1 if self._on_host else _PIECES
        self.adam_steps = number([0.0] * pieces)
        states = (flat.values, flat.grad, self.exp_avg, self.exp_avg_sq)
        self._pieces = [list(t.view(-1).tensor_split(pieces)) for t in states]

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a later `apply` depends on, except lr."""
        named = {"values": self.flat.values, "exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq}
        named |= {"step": self.step, "adam_steps": self.adam_steps}
        return named | ({"average": self.average} if self.config.ema else {})

    @torch.no_grad()
    def apply(self, loss: Tensor) -> None:
        """Update the weights by the gradient in `flat.grad`, which is that of `loss` (M,)."""
        norms = self.flat.norms()
        self.healthy = (norms + loss).abs() < torch.inf
        before = self.flat.values.clone() if self._on_host else None
        self.flat.grad.masked_fill_(~self.healthy.unsqueeze(1), 0.0)
        if self.config.clip is not None:
            # Each member's gradient is scaled down to the bound; one without a norm stays.
            self.flat.grad.mul_((self.config.clip / norms).clamp_(max=1.0).nan_to_num_(nan=1.0).unsqueeze(1))
        if self.config.weight_decay:
            self.flat.values.mul_(torch.addcmul(self._one, self.flat.decayed, self.lr, value=-self.config.weight_decay))
        values, grads, averages, squares = self._pieces
        steps, captured = list(self.adam_steps), not self._on_host
        adamw(values, grads, averages, squares, [], steps, capturable=captured, lr=self.lr, **_ADAM)
        self.step += 1.0
        if self.config.ema:
            # Early on the average is over fewer steps, otherwise the initial weights would remain in it.
            keep = torch.clamp((1.0 + self.step) / (10.0 + self.step), max=self.config.ema)
            self.average.lerp_(self.flat.values, 1.0 - keep)
        if before is not None:
            self.flat.values[~self.healthy] = before[~self.healthy]
