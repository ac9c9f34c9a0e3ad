"""The weights of all networks of an ensemble as one tensor of shape (M, D), and the buffers of the model.

M is the number of networks, and D the number of weights of one network. The parameters of all modules are views of this
tensor. So clipping, averaging, keeping the best epoch and rolling back a network are one operation each, and the
optimizer updates a single tensor.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.layers import Frozen, NetworkList
from ddpn.runtime.errors import ConfigError
from ddpn.storage.tensor_files import fingerprint

#: Torch's containers of parameters, whose parameters may have an axis for networks.
_PARAMETER_CONTAINERS = (nn.ParameterList, nn.ParameterDict)


class _Weight(NamedTuple):
    """A parameter that every network has, such as the weights of a layer, with its values for all networks.

    `tensors` is a list with either a single tensor, which has the networks along its first axis, or one tensor per
    network. `is_decayed` is True if weight decay applies to it.
    """

    tensors: list[nn.Parameter]
    n_networks: int
    is_decayed: bool

    def to_matrix(self, tensors: list[Tensor]) -> Tensor:
        """Convert `tensors`, such as values or gradients of the parameter, to a matrix with one row per network.

        The list has the same length and shapes as the field `tensors`. The matrix has shape (M, values per network).
        """
        if len(tensors) == 1:
            return tensors[0].reshape(self.n_networks, -1)
        return torch.stack([tensor.reshape(-1) for tensor in tensors])

    def become_views(self, values: Tensor) -> None:
        """Turn the parameters, in place, into views of `values`, a matrix with one row per network.

        The shape of `values` is (M, values per network). A change of `values` then changes the parameters.
        """
        stacked = len(self.tensors) == 1
        for parameter, part in zip(self.tensors, [values] if stacked else values, strict=True):
            parameter.data = part.view(parameter.shape)


class FlatWeights:
    """The weights and the gradients of all networks as two tensors, `values` and `grad`, of shape (M, D).

    M is the number of networks, and D the number of weights of one network. `decayed` has shape (D,). It is 1 for
    weights to which weight decay applies, and 0 for biases and the scales of norms. Every trainable parameter must have
    the networks along its first axis, unless it belongs to a `backbones.NetworkList`; otherwise a `ConfigError` is
    raised.

    The constructor changes `model`: its trainable parameters become views of `values`.
    """

    def __init__(self, model: nn.Module, n_networks: int) -> None:
        self._weights = [*_find_stacked_weights(model, n_networks), *_find_looped_weights(model, n_networks)]
        self.parameters = [p for weight in self._weights for p in weight.tensors]
        parts = [weight.to_matrix([p.detach() for p in weight.tensors]) for weight in self._weights]
        self.values = torch.cat(parts, dim=1)
        self.grad = torch.zeros_like(self.values)
        decayed = [torch.full_like(part[0], float(w.is_decayed)) for part, w in zip(parts, self._weights, strict=True)]
        self.decayed = torch.cat(decayed)
        widths = [part.shape[1] for part in parts]
        for weight, values in zip(self._weights, self.values.split(widths, dim=1), strict=True):
            weight.become_views(values)

    def add_gradient(self, loss: Tensor, overwrites: bool) -> None:
        """Compute the gradient of a scalar loss and add it to `grad`. If `overwrites` is True, replace `grad` instead.

        The loss should be the sum of the losses of all networks. Each network then gets the gradient of its own loss.
        """
        # `allow_unused`: a user's network may have weights that its forward pass does not use.
        gradients = iter(torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True))
        parts = [weight.to_matrix([next(gradients) for _ in weight.tensors]) for weight in self._weights]
        if overwrites:
            torch.cat(parts, dim=1, out=self.grad)
        else:
            self.grad += torch.cat(parts, dim=1)

    def norms(self) -> Tensor:
        """Compute the Euclidean norm of each network's gradient. Shape: (M,)."""
        return torch.linalg.vector_norm(self.grad, dim=1)


def _find_stacked_weights(model: nn.Module, n_networks: int) -> list[_Weight]:
    looped = {id(p) for module in model.modules() if isinstance(module, NetworkList) for p in module.parameters()}
    # Torch's own layers have no axis for networks, even if an axis happens to have the same length.
    torchs = [m for m in model.modules() if type(m).__module__.startswith("torch.nn.modules.")]
    shared = {id(p) for m in torchs if not isinstance(m, _PARAMETER_CONTAINERS) for p in m.parameters(recurse=False)}
    weights = []
    for name, p in model.named_parameters():
        if not p.requires_grad or id(p) in looped:
            continue
        if p.dim() == 0 or len(p) != n_networks or id(p) in shared:
            must, got = f"have the {n_networks} networks along their first axis", f"{name} of shape {tuple(p.shape)}"
            remedy = "Build the network from the layers of ddpn.networks.backbones, or wrap it in NetworkList."
            raise ConfigError(f"parameters must {must}, got {got}. {remedy}")
        weights.append(_Weight([p], n_networks, not name.endswith("bias")))
    return weights


def _find_looped_weights(model: nn.Module, n_networks: int) -> list[_Weight]:
    weights = []
    for module in model.modules():
        if isinstance(module, NetworkList):
            if len(module) != n_networks:
                raise ConfigError(
                    f"NetworkList must hold the {n_networks} networks of the training, got {len(module)}."
                )
            for together in zip(*(network.parameters() for network in module), strict=True):
                if together[0].requires_grad:
                    weights.append(_Weight(list(together), n_networks, together[0].dim() > 1))
    return weights


def find_trained_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Return the persistent buffers of a model by name, such as running statistics, except those of frozen networks."""
    frozen = {id(b) for module in model.modules() if isinstance(module, Frozen) for b in module.buffers()}
    persistent = set(model.state_dict())
    return {name: b for name, b in model.named_buffers() if name in persistent and id(b) not in frozen}


def find_trained_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that training changes: trainable parameters, and buffers except those of frozen networks."""
    weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return weights | find_trained_buffers(model)


class Buffers:
    """The buffers of a model that training can change, by name, and the network to which each of them belongs.

    Some buffers belong to no network, because all networks share them, such as a table of constants. They are included
    so that checkpoints contain them.
    """

    def __init__(self, model: nn.Module, n_networks: int) -> None:
        loops = [module for module in model.modules() if isinstance(module, NetworkList)]
        owners = {id(b): k for loop in loops for k, network in enumerate(loop) for b in network.buffers()}
        self._owned: dict[str, tuple[Tensor, int | None]] = {}
        for name, buffer in find_trained_buffers(model).items():
            if id(buffer) in owners or buffer.dim() == 0 or len(buffer) != n_networks:
                self._owned[name] = buffer, owners.get(id(buffer))
            else:
                self._owned |= {f"{name}/{k}": (buffer[k], k) for k in range(n_networks)}

    def copy_values(self) -> dict[str, Tensor]:
        """Return copies of the current values of the buffers, by name."""
        return {name: buffer.clone() for name, (buffer, _) in self._owned.items()}

    def load(self, values: dict[str, Tensor], network: int | None = None) -> None:
        """Set the buffers to `values`, a result of `copy_values`.

        If `network` is given, set only the buffers that belong to this network.
        """
        for name, (buffer, owner) in self._owned.items():
            if network in (None, owner):
                buffer.copy_(values[name])

    def copy_network(self, values: dict[str, Tensor], network: int) -> None:
        """Update `values`, a result of `copy_values`, with the current values of one network and of shared buffers."""
        for name, (buffer, owner) in self._owned.items():
            if owner in (None, network):
                values[name].copy_(buffer)


def hash_frozen_tensors(model: nn.Module) -> int:
    """Compute a checksum of the tensors that training does not change, which checkpoints do not contain."""
    changing, total = set(find_trained_tensors(model)), 0
    for name, tensor in model.state_dict().items():
        total = total if name in changing else fingerprint(tensor, total)
    return total
