"""`Optimizer`: AdamW on the weights of all networks as one tensor."""

from functools import partial

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from ddpn.networks.training.config import TrainingConfig
from ddpn.networks.training.weights import FlatWeights
from ddpn.storage.contents import JsonObject

#: Adam's usual constants. Weight decay is applied separately, because biases do not decay.
_ADAM: JsonObject = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
_ADAM |= {"fused": True, "amsgrad": False, "maximize": False}
#: The number of tensors that torch's fused AdamW updates in one launch.
_FUSED_TENSORS = 36


class Optimizer:
    """AdamW with decoupled weight decay and an exponential average of the weights, for all networks as one tensor.

    Biases do not decay. `healthy` is a mask, of shape (networks,), of the networks whose loss and gradient were finite
    in the last step. Gradients of networks that are not healthy are replaced by zeros. On a CPU, the weights of these
    networks stay unchanged, because they are rolled back at once. `flat` has the weights and gradients, which are
    changed in place, and `config` the settings.
    """

    def __init__(self, flat: FlatWeights, config: TrainingConfig) -> None:
        self.flat, self.config = flat, config
        self._on_host = flat.values.device.type == "cpu"
        # In float32 whatever the default dtype, because torch's fused kernel counts steps in float32.
        number = partial(torch.tensor, dtype=torch.float32, device=flat.values.device)
        # Tensors on the device, because a captured graph reads them at every replay.
        self.lr, self.step, self._one = number(config.lr), number(0.0), number(1.0)
        self.average = flat.values.clone() if config.ema else flat.values
        self.healthy = flat.values.new_ones(len(flat.values), dtype=torch.bool)
        self.exp_avg, self.exp_avg_sq = torch.zeros_like(flat.values), torch.zeros_like(flat.values)
        # A fused kernel uses few blocks per tensor, so that one long tensor would leave most of a GPU idle.
        pieces = 1 if self._on_host else _FUSED_TENSORS
        self.adam_steps = number([0.0] * pieces)
        states = (flat.values, flat.grad, self.exp_avg, self.exp_avg_sq)
        self._pieces = [list(t.view(-1).tensor_split(pieces)) for t in states]

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors, by name, on which later steps depend, except the learning rate."""
        named = {"values": self.flat.values, "exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq}
        named |= {"step": self.step, "adam_steps": self.adam_steps}
        return named | ({"average": self.average} if self.config.ema else {})

    @torch.no_grad()
    def apply(self, loss: Tensor) -> None:
        """Take one step with the gradients in `flat.grad`, for networks with a finite loss and gradient.

        `loss` has the loss of each network, of shape (networks,). The step changes the weights in `flat.values`, their
        exponential average and `healthy`, all in place. It also changes the gradients: they are clipped, or 0 for
        networks that are not healthy.
        """
        norms = self.flat.norms()
        self.healthy = (norms + loss).abs() < torch.inf
        before = self.flat.values.clone() if self._on_host else None
        self.flat.grad.masked_fill_(~self.healthy.unsqueeze(1), 0.0)
        if self.config.clip is not None:
            # Gradients longer than the bound are scaled down; a gradient of 0 stays 0.
            self.flat.grad.mul_((self.config.clip / norms).clamp_(max=1.0).nan_to_num_(nan=1.0).unsqueeze(1))
        if self.config.weight_decay:
            self.flat.values.mul_(torch.addcmul(self._one, self.flat.decayed, self.lr, value=-self.config.weight_decay))
        values, grads, averages, squares = self._pieces
        steps, captured = list(self.adam_steps), not self._on_host
        adamw(values, grads, averages, squares, [], steps, capturable=captured, lr=self.lr, **_ADAM)
        self.step += 1.0
        if self.config.ema:
            # At first the average covers fewer steps, so that the initial weights soon disappear from it.
            keep = torch.clamp((1.0 + self.step) / (10.0 + self.step), max=self.config.ema)
            self.average.lerp_(self.flat.values, 1.0 - keep)
        if before is not None:
            self.flat.values[~self.healthy] = before[~self.healthy]
