"""The rows of an experiment: tables, simulations, texts, pictures and point clouds, in three parts."""

import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from ddpn.backbones.pretrained import tokenizer_of
from ddpn.datasets import bible, inventory, load, simulate, simulate_shelves
from ddpn.distributions import CountDistribution
from ddpn.errors import ConfigError, InputError
from ddpn.experiments.experiment import Experiment
from ddpn.experiments.frozen_features import through_trunk
from ddpn.experiments.machine import cores
from ddpn.inputs import auto_augment, decode_images, join_texts, tokenize
from ddpn.sample import Sample
from ddpn.tensor_files import fingerprint
from ddpn.training import Augmented, Runtime

#: A simulation is scored on so many rows that no training saw: a hundred would move the true law's own score by 10%.
TEST_ROWS = 10_000
#: Another one than the training rows were drawn with; the same for every seed of a training.
TEST_SEED = 7
PARTS = ("train", "validation", "test")
#: Rows that a dry run is judged by.
DRY_ROWS = 64
#: Pictures to train on that are changed at random are decoded once up to so many bytes, else in every epoch.
IN_MEMORY = 2**30
Source = Sample | Augmented | TorchDataset


class Parts(NamedTuple):
    """The rows of an experiment, and for simulations the law its test counts were drawn from.

    Without validation rows a training keeps its last epoch: its own rows would pick one that leaves hard points out.
    `outside` are rows of another kind, without counts, and `sizes` how many tokens test and outside rows have.
    `cached` says that x is what the network's frozen trunk gave, and `source` is the identity of the rows before it.
    """

    train: Source
    validation: Sample | TorchDataset | None
    test: Sample
    truth: CountDistribution | None
    note: str
    outside: Tensor | None = None
    cached: bool = False
    classes: int = 0
    sizes: tuple[Tensor, Tensor] | None = None
    source: tuple[int, ...] | None = None

    @property
    def identity(self) -> list[int]:
        """Numbers that other rows would not have: of rows before a trunk, which rounds as its machine does."""
        if self.source is not None:
            return list(self.source)
        given = [rows for rows in (self.train, self.validation, self.test) if rows is not None]
        found = [_tensors(rows) for rows in given] + ([] if self.outside is None else [[self.outside]])
        return [fingerprint(tensor) for tensors in found for tensor in tensors]


def _tensors(rows: Source) -> list[Tensor]:
    """Of pictures in files the counts alone: to read them all would take an epoch's time."""
    rows = rows.sample if isinstance(rows, Augmented) else rows
    return [rows.X, rows.y] if isinstance(rows, Sample) else [rows.y]  # type: ignore[attr-defined]


def rows_of(experiment: Experiment, device: str = "cpu", keep: Path | None = None, copies: int = 1) -> Parts:
    """Load or draw the rows; where a network has a frozen trunk, what it gives for them, which is kept below `keep`.

    `copies` is how many processes of this machine do so at the same time.
    """
    if experiment.simulation is not None:
        parts = _simulated(experiment.simulation["name"])
    else:
        assert experiment.data is not None
        parts = MATERIALS.get(experiment.data["name"], _table)(experiment, keep)
    if experiment.dry_steps:
        parts = _shortened(parts, experiment.dry_steps * experiment.training.batch_size)
    return through_trunk(experiment, parts, Runtime(device, experiment.training.precision), keep, copies)


def _shortened(parts: Parts, rows: int) -> Parts:
    """The first `rows` to train on, and a few of the others."""
    train, validation = _first(parts.train, rows), parts.validation
    return parts._replace(
        train=train,
        validation=None if validation is None else _first(validation, DRY_ROWS),
        # A simulation's true law is that of all of them.
        test=_first(parts.test, DRY_ROWS) if parts.truth is None else parts.test,
        outside=None if parts.outside is None else parts.outside[:DRY_ROWS],
        sizes=None if parts.sizes is None else (parts.sizes[0][:DRY_ROWS], parts.sizes[1][:DRY_ROWS]),
    )


def _first(rows: Any, n: int) -> Any:
    if isinstance(rows, Augmented):
        return Augmented(_first(rows.sample, n), rows.augment)
    return rows.rows(slice(n)) if isinstance(rows, Sample) else rows.rows(range(min(n, len(rows))))


def _simulated(name: str) -> Parts:
    drawn, fresh = simulate(name), simulate(name, n=TEST_ROWS, seed=TEST_SEED)
    train, validation = drawn.split.train, drawn.split.validation
    return Parts(
        _rows(drawn.X[train], drawn.y[train]),
        _rows(drawn.X[validation], drawn.y[validation]) if len(validation) else None,
        _rows(fresh.X, fresh.y),
        fresh.truth,
        f"{len(train)} training rows, scored on {len(fresh.y)} fresh ones",
    )


def _rows(x: np.ndarray, y: np.ndarray) -> Sample:
    return Sample(torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)), _counts(y))


def _counts(y: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(y).astype(np.float32))


def _with_rows(data: Any) -> Any:
    """The same data, if there are rows for every part."""
    sizes = {name: len(rows) for name, rows in zip(PARTS, data.split, strict=True)}
    for name, rows in sizes.items():
        if rows == 0:
            raise InputError(
                f"{data.name} must have rows to train on, to validate with and to test, got none for {name} of "
                f"{sum(sizes.values())} in all. Give it more."
            )
    return data


def _table(experiment: Experiment, keep: Path | None) -> Parts:
    source: Any = experiment.data
    data = _with_rows(load(source["name"]))
    parts = {name: data.part(name, source["features"]) for name in PARTS}
    rows = {name: _rows(table.to_numpy(), y) for name, (table, y) in parts.items()}
    return Parts(rows["train"], rows["validation"], rows["test"], None, data.note)


def _texts(experiment: Experiment, keep: Path | None) -> Parts:
    source: Any = experiment.data
    data = _with_rows(load(source["name"]))
    tokens, pad = _tokenizer(experiment, keep)
    parts = {name: data.part(name) for name in PARTS}
    rows = {name: Sample(tokens(join_texts(table, source["text"])), _counts(y)) for name, (table, y) in parts.items()}
    outside = tokens(bible()) if experiment.outside == "bible" else None
    sizes = None if outside is None else ((pad != rows["test"].X).sum(1), (outside != pad).sum(1))
    return Parts(rows["train"], rows["validation"], rows["test"], None, data.note, outside, sizes=sizes)


def _tokenizer(experiment: Experiment, keep: Path | None) -> tuple[Callable[[list[str]], Tensor], int]:
    """Texts -> ids, and the id that pads them."""
    source, backbone = experiment.data or {}, experiment.backbone or {}
    length = source["max_length"]
    if experiment.dry_steps and "config" in backbone:
        return lambda texts: _hashed(texts, length, backbone["config"]["vocab_size"]), 0
    tokenizer, pad = tokenizer_of(backbone["pretrained"])
    if tokenizer.pad_token_id != pad:
        raise ConfigError(
            f"a tokenizer must pad with what its model takes for padding, {pad}, got {tokenizer.pad_token_id}. "
            f"Set pad_token_id in {backbone['pretrained']}/config.json."
        )
    return lambda texts: tokenize(
        texts, tokenizer, max_length=length, cache=keep, progress=True
    ), tokenizer.pad_token_id


def _hashed(texts: list[str], length: int, words: int) -> Tensor:
    """Numbers for words without a tokenizer, which comes with the weights that a dry run does without."""
    found = torch.zeros(len(texts), length, dtype=torch.int32)
    for row, text in enumerate(texts):
        ids = [1 + zlib.crc32(word.encode()) % (words - 1) for word in text.split()[:length]]
        found[row, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
    return found


def _pictures(experiment: Experiment, keep: Path | None) -> Parts:
    """Decoded once into memory; very many to train on, changed at random, are read again in every epoch."""
    source: Any = experiment.data
    data = _with_rows(load(source["name"]))
    files = {name: data.images(name, size=source["size"]) for name in PARTS}
    decoded = partial(decode_images, workers=min(experiment.training.workers, cores()), progress=True)
    rows: dict[str, Any] = {name: Sample(*decoded(files[name])) for name in PARTS if name != "train"}
    if source["augment"] and len(files["train"]) * 3 * source["size"] ** 2 > IN_MEMORY:
        rows["train"] = data.images("train", size=source["size"], augment=True)
    else:
        known = Sample(*decoded(files["train"]))
        rows["train"] = Augmented(known, auto_augment) if source["augment"] else known
    return Parts(rows["train"], rows["validation"], rows["test"], None, data.note)


def _clouds(experiment: Experiment, keep: Path | None) -> Parts:
    source: Any = experiment.data
    if source["name"] == "shelves":
        clouds = simulate_shelves(source["beams"], max_points=source["points"], progress=False)
    else:
        clouds = _with_rows(inventory(max_points=source["points"]))
    rows = {name: Sample(x, _counts(y)) for name in PARTS for x, y in [clouds.part(name)]}
    return Parts(rows["train"], rows["validation"], rows["test"], None, clouds.note, classes=len(clouds.classes))


MATERIALS: dict[str, Callable[[Experiment, Path | None], Parts]] = {
    "reviews": _texts,
    "coco_people": _pictures,
    "inventory": _clouds,
    "shelves": _clouds,
}
