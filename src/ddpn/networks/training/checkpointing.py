"""`Checkpoint`: the file that an interrupted training resumes from, and what identifies a training."""

import json
from pathlib import Path
from typing import Any

import torch

from ddpn.networks.model import CountModel
from ddpn.networks.training.batches import Augmented, OwnRows, Source, Streamed, as_sample
from ddpn.networks.training.state import Snapshot
from ddpn.networks.training.weights import frozen_fingerprint
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import listed
from ddpn.sample import Sample
from ddpn.storage.tensor_files import fingerprint, read, write

#: Items of a Dataset by whose counts it is known.
_SOME = 32


class Checkpoint:
    """The file of one training, which is known by its `identity`: settings, data, network and initial weights."""

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self._path, self._identity = path, identity

    def read(self) -> Snapshot | None:
        """What was saved; None where there is no file. That of another training is refused."""
        if not self._path.exists():
            return None
        tensors, info = read(self._path)
        check_identity(self._path, info.pop("identity", {}), self._identity)
        return Snapshot(tensors, info)

    def save(self, snapshot: Snapshot) -> None:
        """Write the beginning of the current epoch, which a resumed training repeats from its first batch."""
        write(self._path, snapshot.tensors, snapshot.info | {"identity": self._identity})


def check_identity(path: Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Raise an `InputError` that lists what differs if a file comes from another training than the `expected` one."""
    changed = [name for name, value in expected.items() if name != "config" and found.get(name) != value]
    settings = found.get("config", {})
    changed += [name for name, value in expected["config"].items() if settings.get(name) != value]
    if changed:
        remedy = "Delete it to train again, or use another path."
        raise InputError(f"{path} comes from a training with another {listed(changed)}. {remedy}")


def model_identity(model: CountModel) -> dict[str, Any]:
    """What distinguishes a model from those with another head, network or frozen weights."""
    shapes = {name: list(p.shape) for name, p in model.named_parameters()}
    return {
        # As it is read from a file, where a tuple is a list.
        "head": json.loads(json.dumps({"name": model.head.name, "options": model.head.options})),
        "network": {"layers": str(model.backbone), "shapes": shapes},
        "frozen weights": frozen_fingerprint(model),
    }


def data_identity(train: Source | OwnRows | Streamed, validation: Source | OwnRows | Streamed | None) -> dict[str, Any]:
    """What distinguishes these rows from others."""
    return {
        "training data": _rows_identity(train),
        "validation data": None if validation is None else _rows_identity(validation),
    }


def _rows_identity(source: Source | OwnRows | Streamed) -> dict[str, Any]:
    """Checksums of rows in memory; of a Dataset its attribute `identity`, or the counts of some items.

    Reading a whole Dataset would take as long as an epoch, and its items may change from one reading to the next.
    """
    if isinstance(source, OwnRows):
        return _rows_identity(source.sample) | {"folds": fingerprint(torch.cat([*source.train, *source.validation]))}
    if isinstance(source, Augmented):
        return _rows_identity(source.sample) | {"augmented": True}
    found: dict[str, Any] = {"rows": len(source)}  # type: ignore[arg-type]
    if isinstance(source, Sample):
        return found | {name: fingerprint(tensor) for name, tensor in source.parts.items()}
    if hasattr(source, "identity"):
        return found | {"identity": source.identity}
    some = torch.linspace(0, found["rows"] - 1, min(_SOME, found["rows"])).long().tolist()
    return found | {"some counts": as_sample([source[index] for index in some]).y.tolist()}
