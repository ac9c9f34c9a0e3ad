"""The state of a training: weights, optimizer, history, and the checkpoint from which it resumes.

The weights of an ensemble are one (M, D) tensor, and the modules' parameters are views of it. So clipping, averaging,
keeping the best epoch and rolling back a network are one operation each, and the `Optimizer` sees a single tensor.
`State` holds everything on which later epochs depend, and the best weights so far.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from ddpn.networks.backbones.members import Frozen, NetworkList, make_generators
from ddpn.networks.model import CountModel
from ddpn.networks.training.batches import PerNetworkRows, Source, StreamedRows
from ddpn.networks.training.config import TrainingConfig
from ddpn.runtime.errors import ConfigError, InputError, TrainingError
from ddpn.runtime.validation import format_rows, join_words
from ddpn.storage.contents import JsonObject
from ddpn.storage.tensor_files import fingerprint, read

#: Added to the seeds, so that batch orders and initial weights come from different random generators.
_ORDER_SEED = 2**31
#: The most rollbacks of a network. After more, it is unlikely to recover.
_MAX_ROLLBACKS = 3
#: Prefixes of the names of buffers, current ones and those of the best epoch.
_BUFFERS, _BEST_BUFFERS = "buffers/", "best_buffers/"
#: Torch's containers of parameters, whose parameters may have an axis for networks.
_PARAMETER_CONTAINERS = (nn.ParameterList, nn.ParameterDict)
#: Adam's usual constants. Weight decay is applied separately, because biases do not decay.
_ADAM: JsonObject = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
_ADAM |= {"fused": True, "amsgrad": False, "maximize": False}
#: The number of tensors that torch's fused AdamW updates in one launch.
_FUSED_TENSORS = 36


# Weights and optimizer ------------------------------------------------------------------------------------------------


class _Weight(NamedTuple):
    """One parameter of every network: a tensor whose first axis belongs to the networks, or one tensor per network."""

    tensors: list[nn.Parameter]
    n_networks: int
    is_decayed: bool

    def rows(self, tensors: list[Tensor]) -> Tensor:
        """Arrange values or gradients as one row per network. Shape: (M, D)."""
        if len(tensors) == 1:
            return tensors[0].reshape(self.n_networks, -1)
        return torch.stack([tensor.reshape(-1) for tensor in tensors])

    def view(self, values: Tensor) -> None:
        """Make the parameters views of `values` (M, D)."""
        stacked = len(self.tensors) == 1
        for parameter, part in zip(self.tensors, [values] if stacked else values, strict=True):
            parameter.data = part.view(parameter.shape)


class FlatWeights:
    """The weights and gradients of all networks as two tensors, `values` and `grad`, of shape (M, D).

    `decayed` (D,) is 1 for weights, and 0 for biases and scales of norms. Every trainable parameter must have the
    networks on its first axis, or belong to a `backbones.NetworkList`.
    """

    def __init__(self, model: nn.Module, n_networks: int) -> None:
        self._weights = [*_find_stacked_weights(model, n_networks), *_find_looped_weights(model, n_networks)]
        self.parameters = [p for weight in self._weights for p in weight.tensors]
        parts = [weight.rows([p.detach() for p in weight.tensors]) for weight in self._weights]
        self.values = torch.cat(parts, dim=1)
        self.grad = torch.zeros_like(self.values)
        decayed = [torch.full_like(part[0], float(w.is_decayed)) for part, w in zip(parts, self._weights, strict=True)]
        self.decayed = torch.cat(decayed)
        widths = [part.shape[1] for part in parts]
        for weight, values in zip(self._weights, self.values.split(widths, dim=1), strict=True):
            weight.view(values)

    def add_gradient(self, loss: Tensor, fresh: bool) -> None:
        """Compute the gradient of a scalar; write it to `grad` if `fresh`, else add it."""
        # `allow_unused`: a user's network may have weights that its forward pass does not use.
        gradients = iter(torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True))
        parts = [weight.rows([next(gradients) for _ in weight.tensors]) for weight in self._weights]
        if fresh:
            torch.cat(parts, dim=1, out=self.grad)
        else:
            self.grad += torch.cat(parts, dim=1)

    def norms(self) -> Tensor:
        """Compute the gradient norm of each network. Shape: (M,)."""
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
    """Find persistent buffers, such as running statistics, outside frozen networks."""
    frozen = {id(b) for module in model.modules() if isinstance(module, Frozen) for b in module.buffers()}
    persistent = set(model.state_dict())
    return {name: b for name, b in model.named_buffers() if name in persistent and id(b) not in frozen}


def find_trained_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Find the tensors that a training changes: trainable weights, and buffers outside frozen networks."""
    weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return weights | find_trained_buffers(model)


class Buffers:
    """The buffers of a model that training can change, by name, with the network that each belongs to.

    Buffers that all networks share, such as a table of constants, are included so that checkpoints contain them.
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
        """Copy the current values."""
        return {name: buffer.clone() for name, (buffer, _) in self._owned.items()}

    def load(self, tensors: dict[str, Tensor], network: int | None = None) -> None:
        """Load values that `copy_values` returned; with `network`, only those of this network."""
        for name, (buffer, owner) in self._owned.items():
            if network in (None, owner):
                buffer.copy_(tensors[name])

    def copy_network(self, tensors: dict[str, Tensor], network: int) -> None:
        """Write the current values of one network, and of shared buffers, into the result of `copy_values`."""
        for name, (buffer, owner) in self._owned.items():
            if owner in (None, network):
                tensors[name].copy_(buffer)


def hash_frozen_tensors(model: nn.Module) -> int:
    """Hash the tensors that training neither changes nor saves."""
    changing, total = set(find_trained_tensors(model)), 0
    for name, tensor in model.state_dict().items():
        total = total if name in changing else fingerprint(tensor, total)
    return total


class Optimizer:
    """AdamW on one flat tensor, with decoupled decay of weights (not biases) and an exponential average of the weights.

    `healthy` (M,) is True for networks whose loss and gradient were finite in the last step. Other networks do not
    learn from the step. On a CPU, their weights stay unchanged, because they are rolled back at once.
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
        """Return every tensor that later steps depend on, except the learning rate."""
        named = {"values": self.flat.values, "exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq}
        named |= {"step": self.step, "adam_steps": self.adam_steps}
        return named | ({"average": self.average} if self.config.ema else {})

    @torch.no_grad()
    def apply(self, loss: Tensor) -> None:
        """Update the weights with the gradient in `flat.grad`; the `loss` (M,) shows which networks are healthy."""
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


# History, state and checkpoints ---------------------------------------------------------------------------------------


@dataclass
class History:
    """The history of a training.

    Attributes
    ----------
    epochs : list of dict
        One record per epoch: loss and score of each network, learning rate, seconds.
    best_epoch, best_score : list
        The best epoch of each network, and its score.
    rollbacks : list of str
        One sentence per rollback: a network was reset to the start of an epoch after a non-finite loss.
    stopped : str
        The reason why the training ended before its last epoch, else "".
    interrupted : bool
        True if Ctrl-C ended the training.
    """

    epochs: list[JsonObject] = field(default_factory=list)
    best_epoch: list[int] = field(default_factory=list)
    best_score: list[float] = field(default_factory=list)
    rollbacks: list[str] = field(default_factory=list)
    stopped: str = ""
    interrupted: bool = False

    def __post_init__(self) -> None:
        # JSON has no infinity, so the score of a network that was never validated is None there.
        self.best_score = [math.inf if score is None else score for score in self.best_score]

    @property
    def seconds(self) -> float:
        """The time of training and validation, over all sessions of a resumed training."""
        return sum(record["seconds"] for record in self.epochs)

    def select_networks(self, networks: slice) -> "History":
        """Return the history of some networks, given by their positions."""
        epochs = [{k: v[networks] if isinstance(v, list) else v for k, v in record.items()} for record in self.epochs]
        best, scores = self.best_epoch[networks], self.best_score[networks]
        return replace(self, epochs=epochs, rollbacks=list(self.rollbacks), best_epoch=best, best_score=scores)

    @classmethod
    def from_parts(cls, parts: Sequence["History"]) -> "History":
        """Join the histories of networks that were trained together; the inverse of `select_networks`."""
        epochs = []
        for records in zip(*(part.epochs for part in parts), strict=True):
            lists = {
                k: [v for record in records for v in record[k]] for k, v in records[0].items() if isinstance(v, list)
            }
            epochs.append(records[0] | lists)
        best, scores = ([v for part in parts for v in getattr(part, name)] for name in ("best_epoch", "best_score"))
        return replace(parts[0], epochs=epochs, best_epoch=best, best_score=scores)

    def as_dict(self) -> JsonObject:
        """Return a copy with plain values for a manifest."""
        plain = {name: list(value) if isinstance(value, list) else value for name, value in vars(self).items()}
        return plain | {"best_score": [score if score < math.inf else None for score in self.best_score]}


class Snapshot(NamedTuple):
    """A copy of a state, as tensors and plain values."""

    tensors: dict[str, Tensor]
    info: JsonObject

    def buffers(self, prefix: str) -> dict[str, Tensor]:
        """Select the buffers with a prefix, in the form that `Buffers.copy_values` returns."""
        return {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}


class State:
    """The state of a training: weights, buffers, optimizer, batch orders, history, and the best epoch of each network.

    `epoch_start` is a copy of the state at the start of the current epoch. Checkpoints contain it, and a failed network
    or an interrupted training returns to it. With `validates`, each network keeps the epoch with its best score,
    otherwise the last epoch. With `one_epoch`, all networks keep the same epoch, the one with the lowest mean score.
    """

    def __init__(self, model: CountModel, config: TrainingConfig, validates: bool, one_epoch: bool = False) -> None:
        self.model, self.config, self.validates, self.one_epoch = model, config, validates, one_epoch
        self.flat = FlatWeights(model, config.n_networks)
        self.buffers = Buffers(model, config.n_networks)
        self.optimizer = Optimizer(self.flat, config)
        self.streams = make_generators([seed + _ORDER_SEED for seed in config.seeds])
        self.step, self.epoch = 0, 0
        self.history = History(best_epoch=[0] * config.n_networks, best_score=[float("inf")] * config.n_networks)
        self.best, self.best_buffers = self.flat.values.clone(), self.buffers.copy_values()
        self.failures = [0] * config.n_networks
        self.epoch_start = self._snapshot()

    # Stopping ----------------------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """True if no network needs another epoch."""
        return self.epoch >= self.config.epochs or self.have_all_stopped

    @property
    def have_all_stopped(self) -> bool:
        """True if `has_stopped` holds for every network."""
        return all(map(self.has_stopped, range(self.config.n_networks)))

    def has_stopped(self, network: int) -> bool:
        """Return True if a network's score did not improve for `patience` epochs, so that later epochs do not count."""
        patience = self.config.patience
        if patience is None or not self.validates:
            return False
        return self.epoch - self.history.best_epoch[network] >= patience

    # The end of an epoch -----------------------------------------------------------------------------------------

    @contextmanager
    def use_averaged_weights(self) -> Iterator[None]:
        """Replace the weights by their average within a `with` block."""
        if not self.config.ema:
            yield
            return
        current = self.flat.values.clone()
        self.flat.values.copy_(self.optimizer.average)
        try:
            yield
        finally:
            self.flat.values.copy_(current)

    def complete_epoch(self, losses: list[float], scores: list[float] | None, **record: object) -> None:
        """Record the epoch, keep the weights of networks with a new best score, and start the next epoch."""
        if scores is not None:
            self._select(scores)
            record["score"] = scores
        self.epoch += 1
        self.history.epochs.append({"epoch": self.epoch, "loss": losses} | record)
        self.epoch_start = self._snapshot()

    def _select(self, scores: list[float]) -> None:
        if self.one_epoch:
            scores = [sum(scores) / len(scores)] * len(scores)
        for network, score in enumerate(scores):
            if score < self.history.best_score[network] and not self.has_stopped(network):
                self.history.best_score[network], self.history.best_epoch[network] = score, self.epoch + 1
                self.best[network] = self.optimizer.average[network]
                self.buffers.copy_network(self.best_buffers, network)

    def keep_best(self) -> None:
        """Load each network's best weights into the model; without validation, the last averaged ones."""
        if not self.validates or not self.history.epochs:
            self.history.best_epoch = [self.epoch] * self.config.n_networks
            self.flat.values.copy_(self.optimizer.average)
        else:
            self.flat.values.copy_(self.best)
            self.buffers.load(self.best_buffers)
        self.model.eval()

    # Copies ------------------------------------------------------------------------------------------------------

    def _snapshot(self) -> Snapshot:
        tensors = {name: tensor.clone() for name, tensor in self.optimizer.tensors().items()}
        tensors |= {"best": self.best.clone(), "orders": torch.stack([s.get_state() for s in self.streams])}
        tensors |= {f"{_BUFFERS}{name}": tensor for name, tensor in self.buffers.copy_values().items()}
        tensors |= {f"{_BEST_BUFFERS}{name}": tensor.clone() for name, tensor in self.best_buffers.items()}
        info = {"epoch": self.epoch, "step": self.step, "failures": list(self.failures)}
        return Snapshot(tensors, info | {"history": self.history.as_dict()})

    def restore(self, saved: Snapshot) -> None:
        """Restore the state from a copy."""
        tensors, info = saved
        for name, tensor in self.optimizer.tensors().items():
            # A checkpoint of a CPU has fewer copies of each counter than a GPU needs; all copies are equal.
            tensor.copy_(tensors[name] if tensor.dim() == 2 else tensors[name].reshape(-1)[0])
        self.best.copy_(tensors["best"])
        self.buffers.load(saved.buffers(_BUFFERS))
        for name, tensor in saved.buffers(_BEST_BUFFERS).items():
            self.best_buffers[name].copy_(tensor)
        for stream, state in zip(self.streams, tensors["orders"], strict=True):
            stream.set_state(state.clone())  # torch crashes on a view that does not start at its storage
        self.epoch, self.step, self.failures = info["epoch"], info["step"], list(info["failures"])
        self.history = History(**deepcopy(info["history"]))
        self.epoch_start = saved

    # Recovery from failed steps ----------------------------------------------------------------------------------

    def roll_back(self, healthy: Tensor, failing_rows: Callable[[int], Sequence[int]], shows: bool = True) -> None:
        """Roll back every network that is not `healthy` (M,), and warn if `shows`; raise after too many failures.

        `failing_rows` returns the rows whose loss is not finite for a network. Networks that have stopped improving are
        rolled back without a warning.
        """
        for network in (~healthy).nonzero().flatten().tolist():
            rows = [] if self.has_stopped(network) else failing_rows(network)
            for name, now in self.optimizer.tensors().items():
                if now.dim() == 2:
                    now[network] = self.epoch_start.tensors[name][network]
            self.buffers.load(self.epoch_start.buffers(_BUFFERS), network)
            if self.has_stopped(network):
                continue
            where = (
                f"epoch {self.epoch + 1}, network {network}, {format_rows(rows) if rows else 'in the gradient only'}"
            )
            report = f"non-finite loss in {where}: the network was rolled back one epoch"
            self.failures[network] += 1
            self.history.rollbacks.append(report)
            if self.failures[network] > _MAX_ROLLBACKS:
                failures = f"{self.failures[network]} failures; the last: {report}"
                raise TrainingError(f"loss must stay finite, got {failures}. Lower lr, or check these rows.")
            if shows:
                warnings.warn(report, RuntimeWarning, stacklevel=2)


def read_checkpoint(path: Path, identity: JsonObject) -> Snapshot | None:
    """Read the checkpoint of a training, or return None if there is no file.

    Raise an `InputError` if the checkpoint belongs to another training.
    """
    if not path.exists():
        return None
    tensors, info = read(path)
    saved_identity = info.pop("identity", {})
    changed = [name for name, value in identity.items() if name != "config" and saved_identity.get(name) != value]
    settings = saved_identity.get("config", {})
    changed += [name for name, value in identity["config"].items() if settings.get(name) != value]
    if changed:
        remedy = "Delete it to train again, or use another path."
        raise InputError(f"{path} belongs to another training, which differs in: {join_words(changed)}. {remedy}")
    return Snapshot(tensors, info)


def identify_rows(source: Source) -> JsonObject:
    """Return checksums of rows in memory, or the identity of a streamed table."""
    if isinstance(source, PerNetworkRows):
        return identify_rows(source.sample) | {"folds": fingerprint(torch.cat([*source.train, *source.validation]))}
    identity: JsonObject = {"rows": len(source)}
    if isinstance(source, StreamedRows):
        return identity | {"identity": source.source.identity}
    return identity | {name: fingerprint(tensor) for name, tensor in source.parts.items()}
