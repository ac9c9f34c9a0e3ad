"""Networks as a member: a table encoder, an ensemble of networks that are trained together, and a head."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
import polars as pl
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor
from torch.distributions import Distribution

from ddpn.members.member import Member, NotApplicableError, Task, make_exposure_tensor
from ddpn.members.network_options import (
    MAX_ENCODED_COLUMNS,
    NetworkOptions,
    choose_numeric_encoding,
    make_large_options,
    make_small_options,
)
from ddpn.networks.backbones import MLP
from ddpn.networks.backbones.packed import InputPacking, UnpackedInputs
from ddpn.networks.heads import DEFAULT_LIKELIHOOD, Head, make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import (
    History,
    PerNetworkRows,
    RowStream,
    Runtime,
    StreamedRows,
    TensorRows,
    TrainingConfig,
    fit,
)
from ddpn.rows.count_rows import CountRows
from ddpn.rows.exposure import choose_exposure_unit
from ddpn.rows.splits import FOLDS, assign_folds
from ddpn.runtime.deadlines import NO_LIMIT, Clock, check_deadline
from ddpn.runtime.errors import InputError
from ddpn.runtime.threads import single_thread, threads_for
from ddpn.storage.contents import JsonObject, json_to_bytes
from ddpn.tables.columns import ColumnTable
from ddpn.tables.encoding import FeatureEncoder, encoder_from_bytes, encoder_to_bytes
from ddpn.tables.encoding.encoder import OutOfFoldEffects, assign_folds_by_content, drop_effects, has_effects
from ddpn.tables.encoding.steps import choose_columns
from ddpn.tables.schema import Schema

_FACTS, _WEIGHTS, _ENCODER = "networks.json", "networks.safetensors", "encoder.json"
#: On noisy tables networks are best in the first half of their training (0.15 to 0.5), on others later than this.
_LATE_SHARE = 0.6
#: Rows that are predicted together, so that hidden units stay in cache, and the multiple to which their number is
#: padded: a product with a single row would be summed in another order.
_BLOCK_ROWS, _ROW_MULTIPLE = 256, 8
#: Training rows that are encoded at a time, before their inputs are packed.
PACKED_ROWS = 8192
#: Rows of a stream by which the inputs of a very wide table are chosen.
_MAX_SCREENED_ROWS = 65_536


class Encoded(NamedTuple):
    """Training and validation rows as tensors, the fitted encoder, and the chosen inputs (None for all).

    With a `packing`, the inputs are packed.
    """

    encoder: FeatureEncoder
    chosen: np.ndarray | None
    train: TensorRows | StreamedRows
    validation: TensorRows | None
    packing: InputPacking | None = None

    @property
    def width(self) -> int:
        """The number of inputs."""
        return self.encoder.n_inputs if self.chosen is None else len(self.chosen)


class Networks(Member):
    """An ensemble of networks of one architecture with one head, trained together and mixed equally.

    Of more than 500 columns at most as many inputs as rows are used: those that explain the rows best one by one.

    Parameters
    ----------
    head : Head, optional
        The likelihood. Default: that of `DEFAULT_LIKELIHOOD`, "mixed".
    options : NetworkOptions
        How the networks are built and trained.
    seeds : tuple of int, optional
        A seed per network. Default: drawn from the seed of `fit`.
    runtime : Runtime, optional
        Device and precision. Default: those of `ddpn.networks.training.fit`.
    checkpoint : Path, optional
        A file from which an interrupted training continues.
    verbose : bool
        Show progress.
    stream : RowStream, optional
        Training rows of a table that is larger than memory. The rows of `fit` are a sample of it, which the encoder is
        fitted to; the networks are trained on the stream.
    """

    label = "networks"
    complexity = 5
    encoder: FeatureEncoder
    chosen: np.ndarray | None
    model: CountModel
    history: History

    def __init__(
        self,
        head: Head | None = None,
        options: NetworkOptions = NetworkOptions(),  # noqa: B008
        *,
        seeds: tuple[int, ...] | None = None,
        runtime: Runtime | None = None,
        checkpoint: Path | None = None,
        verbose: bool = False,
        stream: RowStream | None = None,
    ) -> None:
        self.head = make_head(DEFAULT_LIKELIHOOD) if head is None else head
        self.options, self.seeds = options, seeds
        self.runtime, self.checkpoint, self.verbose = runtime, checkpoint, verbose
        self.stream = stream

    @classmethod
    def from_task(cls, task: Task) -> Self:
        # The longest training continues where it was interrupted; the others take seconds.
        checkpoint = None if _can_be_large(task) else task.checkpoint
        return cls(
            task.head, make_small_options(task.options, task.rows), checkpoint=checkpoint, **_get_run_options(task)
        )

    # Fitting -----------------------------------------------------------------------------------------------------

    @torch.inference_mode(False)
    def fit(self, train: CountRows, validation: CountRows | None, seed: int, clock: Clock = NO_LIMIT) -> Self:
        """Train until the clock ends; an interrupted training keeps the best networks, and sets `interrupted`."""
        used = train if train.has_weight.all() else train.rows(train.has_weight)
        self._set_rows(used, len(used))
        numeric, config = self._make_settings(used, self.seeds or _draw_seeds(seed, self.options.n_networks))
        if self.stream is None:
            rows = self._encode(numeric, used, validation, seed, packs=True)
        else:
            rows, config = self._encode_stream(numeric, used, validation, config)
            self.n_rows = len(self.stream)
        model = self._build(rows.width, config.n_networks)
        model.reset(config.seeds, self._start(used))
        trained = model
        if rows.packing is not None:
            trained = model.with_backbone(UnpackedInputs(cast(MLP, model.backbone), rows.packing))
        return self._keep(rows, model, self._train(trained, rows.train, rows.validation, config, clock))

    @torch.inference_mode(False)
    def fit_copies(self, train: CountRows, fold: np.ndarray, seed: int, clock: Clock = NO_LIMIT) -> "list[Networks]":
        """Train the networks of all copies side by side; each copy has its own encoder.

        One epoch is chosen for all of them, by their mean score on the rows that they left out.
        """
        number, n_each = int(fold.max()) + 1, self.options.n_networks
        smallest = len(train) - int(np.bincount(fold).max())
        self._set_rows(train, smallest)
        seeds = _draw_seeds(seed, number * n_each)
        numeric, config = self._make_settings(train, seeds)
        parts = [(train.rows(fold != k), train.rows(fold == k)) for k in range(number)]
        # Not packed, as copies of a network differ in which of their inputs are numbers.
        encoded = [self._encode(numeric, *part, seed, packs=False) for part in parts]
        model = self._build(max(part.width for part in encoded), len(seeds))
        slices = [slice(k * n_each, (k + 1) * n_each) for k in range(number)]
        for k, rows in enumerate(encoded):
            alone = self._build(rows.width, n_each)
            alone.reset(seeds[slices[k]], self._start(train.rows(fold != k)))
            _put_networks(model, slices[k], alone)
        together = _join_copies([(rows.train, rows.validation) for rows in encoded], n_each)
        history = self._train(model, together, None, config, clock)
        copies = []
        for k, rows in enumerate(encoded):
            alone = self._build(rows.width, n_each)
            # The inverse of `_put_networks`.
            shapes = {name: tuple(map(slice, tensor.shape)) for name, tensor in alone.state_dict().items()}
            alone.load_state_dict(
                {name: tensor[slices[k]][shapes[name]] for name, tensor in model.state_dict().items()}
            )
            copies.append(self.copy_for_fold()._keep(rows, alone, history.select_networks(slices[k])))
        return copies

    def _set_rows(self, train: CountRows, rows: int) -> None:
        """Keep the number of rows and the unit of exposures that the networks are fitted with."""
        self.unit, self.n_rows = choose_exposure_unit(train, self.head.exposure_is_total), rows
        self.options = self.options.with_widths(rows)

    def _make_settings(self, train: CountRows, seeds: tuple[int, ...]) -> tuple[str, TrainingConfig]:
        """Return the encoding of numbers, and the training settings of networks with these seeds."""
        numeric, columns = self.options.numeric, np.shape(train.X)[1]
        config = self.options.make_config(self.n_rows, seeds, self.head.validation_score, columns)
        return choose_numeric_encoding(self.n_rows, columns) if numeric == "auto" else numeric, config

    def _keep(self, rows: Encoded, model: CountModel, history: History) -> Self:
        if not history.epochs:
            raise KeyboardInterrupt  # nothing was learned that could be kept
        # Predictions are made in float64: the same for a row alone and among others.
        self.encoder, self.chosen, self.history = rows.encoder, rows.chosen, history
        self.model = model.double().cpu().eval()
        return self

    @property
    def is_underfitted(self) -> bool:  # type: ignore[override]
        """True if the networks were best late in their training."""
        planned = self.options.epochs if isinstance(self.options.epochs, int) else len(self.history.epochs)
        return float(np.mean(self.history.best_epoch)) > _LATE_SHARE * planned

    @property
    def interrupted(self) -> bool:  # type: ignore[override]
        return self.history.interrupted

    def _encode(self, numeric: str, train: CountRows, validation: CountRows | None, seed: int, packs: bool) -> Encoded:
        """Fit an encoder to the training rows, and encode these and the validation rows."""
        check_deadline()
        encoder = FeatureEncoder(numeric=numeric, bins=self.options.bins, categorical=self.options.categorical)
        # Effects of a row's level are those of other rows, and never of rows of its group.
        folds = assign_folds(len(train), FOLDS, seed, train.group)
        packs = packs and np.shape(train.X)[1] <= MAX_ENCODED_COLUMNS
        size = PACKED_ROWS if packs else len(train)
        blocks = encoder.fit_blocks(train.X, train.y, train.weight, train.exposure, folds, size)
        chosen, packing = None, None
        if packs:
            packing = InputPacking(encoder.n_inputs, encoder.numeric_inputs)
            X = packing.pack(blocks, len(train))
        else:
            inputs = next(blocks)
            chosen = self._choose_inputs(train, inputs)
            X = torch.from_numpy(_select_inputs(inputs, chosen))
        train_tensors, validation_tensors = self._to_tensors(train, X), None
        if validation is not None:
            inputs = _select_inputs(encoder.encode(validation.X), chosen)
            X = torch.from_numpy(inputs) if packing is None else packing.pack([inputs], len(validation))
            validation_tensors = self._to_tensors(validation, X)
        return Encoded(encoder, chosen, train_tensors, validation_tensors, packing)

    def _choose_inputs(self, train: CountRows, inputs: np.ndarray) -> np.ndarray | None:
        """Choose the inputs of a very wide table; None for all."""
        if np.shape(train.X)[1] <= MAX_ENCODED_COLUMNS:
            return None
        scale = np.ones(len(train)) if train.exposure is None else train.exposure
        return choose_columns(inputs, train.y / scale, scale * train.weight_or_ones, MAX_ENCODED_COLUMNS)

    def _encode_stream(
        self, numeric: str, train: CountRows, validation: CountRows | None, config: TrainingConfig
    ) -> tuple[Encoded, TrainingConfig]:
        """Fit an encoder to a sample of the rows; return the encoded stream, and the settings of a training on it."""
        assert self.stream is not None
        encoder = FeatureEncoder(numeric=numeric, bins=self.options.bins, categorical=self.options.categorical)
        encoder.fit(train.X, train.y, train.weight, train.exposure)
        # Level effects for rows of the stream that may be in the sample.
        crossed: OutOfFoldEffects | None = None
        while crossed is None and has_effects(encoder):
            folds = assign_folds_by_content(encoder, train.X)
            effects = OutOfFoldEffects(encoder, train.X, train.y, train.weight, train.exposure, folds)
            if effects.weak_columns:
                encoder.set_columns(drop_effects(encoder.columns_, effects.weak_columns))
            else:
                crossed = effects
        some, source = train.rows(slice(0, _MAX_SCREENED_ROWS)), self.stream
        chosen = (
            self._choose_inputs(some, encoder.transform(some.X)) if np.shape(some.X)[1] > MAX_ENCODED_COLUMNS else None
        )
        mean = float(train.weight_or_ones.mean())

        def encode(rows: "pl.DataFrame") -> TensorRows:
            part = source.sample(rows)
            inputs = encoder.transform(part.X) if crossed is None else crossed.encode_by_content(part.X)
            return self._to_tensors(part, torch.from_numpy(_select_inputs(inputs, chosen)), mean)

        validation_rows = None
        if validation is not None:
            inputs = _select_inputs(encoder.transform(validation.X), chosen)
            validation_rows = self._to_tensors(validation, torch.from_numpy(inputs))
        stream, config = StreamedRows.plan_chunks(source, encode, config)
        return Encoded(encoder, chosen, stream, validation_rows), config

    def _to_tensors(self, sample: CountRows, inputs: Tensor, mean: float | None = None) -> TensorRows:
        """Convert rows to float32 tensors (counts to float64 if needed), weights with mean 1, exposures in units.

        `mean` is the mean weight where the sample is a part of the rows.
        """
        dtype = torch.float32 if sample.y.max(initial=0.0) < 2**24 else torch.float64
        weight = None
        if sample.weight is not None:
            weight = torch.from_numpy(sample.weight / (sample.weight.mean() if mean is None else mean)).float()
        exposure = make_exposure_tensor(sample.exposure, self.unit, len(sample))
        counts = {name: part for name, part in sample.parts.items() if name in ("y", "lower", "upper", "limit")}
        return CountRows.from_checked(
            inputs,
            **{name: torch.from_numpy(part).to(dtype) for name, part in counts.items()},
            weight=weight,
            exposure=None if exposure is None else exposure.float(),
        )

    def _start(self, sample: CountRows) -> Tensor | None:
        """Fit the head without features; return None if training starts at random weights."""
        if self.options.start == "random":
            return None
        wide = self._to_tensors(sample.replace(X=None), torch.zeros(len(sample), 0)).map(torch.Tensor.double)
        return self.head.sample_start(wide)

    def _train(
        self,
        model: CountModel,
        rows: TensorRows | PerNetworkRows | StreamedRows,
        validation: TensorRows | None,
        config: TrainingConfig,
        clock: Clock,
    ) -> History:
        return fit(
            model,
            rows,
            validation,
            config,
            runtime=self.runtime or Runtime(),
            verbose=self.verbose,
            checkpoint=self.checkpoint,
            clock=clock,
            title=f"Training {self.label}",
        )

    def _build(self, n_in: int, n_networks: int) -> CountModel:
        hidden, activation = self.options.widths, self.options.activation
        backbone = MLP(n_in=n_in, n_networks=n_networks, hidden=hidden, activation=activation)
        return CountModel(backbone, self.head, n_networks)

    # Predicting --------------------------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema | None:
        return self.encoder.schema_

    @property
    def levels(self) -> Mapping[str, Sequence[str]]:
        return self.encoder.levels

    @torch.no_grad()
    def raw(self, X: ColumnTable) -> Tensor:
        """Compute the raw outputs of every network, the same for a row alone and among others. Shape: (rows, M, P)."""
        inputs = _select_inputs(self.encoder.encode(X), self.chosen)
        blocks = []
        with threads_for(self.model.multiply_adds(torch.from_numpy(inputs[:_BLOCK_ROWS]))):
            for start in range(0, len(inputs), _BLOCK_ROWS):
                block = inputs[start : start + _BLOCK_ROWS]
                # In float64, with rows of zeros up to a multiple of `_ROW_MULTIPLE`.
                padded = np.zeros((len(block) + -len(block) % _ROW_MULTIPLE, block.shape[1]))
                padded[: len(block)] = block
                blocks.append(self.model.raw(torch.from_numpy(padded)))
        return (blocks[0] if len(blocks) == 1 else torch.cat(blocks))[: len(inputs)]

    def distribution(self, X: ColumnTable, exposure: np.ndarray | None = None) -> Distribution:
        raw = self.raw(X)
        scale = make_exposure_tensor(exposure, self.unit, len(raw))
        with single_thread():
            return self.head(raw, None if scale is None else scale.unsqueeze(1))

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, bytes]:
        # Trained in float32, so nothing is lost.
        weights = {name: tensor.float().contiguous() for name, tensor in self.model.state_dict().items()}
        facts = {
            "head": {"name": self.head.name, "options": self.head.options},
            "options": self.options.as_dict(),
            "n_networks": self.model.n_networks,
            "inputs": self.encoder.n_inputs if self.chosen is None else len(self.chosen),
            "chosen": None if self.chosen is None else self.chosen.tolist(),
            "unit": self.unit,
            "rows": self.n_rows,
            "history": self.history.as_dict(),
        }
        files = {_WEIGHTS: save_tensors(weights), _ENCODER: encoder_to_bytes(self.encoder)}
        return files | {_FACTS: json_to_bytes(facts)}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        facts = json.loads(files[_FACTS])
        member = cls(make_head(facts["head"]["name"], **facts["head"]["options"]), NetworkOptions(**facts["options"]))
        member.unit, member.n_rows = float(facts["unit"]), facts["rows"]
        member.history = History(**facts["history"])
        try:
            weights = load_tensors(files[_WEIGHTS])
            with torch.device("meta"):  # no memory is taken for a network that the weights do not fit
                member._build(facts["inputs"], facts["n_networks"]).load_state_dict(weights, assign=True)
            model = member._build(facts["inputs"], facts["n_networks"])
            model.load_state_dict(weights)
        except (RuntimeError, SafetensorError) as error:
            raise InputError(f"{_WEIGHTS} does not fit the network that was saved with it.") from error
        member.encoder = encoder_from_bytes(files[_ENCODER], _ENCODER)
        member.chosen = None if facts["chosen"] is None else np.array(facts["chosen"])
        if member.chosen is not None:
            chosen, width = member.chosen, sum(column.width for column in member.encoder.columns_)
            if chosen.ndim != 1 or chosen.dtype.kind != "i" or not ((chosen >= 0) & (chosen < width)).all():
                raise InputError(f"{_FACTS} is damaged: networks choose inputs that the encoder does not have.")
        member.model = model.double().eval()
        return member

    def get_facts(self) -> JsonObject:
        return {
            "likelihood": self.head.name,
            "head_options": self.head.options,
            "networks": self.model.n_networks,
            "hidden": list(self.options.widths),
            "numeric": self.encoder.numeric,
            "epochs": len(self.history.epochs),
            "best_epochs": self.history.best_epoch,
        }


class LargeNetworks(Networks):
    """Larger networks that are trained longer, for tables on which the default networks are still improving."""

    label = "large networks"
    complexity = 6
    larger_than = "networks"

    @classmethod
    def from_task(cls, task: Task) -> Self:
        if not _can_be_large(task):
            raise NotApplicableError("the networks have a size, an encoding or a number of epochs that was given")
        return cls(
            task.head, make_large_options(task.options, task.rows), checkpoint=task.checkpoint, **_get_run_options(task)
        )


def _can_be_large(task: Task) -> bool:
    """Return True if large networks apply: a count likelihood, and network sizes that no user has set."""
    default = NetworkOptions()
    is_customised = any(
        getattr(task.options, name) != getattr(default, name) for name in ("hidden", "numeric", "epochs")
    )
    return task.head.is_count and not is_customised


def _get_run_options(task: Task) -> JsonObject:
    return {"runtime": task.runtime, "verbose": task.verbose, "stream": task.stream}


def _draw_seeds(seed: int, number: int) -> tuple[int, ...]:
    return tuple(np.random.RandomState(seed).randint(2**31 - 1, size=number).tolist())


def _select_inputs(inputs: np.ndarray, chosen: np.ndarray | None) -> np.ndarray:
    return inputs if chosen is None else np.ascontiguousarray(inputs[:, chosen])


# Networks of several copies of a member, each with inputs of its own, that are trained as one model -------------------


def _join_copies(copies: Sequence[tuple[Any, Any]], n_each: int) -> PerNetworkRows:
    """Join rows of copies with their own inputs, for joint training; inputs of other copies are 0."""
    width, samples, end = max(train.X.shape[1] for train, _ in copies), [], 0
    positions: tuple[list[Tensor], list[Tensor]] = [], []
    for copy in copies:
        for sample, indices in zip(copy, positions, strict=True):
            more = torch.zeros(len(sample), width - sample.X.shape[1])
            samples.append(sample.replace(X=torch.cat([sample.X, more], dim=1)))
            indices += [torch.arange(end, end + len(sample))] * n_each
            end += len(sample)
    joined = {name: torch.cat([sample.parts[name] for sample in samples]) for name in samples[0].parts}
    return PerNetworkRows(CountRows.from_checked(**joined), *positions)


def _put_networks(model: CountModel, networks: slice, part: CountModel) -> None:
    """Copy the networks of one copy into the slice of the jointly trained ones.

    Inputs that only other copies have come last. They are 0 for these networks, and so are their weights: a copy starts
    as if it were alone, whatever inputs others have.
    """
    whole = model.state_dict()
    for name, tensor in part.state_dict().items():
        whole[name][networks] = 0.0
        whole[name][networks][tuple(map(slice, tensor.shape))] = tensor
