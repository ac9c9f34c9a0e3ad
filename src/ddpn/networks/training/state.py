"""The state of a training, its `History`, and the checkpoint from which an interrupted one resumes.

`State` is all that the next epochs of a training depend on, and what was best until now.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddpn.networks.backbones.members import generators
from ddpn.networks.model import CountModel
from ddpn.networks.training.batches import OwnRows, Source, Streamed
from ddpn.networks.training.config import TrainingConfig
from ddpn.networks.training.weights import FlatWeights, Optimizer
from ddpn.runtime.errors import InputError, TrainingError
from ddpn.runtime.validation import at_rows, listed
from ddpn.storage.tensor_files import fingerprint, read

#: Batch orders come from another stream than initial weights.
_ORDER_SEED = 2**31
#: A member that had to be rolled back so often will not recover by itself.
_MAX_ROLLBACKS = 3


@dataclass
class History:
    """How a training went.

    Attributes
    ----------
    epochs : list of dict
        One record per epoch: loss and score per member, lr, seconds.
    best_epoch, best_score : list
        Each member's best epoch and its score.
    rollbacks : list of str
        One sentence per member that was reset to the beginning of its epoch after a non-finite loss.
    stopped : str
        Why the training ended before its last epoch, else "".
    interrupted : bool
        Whether Ctrl-C ended it.
    """

    epochs: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: list[int] = field(default_factory=list)
    best_score: list[float] = field(default_factory=list)
    rollbacks: list[str] = field(default_factory=list)
    stopped: str = ""
    interrupted: bool = False

    def __post_init__(self) -> None:
        # JSON has no infinity: there, a member that was never validated has no score.
        self.best_score = [math.inf if score is None else score for score in self.best_score]

    @property
    def seconds(self) -> float:
        """Time in training and validation, over all sessions of a resumed training."""
        return sum(record["seconds"] for record in self.epochs)

    def of(self, members: slice) -> "History":
        """How the training of some of the members went, by their positions."""
        epochs = [{k: v[members] if isinstance(v, list) else v for k, v in record.items()} for record in self.epochs]
        best, scores = self.best_epoch[members], self.best_score[members]
        return replace(self, epochs=epochs, rollbacks=list(self.rollbacks), best_epoch=best, best_score=scores)

    @classmethod
    def joined(cls, parts: Sequence["History"]) -> "History":
        """The inverse of `of`, for all members of one training in order."""
        epochs = []
        for each in zip(*(part.epochs for part in parts), strict=True):
            lists = {k: [v for own in each for v in own[k]] for k, v in each[0].items() if isinstance(v, list)}
            epochs.append(each[0] | lists)
        best, scores = ([v for part in parts for v in getattr(part, name)] for name in ("best_epoch", "best_score"))
        return replace(parts[0], epochs=epochs, best_epoch=best, best_score=scores)

    def as_dict(self) -> dict[str, Any]:
        """A copy of plain values, for a manifest."""
        plain = {name: list(value) if isinstance(value, list) else value for name, value in vars(self).items()}
        return plain | {"best_score": [score if score < math.inf else None for score in self.best_score]}


class Snapshot(NamedTuple):
    """A copy of a state, as tensors and plain values."""

    tensors: dict[str, Tensor]
    info: dict[str, Any]


class State:
    """Weights, optimizer, batch orders, history, and each member's best epoch.

    `before` is the state at the beginning of the current epoch: what a checkpoint holds, and what a failed member or an
    interrupted training goes back to. With `validates`, epochs are selected by their scores, else the last one is kept.
    With `one_epoch`, all members have the same one, that of the lowest mean score.
    """

    def __init__(self, model: CountModel, config: TrainingConfig, validates: bool, one_epoch: bool = False) -> None:
        self.model, self.config, self.validates, self.one_epoch = model, config, validates, one_epoch
        self.flat = FlatWeights(model, config.members)
        self.optimizer = Optimizer(self.flat, config)
        self.streams = generators([seed + _ORDER_SEED for seed in config.seeds])
        self.step, self.epoch = 0, 0
        self.history = History(best_epoch=[0] * config.members, best_score=[float("inf")] * config.members)
        self.best = self.flat.values.clone()
        self.failures = [0] * config.members
        self.before = self._snapshot()

    # Stopping ----------------------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """Whether no member needs another epoch."""
        return self.epoch >= self.config.epochs or self.have_all_stopped

    @property
    def have_all_stopped(self) -> bool:
        """Whether `has_stopped` holds for every member."""
        return all(map(self.has_stopped, range(self.config.members)))

    def has_stopped(self, member: int) -> bool:
        """Whether a member has gone `patience` epochs without a better score; later ones change nothing for it."""
        patience = self.config.patience
        if patience is None or not self.validates:
            return False
        return self.epoch - self.history.best_epoch[member] >= patience

    # The end of an epoch -----------------------------------------------------------------------------------------

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The averaged weights in place of the current ones."""
        if not self.config.ema:
            yield
            return
        current = self.flat.values.clone()
        self.flat.values.copy_(self.optimizer.average)
        try:
            yield
        finally:
            self.flat.values.copy_(current)

    def complete_epoch(self, losses: list[float], scores: list[float] | None, **record: Any) -> None:
        """Record the epoch, keep the weights of members that have a better score than ever, and begin the next."""
        if scores is not None:
            self._select(scores)
            record["score"] = scores
        self.epoch += 1
        self.history.epochs.append({"epoch": self.epoch, "loss": losses} | record)
        self.before = self._snapshot()

    def _select(self, scores: list[float]) -> None:
        if self.one_epoch:
            scores = [sum(scores) / len(scores)] * len(scores)
        for member, score in enumerate(scores):
            if score < self.history.best_score[member] and not self.has_stopped(member):
                self.history.best_score[member], self.history.best_epoch[member] = score, self.epoch + 1
                self.best[member] = self.optimizer.average[member]

    def keep_best(self) -> None:
        """Put the weights to keep into the model: each member's best epoch, or the last where nothing was validated."""
        if not self.validates or not self.history.epochs:
            self.history.best_epoch = [self.epoch] * self.config.members
            self.flat.values.copy_(self.optimizer.average)
        else:
            self.flat.values.copy_(self.best)
        self.model.eval()

    # Copies ------------------------------------------------------------------------------------------------------

    def _snapshot(self) -> Snapshot:
        tensors = {name: tensor.clone() for name, tensor in self.optimizer.tensors().items()}
        tensors |= {"best": self.best.clone(), "orders": torch.stack([s.get_state() for s in self.streams])}
        info = {"epoch": self.epoch, "step": self.step, "failures": list(self.failures)}
        return Snapshot(tensors, info | {"history": self.history.as_dict()})

    def restore(self, saved: Snapshot) -> None:
        """Become what the state was when `saved` was its `before`."""
        tensors, info = saved
        for name, tensor in self.optimizer.tensors().items():
            # Counters are the same in every piece of the weights, of which a GPU has more.
            tensor.copy_(tensors[name] if tensor.dim() == 2 else tensors[name].reshape(-1)[0])
        self.best.copy_(tensors["best"])
        for stream, state in zip(self.streams, tensors["orders"], strict=True):
            stream.set_state(state.clone())  # torch crashes on a view that does not begin with its storage
        self.epoch, self.step, self.failures = info["epoch"], info["step"], list(info["failures"])
        self.history = History(**deepcopy(info["history"]))
        self.before = saved

    # Recovery from failed steps ----------------------------------------------------------------------------------

    def recover(self, healthy: Tensor, failing_rows: Callable[[int], Sequence[int]], shows: bool = True) -> None:
        """Roll back every member that is not `healthy` (M,), and warn of it if `shows`; raise after too many failures.

        `failing_rows` finds the rows whose loss is not finite for a member as it is. Members that have stopped
        improving are rolled back in silence.
        """
        for member in (~healthy).nonzero().flatten().tolist():
            rows = [] if self.has_stopped(member) else failing_rows(member)
            for name, now in self.optimizer.tensors().items():
                if now.dim() == 2:
                    now[member] = self.before.tensors[name][member]
            if self.has_stopped(member):
                continue
            where = f"epoch {self.epoch + 1}, member {member}, {at_rows(rows) if rows else 'in the gradient only'}"
            report = f"non-finite loss in {where}: the member was rolled back one epoch"
            self.failures[member] += 1
            self.history.rollbacks.append(report)
            if self.failures[member] > _MAX_ROLLBACKS:
                failures = f"{self.failures[member]} failures; the last: {report}"
                raise TrainingError(f"loss must stay finite, got {failures}. Lower lr, or check those rows.")
            if shows:
                warnings.warn(report, RuntimeWarning, stacklevel=2)


def read_checkpoint(path: Path, identity: dict[str, Any]) -> Snapshot | None:
    """What a training saved; None where there is no file. That of a training with another `identity` is refused."""
    if not path.exists():
        return None
    tensors, info = read(path)
    found = info.pop("identity", {})
    changed = [name for name, value in identity.items() if name != "config" and found.get(name) != value]
    settings = found.get("config", {})
    changed += [name for name, value in identity["config"].items() if settings.get(name) != value]
    if changed:
        remedy = "Delete it to train again, or use another path."
        raise InputError(f"{path} comes from a training with another {listed(changed)}. {remedy}")
    return Snapshot(tensors, info)


def rows_identity(source: Source) -> dict[str, Any]:
    """Checksums of rows in memory; of a stream the `identity` of its table."""
    if isinstance(source, OwnRows):
        return rows_identity(source.sample) | {"folds": fingerprint(torch.cat([*source.train, *source.validation]))}
    found: dict[str, Any] = {"rows": len(source)}
    if isinstance(source, Streamed):
        return found | {"identity": source.source.identity}
    return found | {name: fingerprint(tensor) for name, tensor in source.parts.items()}
