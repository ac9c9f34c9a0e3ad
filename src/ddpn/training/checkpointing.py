"""Stopping and going on: what an epoch starts from, and the file that keeps it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ddpn.errors import InputError
from ddpn.model import CountModel
from ddpn.sample import Sample
from ddpn.training import checkpoint as files
from ddpn.training.batches import Augmented, Source, as_sample, named_parts
from ddpn.training.history import History
from ddpn.training.trainable import of_frozen

if TYPE_CHECKING:
    from ddpn.training.loop import Training

#: Before the names of networks' buffers, and of those of the best epoch.
_BUFFERS, _BEST_BUFFERS = "buffers/", "best_buffers/"
#: Items of a data set by whose counts it is known.
_SOME = 32


class Snapshot(NamedTuple):
    """All that the next epochs depend on. What is asked for in the middle of an epoch is its beginning."""

    tensors: dict[str, Tensor]
    info: dict[str, Any]


def snapshot(training: "Training") -> Snapshot:
    """The training as it stands, copied."""
    tensors = {name: tensor.clone() for name, tensor in training.updates.tensors().items()}
    tensors |= {"best": training.best.clone(), "orders": torch.stack([s.get_state() for s in training.streams])}
    tensors |= {f"{_BUFFERS}{name}": tensor for name, tensor in training.buffers.copied().items()}
    tensors |= {f"{_BEST_BUFFERS}{name}": tensor.clone() for name, tensor in training.best_buffers.items()}
    info = {"epoch": training.epoch, "step": training.step, "failures": list(training.failures)}
    return Snapshot(tensors, info | {"history": training.history.as_dict()})


def buffers_of(saved: Snapshot) -> dict[str, Tensor]:
    """The buffers of its networks."""
    return {name.removeprefix(_BUFFERS): t for name, t in saved.tensors.items() if name.startswith(_BUFFERS)}


def restore(training: "Training", saved: Snapshot) -> None:
    """The inverse of `snapshot`."""
    tensors, info = saved
    for name, tensor in training.updates.tensors().items():
        # Counters are the same in every piece of the weights, of which a GPU has more.
        tensor.copy_(tensors[name] if tensor.dim() == 2 else tensors[name].reshape(-1)[0])
    training.best.copy_(tensors["best"])
    training.buffers.put(buffers_of(saved))
    for name, tensor in training.best_buffers.items():
        tensor.copy_(tensors[f"{_BEST_BUFFERS}{name}"])
    for stream, state in zip(training.streams, tensors["orders"], strict=True):
        stream.set_state(state.clone())  # torch crashes on a view that does not begin with its storage
    training.epoch, training.step, training.failures = info["epoch"], info["step"], info["failures"]
    training.history = History(**info["history"])
    training.before = saved


class Checkpoint:
    """The file of one training, known by its settings, data, network and initial weights; made before the first step.

    It holds the beginning of the current epoch, so that an interrupted epoch is done again from its first batch.
    """

    def __init__(self, path: Path, training: "Training") -> None:
        self._path, self._training = path, training
        self._identity = _identity(training)

    def resume(self) -> None:
        """Take it up where there is one."""
        if not self._path.exists():
            return
        tensors, info = files.read(self._path)
        known = info.pop("identity", {})
        changed = [name for name, value in self._identity.items() if known.get(name) != value]
        if changed:
            raise InputError(
                f"checkpoint must come from this training, got {self._path} with another {' and '.join(changed)}. "
                "Delete it to start anew, or name another file."
            )
        restore(self._training, Snapshot(tensors, info))

    def save(self) -> None:
        """Write the beginning of the current epoch. Only one process does; the others need not wait."""
        if self._training.runtime.is_main:
            tensors, info = self._training.before
            files.write(self._path, tensors, info | {"identity": self._identity})


def _identity(training: "Training") -> dict[str, Any]:
    return {
        "config": training.config.as_dict(),
        **data_identity(training.batches.source, None if training.validation is None else training.validation.source),
        **model_identity(training.model),
        "initial weights": files.fingerprint(training.flat.values),
        "frozen weights": of_frozen(training.model),
    }


def model_identity(model: CountModel) -> dict[str, Any]:
    """What another head or network would not have."""
    shapes = {name: list(p.shape) for name, p in model.named_parameters()}
    return {
        "head": {"name": model.head.name, "options": model.head.options},
        "network": {"layers": str(model.backbone), "shapes": shapes},
    }


def data_identity(train: Source, validation: Source | None) -> dict[str, Any]:
    """What other rows would not have."""
    return {
        "training data": _rows_identity(train),
        "validation data": None if validation is None else _rows_identity(validation),
    }


def _rows_identity(rows: Source) -> dict[str, Any]:
    """Of a data set that is not in memory what it says of itself, as `identity`, or some items' counts.

    To read all of it would take an epoch's time, and what its items are may change from one look to the next.
    """
    if isinstance(rows, Augmented):
        return _rows_identity(rows.sample) | {"augmented": True}
    found: dict[str, Any] = {"rows": len(rows)}  # type: ignore[arg-type]
    if isinstance(rows, Sample):
        found |= {name: files.fingerprint(tensor) for name, tensor in named_parts(rows).items()}
    elif hasattr(rows, "identity"):
        found["itself"] = rows.identity
    else:
        some = torch.linspace(0, len(rows) - 1, min(_SOME, len(rows))).long().tolist()  # type: ignore[arg-type]
        found["some counts"] = as_sample([rows[index] for index in some]).y.tolist()
    return found
