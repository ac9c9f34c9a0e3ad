"""All weights of an ensemble in one (M, D) tensor, of which the modules' parameters are views.

So clipping, averaging, keeping the best epoch and rolling a member back are one operation each, and the optimizer sees
one tensor.
"""

import torch
from torch import Tensor, nn

from ddpn.errors import ConfigError


class Flat:
    """`values` and `grad` (M, D); `decayed` (D,) is 1 for weights and 0 for biases.

    Every trainable parameter must have the member axis first (see `ddpn.backbones.members`).
    """

    def __init__(self, model: nn.Module, members: int) -> None:
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        for name, p in parameters.items():
            if p.dim() == 0 or len(p) != members:
                raise ConfigError(
                    f"parameters must have the {members} members along their first axis, got {name} of shape "
                    f"{tuple(p.shape)}. Build the network of ddpn.backbones layers."
                )
        self.parameters = list(parameters.values())
        parts = [p.detach().reshape(members, -1) for p in self.parameters]
        self.values = torch.cat(parts, dim=1)
        self.grad = torch.zeros_like(self.values)
        is_weight = [float(not name.endswith("bias")) for name in parameters]
        self.decayed = torch.cat([torch.full_like(part[0], w) for part, w in zip(parts, is_weight, strict=True)])
        first = 0
        for p in self.parameters:
            past = first + p[0].numel()
            p.data = self.values[:, first:past].view(p.shape)
            first = past

    def add_gradient_of(self, loss: Tensor, fresh: bool) -> None:
        """Differentiate a scalar; the result replaces `grad` where it is `fresh`, else adds to it."""
        parts = [g.reshape(len(self.values), -1) for g in torch.autograd.grad(loss, self.parameters)]
        if fresh:
            torch.cat(parts, dim=1, out=self.grad)
        else:
            self.grad += torch.cat(parts, dim=1)

    def norms(self) -> Tensor:
        """Each member's gradient norm. Shape: (M,)."""
        return torch.linalg.vector_norm(self.grad, dim=1)
