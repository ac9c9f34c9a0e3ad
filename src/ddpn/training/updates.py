"""One optimizer step for all members: clip each by its own norm, decay, AdamW, average."""

import torch
from torch import Tensor

from ddpn.training.config import TrainingConfig
from ddpn.training.flat import Flat


class Updates:
    """AdamW on one flat tensor (decoupled decay on weights, none on biases), with an exponential average of the result.

    `healthy` (M,) says whose loss and gradient were finite in the last step. The others learn nothing from it, and on
    a CPU, where they are mended at once, their weights stay where they failed.
    """

    def __init__(self, flat: Flat, config: TrainingConfig) -> None:
        self.flat, self.config = flat, config
        device = flat.values.device
        self._on_host = device.type == "cpu"
        # As tensors on a GPU, where a captured graph reads them at every replay.
        self.lr = torch.tensor(config.lr, device=device)
        self.step = torch.zeros((), device=device)
        parameter = torch.nn.Parameter(flat.values)
        parameter.grad = flat.grad
        self.adam = torch.optim.AdamW(
            [parameter], lr=self.lr, weight_decay=0.0, fused=True, capturable=not self._on_host
        )
        self.average = flat.values.clone() if config.ema else flat.values
        self.healthy = torch.ones(len(flat.values), dtype=torch.bool, device=device)
        # State before the first step, so that a checkpoint and a captured graph find it.
        parameter.grad = torch.zeros_like(flat.grad)
        with torch.no_grad():
            self.adam.step()
        for moment in ("exp_avg", "exp_avg_sq", "step"):
            self.adam.state[parameter][moment].zero_()
        parameter.grad = flat.grad
        self._state = self.adam.state[parameter]

    def tensors(self) -> dict[str, Tensor]:
        """All that a later `apply` depends on, besides lr."""
        named = {"values": self.flat.values, "step": self.step}
        named |= {name: self._state[name] for name in ("exp_avg", "exp_avg_sq")} | {"adam_step": self._state["step"]}
        return named | ({"average": self.average} if self.config.ema else {})

    @torch.no_grad()
    def apply(self, loss: Tensor) -> None:
        """Use the gradient in `flat.grad`, which is that of `loss` (M,)."""
        norms = self.flat.norms()
        self.healthy = torch.isfinite(norms) & torch.isfinite(loss)
        if not self._on_host:
            self._clip_healthy(norms)
            self._move()
        elif self.healthy.all():
            self._clip(norms)
            self._move()
        else:
            before = self.flat.values.clone()
            self._clip_healthy(norms)
            self._move()
            self.flat.values[~self.healthy] = before[~self.healthy]

    def _move(self) -> None:
        if self.config.weight_decay:
            self.flat.values.mul_(1.0 - (self.lr * self.config.weight_decay) * self.flat.decayed)
        self.adam.step()
        self.step += 1.0
        if self.config.ema:
            # Early on the average is over fewer steps, or the initial weights would linger in it.
            keep = torch.clamp((1.0 + self.step) / (10.0 + self.step), max=self.config.ema)
            self.average.lerp_(self.flat.values, 1.0 - keep)

    def _clip(self, norms: Tensor) -> None:
        """Where a look at the norms costs nothing and all of them are finite."""
        if self.config.clip is not None and norms.max() > self.config.clip:
            self.flat.grad.mul_((self.config.clip / norms).clamp_(max=1.0).unsqueeze(1))

    def _clip_healthy(self, norms: Tensor) -> None:
        """No gradient for those that failed."""
        limit = self.config.clip if self.config.clip is not None else torch.inf
        scale = (limit / norms).clamp_(max=1.0).unsqueeze(1)
        self.flat.grad.copy_(torch.where(self.healthy.unsqueeze(1), self.flat.grad * scale, 0.0))
