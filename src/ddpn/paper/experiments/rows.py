"""The rows of an experiment: tables, simulations, texts, images and point clouds, in three parts."""

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ddpn.distributions import CountDistribution
from ddpn.networks.backbones import Tuned
from ddpn.networks.backbones.pretrained import tokenizer_of
from ddpn.networks.training import Augmented, Runtime
from ddpn.paper.datasets import Dataset, bible, inventory, load, simulate, simulate_shelves
from ddpn.paper.experiments.experiment import Experiment
from ddpn.paper.experiments.networks import features_of, network_of
from ddpn.paper.inputs import auto_augment, decode_images, join_texts, tokenize
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.threads import cores
from ddpn.sample import Sample
from ddpn.storage.tensor_files import fingerprint

#: Test rows of a simulation: a hundred would change the score of the true distribution by 10%.
TEST_ROWS = 10_000
#: Not the seed of the training rows; the same for every seed of a training.
TEST_SEED = 7
PARTS = ("train", "validation", "test")
#: Validation and test rows of a dry run.
DRY_ROWS = 64


class ExperimentRows(NamedTuple):
    """The rows of an experiment, and for simulations the true distribution of the test counts.

    Without validation rows a training keeps its last epoch: training rows would select one that ignores hard points.
    `ood` are out-of-distribution rows, without counts; `lengths` are the numbers of tokens of test and OOD rows.
    `cached` means that x holds features of the network's frozen part, and `source` identifies the rows before it.
    """

    train: Sample | Augmented
    validation: Sample | None
    test: Sample
    note: str
    truth: CountDistribution | None = None
    ood: Tensor | None = None
    cached: bool = False
    classes: int = 0
    lengths: tuple[Tensor, Tensor] | None = None
    source: tuple[int, ...] | None = None

    @property
    def identity(self) -> list[int]:
        """Numbers that identify the rows, not their features, whose rounding depends on the machine."""
        if self.source is not None:
            return list(self.source)
        train = self.train.sample if isinstance(self.train, Augmented) else self.train
        found = [each for rows in (train, self.validation, self.test) if rows is not None for each in (rows.X, rows.y)]
        return [fingerprint(tensor) for tensor in found + ([] if self.ood is None else [self.ood])]


def rows_of(experiment: Experiment, device: str = "cpu", keep: Path | None = None, copies: int = 1) -> ExperimentRows:
    """Load or simulate the rows; if the network has a frozen part, its features, which are kept in the folder `keep`.

    `copies` is the number of processes on this machine that do so at the same time.
    """
    if experiment.simulation is not None:
        parts = _simulated(experiment.simulation["name"])
    else:
        source: Any = experiment.data
        parts = LOADERS.get(source["name"], _table)(experiment, _load(source))
    if experiment.dry_steps:
        parts = _shortened(parts, experiment.dry_steps * experiment.training.batch_size)
    runtime = Runtime(device, experiment.training.precision)
    network = None if experiment.backbone is None else network_of(experiment, 0, 1, classes=parts.classes)
    trunk = network.trunk if isinstance(network, Tuned) else None
    return parts if trunk is None else _with_features(parts, trunk, runtime, keep, copies)


def _with_features(
    parts: ExperimentRows, trunk: nn.Module, runtime: Runtime, keep: Path | None, copies: int
) -> ExperimentRows:
    """The features of the rows where these are in memory and the features fit there, too; else the rows."""
    if not isinstance(parts.train, Sample) or not isinstance(parts.validation, Sample):
        return parts
    given = [parts.train.X, parts.validation.X, parts.test.X] + ([] if parts.ood is None else [parts.ood])
    features = features_of(trunk, given, runtime, keep, copies)
    if features is None:
        return parts
    return parts._replace(
        train=Sample(features[0], parts.train.y),
        validation=Sample(features[1], parts.validation.y),
        test=Sample(features[2], parts.test.y),
        ood=features[3] if len(features) > 3 else None,
        cached=True,
        source=tuple(parts.identity),
    )


def _shortened(parts: ExperimentRows, rows: int) -> ExperimentRows:
    """The first `rows` training rows and a few of the others."""
    return parts._replace(
        train=_first(parts.train, rows),
        validation=None if parts.validation is None else _first(parts.validation, DRY_ROWS),
        # The true distribution of a simulation is that of all test rows.
        test=_first(parts.test, DRY_ROWS) if parts.truth is None else parts.test,
        ood=None if parts.ood is None else parts.ood[:DRY_ROWS],
        lengths=None if parts.lengths is None else (parts.lengths[0][:DRY_ROWS], parts.lengths[1][:DRY_ROWS]),
    )


def _first(rows: Any, n: int) -> Any:
    if isinstance(rows, Augmented):
        return Augmented(_first(rows.sample, n), rows.augment)
    return rows.rows(slice(n))


def _simulated(name: str) -> ExperimentRows:
    drawn, fresh = simulate(name), simulate(name, n=TEST_ROWS, seed=TEST_SEED)
    train, validation = drawn.split.train, drawn.split.validation
    rows = [Sample(_floats(drawn.X[part]), _floats(drawn.y[part])) for part in (train, validation) if len(part)]
    note = f"{len(train)} training rows, scored on {len(fresh.y)} fresh ones"
    return ExperimentRows(
        rows[0], rows[1] if len(rows) > 1 else None, Sample(_floats(fresh.X), _floats(fresh.y)), note, fresh.truth
    )


def _floats(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _load(source: Mapping[str, Any]) -> Any:
    """The data set, in which every part must have rows."""
    if source["name"] == "shelves":
        data = simulate_shelves(source["beams"], max_points=source["points"], progress=False)
    else:
        data = inventory(max_points=source["points"]) if source["name"] == "inventory" else load(source["name"])
    for name, rows in zip(PARTS, data.split, strict=True):
        if len(rows) == 0:
            raise InputError(f"{data.name} has too few rows to split: {data.split.n}, none for {name}.")
    return data


def _parts(data: Dataset, encode: Callable[[Any], Tensor], features: str = "raw", **more: Any) -> ExperimentRows:
    """The rows of a data set, with their inputs as tensors."""
    found = {name: data.part(name, features) for name in PARTS}
    rows: Any = {name: Sample(encode(inputs), _floats(y)) for name, (inputs, y) in found.items()}
    return ExperimentRows(**rows, note=data.note, **more)


def _table(experiment: Experiment, data: Dataset) -> ExperimentRows:
    source: Any = experiment.data
    return _parts(data, lambda table: _floats(table.to_numpy()), source["features"])


def _texts(experiment: Experiment, data: Dataset) -> ExperimentRows:
    source, backbone = experiment.data or {}, experiment.backbone or {}
    length = source["max_length"]
    if experiment.dry_steps and "config" in backbone:
        tokens, pad = partial(_hashed, length=length, words=backbone["config"]["vocab_size"]), 0
    else:
        tokenizer, pad = tokenizer_of(backbone["pretrained"])
        if tokenizer.pad_token_id != pad:
            raise ConfigError(
                f"pad_token_id of the tokenizer must be that of its model, {pad}, got {tokenizer.pad_token_id}. "
                f"Set it in {backbone['pretrained']}/config.json."
            )
        tokens = partial(tokenize, tokenizer=tokenizer, max_length=length, progress=True)
    parts = _parts(data, lambda table: tokens(join_texts(table, source["text"])))
    if experiment.ood is None:
        return parts
    ood = tokens(bible())
    return parts._replace(ood=ood, lengths=((pad != parts.test.X).sum(1), (ood != pad).sum(1)))


def _hashed(texts: list[str], length: int, words: int) -> Tensor:
    """Token ids without a tokenizer, which comes with the pretrained weights that a dry run does not read."""
    found = torch.zeros(len(texts), length, dtype=torch.int32)
    for row, text in enumerate(texts):
        ids = [1 + zlib.crc32(word.encode()) % (words - 1) for word in text.split()[:length]]
        found[row, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
    return found


def _images(experiment: Experiment, data: Dataset) -> ExperimentRows:
    """Decoded once into memory, and changed at random before every epoch where the experiment wants that."""
    source: Any = experiment.data
    workers, rows = min(experiment.training.workers, cores()), dict[str, Any]()
    for name in PARTS:
        pixels = decode_images(data.files(name), source["size"], workers, progress=True)
        rows[name] = Sample(pixels, _floats(data.part(name)[1]))
    if source["augment"]:
        rows["train"] = Augmented(rows["train"], auto_augment)
    return ExperimentRows(**rows, note=data.note)


def _clouds(experiment: Experiment, data: Dataset) -> ExperimentRows:
    return _parts(data, lambda beams: beams, classes=len(data.classes))


LOADERS = {"reviews": _texts, "coco_people": _images, "inventory": _clouds, "shelves": _clouds}
