"""The state of a training run, and reading it from checkpoints."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ddpn.networks.backbones.layers import make_generators
from ddpn.networks.model import CountModel
from ddpn.networks.training.batches import PerNetworkRows, Source, StreamedRows
from ddpn.networks.training.config import TrainingConfig
from ddpn.networks.training.history import History
from ddpn.networks.training.optimizer import Optimizer
from ddpn.networks.training.weights import Buffers, FlatWeights
from ddpn.runtime.errors import InputError, TrainingError
from ddpn.runtime.validation import format_rows, join_words
from ddpn.storage.contents import JsonObject
from ddpn.storage.tensor_files import fingerprint, read

#: Added to the seeds, so that batch orders and initial weights come from different random generators.
_ORDER_SEED = 2**31
#: The most rollbacks of a network. After more, it is unlikely to recover.
_MAX_ROLLBACKS = 3
#: Prefixes of the names of buffers, current ones and those of the best epoch.
_BUFFERS, _BEST_BUFFERS = "buffers/", "best_buffers/"


class Snapshot(NamedTuple):
    """A copy of the state of a training run: its tensors by name, and `info`, values that can be written as JSON."""

    tensors: dict[str, Tensor]
    info: JsonObject

    def buffers(self, prefix: str) -> dict[str, Tensor]:
        """Return the buffers whose names start with `prefix`, by their names without the prefix."""
        return {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}


class State:
    """The state of a training run: all that later epochs depend on, and the best weights of each network so far.

    `epoch_start` is a copy of the state at the start of the current epoch. Checkpoints contain this copy. A network
    whose loss is not finite returns to it, and so does an interrupted training run. If `has_validation`, each network
    keeps the weights of the epoch with its best (lowest) validation score, otherwise those of the last epoch. If
    `shares_epoch`, all networks keep the weights of the same epoch, the one with the lowest mean score of all networks.

    The weights of `model` become views of the state's tensors (`FlatWeights`), so that they always agree.
    """

    def __init__(
        self, model: CountModel, config: TrainingConfig, has_validation: bool, shares_epoch: bool = False
    ) -> None:
        self.model, self.config, self.has_validation, self.shares_epoch = model, config, has_validation, shares_epoch
        self.flat = FlatWeights(model, config.n_networks)
        self.buffers = Buffers(model, config.n_networks)
        self.optimizer = Optimizer(self.flat, config)
        self.generators = make_generators([seed + _ORDER_SEED for seed in config.seeds])
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
        """True if all networks have stopped improving (see `has_stopped`)."""
        return all(map(self.has_stopped, range(self.config.n_networks)))

    def has_stopped(self, network: int) -> bool:
        """Return True if a network's validation score has not improved for `patience` epochs.

        Later epochs of this network are then ignored. The result is False if `patience` is None or if there are no
        validation rows.
        """
        patience = self.config.patience
        if patience is None or not self.has_validation:
            return False
        return self.epoch - self.history.best_epoch[network] >= patience

    # The end of an epoch -----------------------------------------------------------------------------------------

    @contextmanager
    def use_averaged_weights(self) -> Iterator[None]:
        """Use the exponentially averaged weights instead of the current ones within a `with` block.

        Without averaging (`TrainingConfig.ema` is 0), the current weights are used.
        """
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
        """Add the epoch to the history, store the weights of networks with a new best score, and start the next epoch.

        `losses` and `scores` have one value per network: the mean training loss and the validation score. `scores` is
        None without validation rows. `record` holds further values for the history, such as the learning rate.
        """
        if scores is not None:
            self._select(scores)
            record["score"] = scores
        self.epoch += 1
        self.history.epochs.append({"epoch": self.epoch, "loss": losses} | record)
        self.epoch_start = self._snapshot()

    def _select(self, scores: list[float]) -> None:
        if self.shares_epoch:
            scores = [sum(scores) / len(scores)] * len(scores)
        for network, score in enumerate(scores):
            if score < self.history.best_score[network] and not self.has_stopped(network):
                self.history.best_score[network], self.history.best_epoch[network] = score, self.epoch + 1
                self.best[network] = self.optimizer.average[network]
                self.buffers.copy_network(self.best_buffers, network)

    def keep_best(self) -> None:
        """Load the best weights of each network into the model, and set the model to evaluation mode.

        Without validation rows, or before the first epoch is complete, the last averaged weights are loaded instead.
        """
        if not self.has_validation or not self.history.epochs:
            self.history.best_epoch = [self.epoch] * self.config.n_networks
            self.flat.values.copy_(self.optimizer.average)
        else:
            self.flat.values.copy_(self.best)
            self.buffers.load(self.best_buffers)
        self.model.eval()

    # Copies ------------------------------------------------------------------------------------------------------

    def _snapshot(self) -> Snapshot:
        tensors = {name: tensor.clone() for name, tensor in self.optimizer.tensors().items()}
        tensors |= {
            "best": self.best.clone(),
            "orders": torch.stack([generator.get_state() for generator in self.generators]),
        }
        tensors |= {f"{_BUFFERS}{name}": tensor for name, tensor in self.buffers.copy_values().items()}
        tensors |= {f"{_BEST_BUFFERS}{name}": tensor.clone() for name, tensor in self.best_buffers.items()}
        info = {"epoch": self.epoch, "step": self.step, "failures": list(self.failures)}
        return Snapshot(tensors, info | {"history": self.history.as_dict()})

    def restore(self, saved: Snapshot) -> None:
        """Set the state, including the weights of the model, to the copy `saved`.

        `saved` also becomes the state at the start of the current epoch, to which failed networks return.
        """
        tensors, info = saved
        for name, tensor in self.optimizer.tensors().items():
            # A checkpoint of a CPU has fewer copies of each counter than a GPU needs; all copies are equal.
            tensor.copy_(tensors[name] if tensor.dim() == 2 else tensors[name].reshape(-1)[0])
        self.best.copy_(tensors["best"])
        self.buffers.load(saved.buffers(_BUFFERS))
        for name, tensor in saved.buffers(_BEST_BUFFERS).items():
            self.best_buffers[name].copy_(tensor)
        for generator, state in zip(self.generators, tensors["orders"], strict=True):
            generator.set_state(state.clone())  # torch crashes on a view that does not start at its storage
        self.epoch, self.step, self.failures = info["epoch"], info["step"], list(info["failures"])
        self.history = History(**deepcopy(info["history"]))
        self.epoch_start = saved

    # Recovery from failed steps ----------------------------------------------------------------------------------

    def roll_back(self, healthy: Tensor, find_failing_rows: Callable[[int], Sequence[int]], warns: bool = True) -> None:
        """Return networks with a non-finite loss or gradient to their state at the start of the epoch.

        `healthy` is a mask of the networks that are not rolled back, of shape (networks,). `find_failing_rows` takes
        the index of a network and returns the positions of rows with a non-finite loss. If `warns`, a warning names
        these rows. At the fourth rollback of a network, a `TrainingError` is raised, which names the rows as well.
        Networks that have stopped improving (`has_stopped`) are rolled back without a warning or an error.
        """
        for network in (~healthy).nonzero().flatten().tolist():
            rows = [] if self.has_stopped(network) else find_failing_rows(network)
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
            if warns:
                warnings.warn(report, RuntimeWarning, stacklevel=2)


def read_checkpoint(path: Path, identity: JsonObject) -> Snapshot | None:
    """Read the checkpoint of a training run; return None if there is no file.

    Raise an `InputError` if the checkpoint belongs to another training run, with a different `identity`.
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
    """Return a dictionary that identifies the training rows `source`, with their number.

    For rows in memory, it has a checksum of each field; for a streamed table, its digest.
    """
    if isinstance(source, PerNetworkRows):
        return identify_rows(source.sample) | {"folds": fingerprint(torch.cat([*source.train, *source.validation]))}
    identity: JsonObject = {"rows": len(source)}
    if isinstance(source, StreamedRows):
        return identity | {"identity": source.source.identity}
    return identity | {name: fingerprint(tensor) for name, tensor in source.parts.items()}
