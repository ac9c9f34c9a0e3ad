"""`Optimizer`: one AdamW step for all members, with clipping per member and an average of the weights."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from ddpn.networks.training.config import TrainingConfig
from ddpn.networks.training.weights import FlatWeights

#: Adam's usual constants; weights decay apart from it, as biases do not.
_ADAM: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
_ADAM |= {"fused": True, "amsgrad": False, "maximize": False}
#: As many tensors as torch's fused AdamW takes in one launch.
_PIECES = 36


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
            self._clip(norms, self.config.clip)
        self._move()
        if before is not None:
            self.flat.values[~self.healthy] = before[~self.healthy]

    def _move(self) -> None:
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

    def _clip(self, norms: Tensor, bound: float) -> None:
        """Scale each member's gradient down to the bound; one without a norm stays."""
        self.flat.grad.mul_((bound / norms).clamp_(max=1.0).nan_to_num_(nan=1.0).unsqueeze(1))
