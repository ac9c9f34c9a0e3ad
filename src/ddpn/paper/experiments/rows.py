"""Load the rows of an experiment, make its network, and compute the outputs of its frozen layers once.

A fine-tuned network consists of a frozen part, the trunk, and a trained part, the tail. The outputs of the trunk are
called features.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ddpn.distributions import CountDistribution
from ddpn.networks.backbones import BACKBONES, MLP, FineTuned
from ddpn.networks.backbones.pretrained import load_tokenizer
from ddpn.networks.training import Runtime, TensorRows
from ddpn.paper.datasets import Dataset, bible, load, simulate, simulate_shelves
from ddpn.paper.datasets.dataset import PARTS
from ddpn.paper.experiments.experiment import Experiment
from ddpn.paper.inputs import auto_augment, decode_images, join_texts, tokenize
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.progress import progress_bar
from ddpn.storage.contents import JsonObject
from ddpn.storage.tensor_files import fingerprint

#: The share of the memory that features may use.
_MAX_MEMORY_SHARE = 0.4


def make_network(experiment: Experiment, width: int, n_networks: int, hidden: tuple[int, ...], classes: int = 0) -> Any:
    """Make the backbone of an experiment, or an MLP with `width` inputs if it declares none.

    `hidden` are the widths of the hidden layers. `classes` is the number of geometry classes, which are an input of the
    backbone of point clouds; it is 0 for other data.
    """
    if experiment.backbone is None:
        return MLP(n_in=width, hidden=hidden, n_networks=n_networks)
    options = {key: value for key, value in experiment.backbone.items() if key != "name"}
    if experiment.backbone["name"] == "countnet3d":
        options["n_classes"] = classes
    try:
        return BACKBONES[experiment.backbone["name"]](**options, hidden=hidden, n_networks=n_networks)
    except TypeError as error:
        raise ConfigError(f"Invalid option in [backbone] of {experiment.name}: {error}.") from error


def compute_features(trunk: nn.Module, x: Tensor, runtime: Runtime, precision: str) -> Tensor:
    """Compute the features (outputs of the trunk) of all rows in batches, and return them on the CPU.

    `x` has the inputs of all rows, and `runtime` the device. `precision` is "float32" or "bf16", as in the training.
    Texts of similar length share a batch, which saves padding. Shape of the result: (rows, ...).
    """
    order = (x != 0).sum(1).argsort() if not x.is_floating_point() and x.dim() == 2 else torch.arange(len(x))
    features = torch.empty(0)
    # On a CPU, batches are small enough for the cache.
    with progress_bar("Features", len(x)) as bar:
        for index in order.split(8 if runtime.device.type == "cpu" else 256):
            outputs = _compute_batch(trunk, x[index], runtime, precision).cpu()
            features = features if len(features) else torch.zeros(len(x), *outputs.shape[1:], dtype=outputs.dtype)
            features[index] = outputs
            bar.advance(len(index))
    return features


def _compute_batch(trunk: nn.Module, x: Tensor, runtime: Runtime, precision: str) -> Tensor:
    """Compute the features of one batch on the trunk's device, with the `precision` of the training."""
    with torch.no_grad(), runtime.autocast(precision):
        outputs = trunk(x.to(runtime.device))
    return outputs.to(torch.bfloat16) if precision == "bf16" and outputs.dim() > 2 else outputs.float()


# Rows: tables, simulations, texts, images and point clouds ------------------------------------------------------------


#: The number of test rows of a simulation. With a hundred, the score of the true distribution would vary by 10%.
TEST_ROWS = 10_000
#: The seed of the test rows. It differs from that of the training rows and is the same for every training.
TEST_SEED = 7


class ExperimentRows(NamedTuple):
    """The training, validation and test rows of an experiment.

    - `validation` is None if there are no validation rows. Networks then keep the weights of their last epoch.
    - `note` is a remark about the rows.
    - `truth` has the true distributions of the test counts if the rows are simulated; otherwise it is None.
    - `ood` has the inputs of out-of-distribution rows, which have no counts.
    - `augment` is a random transformation of training inputs.
    - `cached` is True if the inputs of all rows were replaced by features, the outputs of the network's frozen layers.
    - `classes` is the number of geometry classes of point clouds.
    - `source` has the checksums of the rows before their inputs were replaced by features.
    """

    train: TensorRows
    validation: TensorRows | None
    test: TensorRows
    note: str
    truth: CountDistribution | None = None
    ood: Tensor | None = None
    augment: Callable[[Tensor], Tensor] | None = None
    cached: bool = False
    classes: int = 0
    source: tuple[int, ...] | None = None

    @property
    def identity(self) -> list[int]:
        """The checksums of the rows, as they were before any features were computed from them.

        Features have no checksums, because their rounding depends on the machine.
        """
        if self.source is not None:
            return list(self.source)
        samples = [rows for rows in (self.train, self.validation, self.test) if rows is not None]
        tensors = [values for rows in samples for values in (rows.X, rows.y)] + ([] if self.ood is None else [self.ood])
        return [fingerprint(tensor) for tensor in tensors]


def load_rows(experiment: Experiment, device: str = "cpu", copies: int = 1) -> ExperimentRows:
    """Load or simulate the rows of an experiment.

    If the network has frozen layers, the inputs are replaced by the outputs of these layers, called features, unless
    training inputs are augmented. Features are computed on the torch device `device`.

    `copies` is the number of processes on this machine that hold the rows at the same time. If so many copies of the
    features would not fit into memory, the inputs are not replaced.
    """
    if experiment.simulation is not None:
        parts = _simulate_rows(experiment.simulation["name"])
    else:
        source: Any = experiment.data
        parts = LOADERS.get(source["name"], _convert_table)(experiment, load_data(source))
    network = None
    if experiment.backbone is not None:
        network = make_network(experiment, 0, 1, experiment.training.hidden, parts.classes)
    trunk = network.trunk if isinstance(network, FineTuned) else None
    precision = experiment.training.precision
    return parts if trunk is None else _replace_inputs(parts, trunk, Runtime(device), precision, copies)


def _replace_inputs(
    parts: ExperimentRows, trunk: nn.Module, runtime: Runtime, precision: str, copies: int
) -> ExperimentRows:
    """Replace the inputs of all rows by features, which are computed once for all methods, networks and epochs.

    Features are the outputs of `trunk`, the frozen layers. The rows are returned unchanged if training inputs are
    augmented, or if `copies` copies of the features would not fit into memory.
    """
    if parts.augment is not None:
        return parts
    samples = {name: getattr(parts, name) for name in PARTS if getattr(parts, name) is not None}
    inputs = [rows.X for rows in samples.values()] + ([] if parts.ood is None else [parts.ood])
    trunk, device = trunk.to(runtime.device), runtime.device
    one = _compute_batch(trunk, inputs[0][:1], runtime, precision)
    needed = one.numel() * one.element_size() * sum(map(len, inputs)) * copies
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else pages
    # All processes that share a training must decide in the same way.
    too_large = torch.full((1,), float(needed > _MAX_MEMORY_SHARE * memory), device=device)
    runtime.sum_over_processes(too_large)
    if too_large > 0:
        return parts
    features = [compute_features(trunk, x, runtime, precision) for x in inputs]
    rows_with_features = {name: rows.replace(X=x) for (name, rows), x in zip(samples.items(), features, strict=False)}
    ood = None if parts.ood is None else features[-1]
    return parts._replace(**rows_with_features, ood=ood, cached=True, source=tuple(parts.identity))


def _simulate_rows(name: str) -> ExperimentRows:
    drawn, fresh = simulate(name), simulate(name, n=TEST_ROWS, seed=TEST_SEED)
    train, validation = drawn.split.train, drawn.split.validation
    rows: list[TensorRows] = [
        CountRows(_floats(drawn.X[part]), _floats(drawn.y[part])) for part in (train, validation) if len(part)
    ]
    note = f"{len(train)} training rows, scored on {len(fresh.y)} fresh ones"
    return ExperimentRows(
        rows[0], rows[1] if len(rows) > 1 else None, CountRows(_floats(fresh.X), _floats(fresh.y)), note, fresh.truth
    )


def _floats(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def load_data(source: JsonObject) -> Any:
    """Load the data set of an experiment from disk, or simulate it if its name is "shelves".

    `source` is the setting `data` of the experiment, a dict with the key "name". An `InputError` is raised if the data
    set has too few rows for training, validation and test rows.
    """
    if source["name"] == "shelves":
        data = simulate_shelves(source["beams"], max_points=source["points"])
    else:
        data = load(source["name"])
    for name, rows in zip(PARTS, data.split, strict=True):
        if len(rows) == 0:
            raise InputError(f"{data.name} has too few rows to split: {data.split.n}, none for {name}.")
    return data


def _convert_dataset(
    data: Dataset, encode: Callable[[Any], Tensor], features: str = "raw", **fields: Any
) -> ExperimentRows:
    """Convert a data set to `ExperimentRows`.

    `encode` converts the inputs of the training, validation or test rows to a tensor. `features` is the name of the
    feature set to use, and `fields` are further fields of `ExperimentRows`.
    """
    parts = {name: data.part(name, features) for name in PARTS}
    rows: Any = {name: CountRows(encode(inputs), _floats(y)) for name, (inputs, y) in parts.items()}
    return ExperimentRows(**rows, note=data.note, **fields)


def _convert_table(experiment: Experiment, data: Dataset) -> ExperimentRows:
    source: Any = experiment.data
    return _convert_dataset(data, lambda table: _floats(table.to_numpy()), source["features"])


def _convert_texts(experiment: Experiment, data: Dataset) -> ExperimentRows:
    source, backbone = experiment.data or {}, experiment.backbone or {}
    tokenizer, pad = load_tokenizer(backbone["pretrained"])
    if tokenizer.pad_token_id != pad:
        raise ConfigError(
            f"pad_token_id of the tokenizer must be that of its model, {pad}, got {tokenizer.pad_token_id}. "
            f"Set it in {backbone['pretrained']}/config.json."
        )
    tokens = partial(tokenize, tokenizer=tokenizer, max_length=source["max_length"])
    ood = None if experiment.ood is None else tokens(bible())
    return _convert_dataset(data, lambda table: tokens(join_texts(table, source["text"])), ood=ood)


def _decode_images(experiment: Experiment, data: Dataset) -> ExperimentRows:
    """Decode all images of a data set into memory. If the experiment asks for augmentation, also set `augment`."""
    source, root = dict(experiment.data or {}), Path(data.root or "")
    augment = partial(auto_augment, group_size=source.get("images_per_policy", 8)) if source["augment"] else None
    return _convert_dataset(
        data, lambda table: decode_images([root / name for name in table["file"]], source["size"]), augment=augment
    )


def _convert_clouds(experiment: Experiment, data: Dataset) -> ExperimentRows:
    return _convert_dataset(data, lambda beams: beams, classes=len(data.classes))


LOADERS = {
    "reviews": _convert_texts,
    "coco_people": _decode_images,
    "shelves": _convert_clouds,
    "inventory": _convert_clouds,
}
