"""Fit networks as a member: encode the rows, and train all networks of the ensemble together.

A cross-fitted member has one copy per fold, which is an ensemble of networks that is fitted without this fold. The
networks of all copies are trained together, as one large ensemble.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from ddpn.members.member import make_exposure_tensor
from ddpn.members.network_options import MAX_ENCODED_COLUMNS, NetworkOptions, choose_numeric_encoding
from ddpn.networks.backbones import MLP, check_table_backbone
from ddpn.networks.backbones.packed import InputPacking, UnpackingBackbone
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
from ddpn.runtime.deadlines import Clock, check_deadline
from ddpn.runtime.errors import ConfigError
from ddpn.tables.encoding import TableEncoder
from ddpn.tables.encoding.out_of_fold import OutOfFoldEffects, assign_folds_by_content, drop_effects, has_effects
from ddpn.tables.encoding.steps import choose_columns

if TYPE_CHECKING:
    from ddpn.members.networks import Networks

NetworksType = TypeVar("NetworksType", bound="Networks")

#: The number of training rows that are encoded together before their inputs are packed.
PACKED_ROWS = 8192
#: The most rows of a stream that are used to choose the inputs of a very wide table.
_MAX_SCREENED_ROWS = 65_536


class EncodedRows(NamedTuple):
    """Training and validation rows as tensors, with the encoder that was fitted to the training rows.

    `train` has tensors, or a stream that is read and encoded during training. `chosen` has the positions of the
    encoder's output columns that the networks use. It is None if they use all. If `packing` is given, the inputs of a
    row are stored as bytes, which `packing` converts back to numbers.
    """

    encoder: TableEncoder
    chosen: np.ndarray | None
    train: TensorRows | StreamedRows
    validation: TensorRows | None
    packing: InputPacking | None = None

    @property
    def width(self) -> int:
        """The number of inputs of each network."""
        return self.encoder.n_inputs if self.chosen is None else len(self.chosen)


class NetworkFit(Generic[NetworksType]):
    """Fits an ensemble of networks, or the ensembles of all copies of a cross-fitted member.

    Parameters
    ----------
    kind : type
        The class of the fitted member, `Networks` or a subclass.
    head : Head, optional
        The likelihood. Default: `DEFAULT_LIKELIHOOD`, "mixed".
    options : NetworkOptions
        How the networks are built and trained.
    seeds : tuple of int, optional
        One seed per network. Default: drawn from the seed of `fit`.
    runtime : Runtime, optional
        The device on which networks are trained, and the processes that share this work. Default: a GPU if there is
        one.
    checkpoint : Path, optional
        A file for the state of the training. If training was interrupted, it continues from this file.
    verbose : bool
        Show progress.
    stream : RowStream, optional
        All training rows of a table that is larger than memory. The networks are trained on the stream. The training
        rows that are passed to `fit` are then a sample of it, to which the encoder is fitted.
    """

    def __init__(
        self,
        kind: type[NetworksType],
        head: Head | None = None,
        options: NetworkOptions = NetworkOptions(),  # noqa: B008
        *,
        seeds: tuple[int, ...] | None = None,
        runtime: Runtime | None = None,
        checkpoint: Path | None = None,
        verbose: bool = False,
        stream: RowStream | None = None,
    ) -> None:
        self.kind = kind
        self.head = make_head(DEFAULT_LIKELIHOOD) if head is None else head
        self.options, self.seeds = options, seeds
        self.runtime, self.checkpoint, self.verbose = runtime, checkpoint, verbose
        self.stream = stream

    def fit(self, train: CountRows, validation: CountRows | None, seed: int, clock: Clock) -> NetworksType:
        """Fit one ensemble: encode the rows and train the networks. Return it as a fitted member.

        Each network keeps the weights of the epoch with its best score on the validation rows. Training rows without
        weight are left out. If training is interrupted by Ctrl-C or the time of `clock` runs out, the best weights so
        far are kept. If that happens before the first epoch is complete, a `KeyboardInterrupt` or a `TimeLimitError` is
        raised.
        """
        training_rows = train if train.has_weight.all() else train.rows(train.has_weight)
        self._set_row_attributes(training_rows, len(training_rows))
        seeds = self.seeds or _draw_seeds(seed, self.options.n_networks)
        numeric_encoding, config = self._choose_settings(training_rows, seeds)
        if self.stream is None:
            packs_inputs = self.options.backbone == "mlp"
            rows = self._encode(numeric_encoding, training_rows, validation, seed, packs_inputs)
        else:
            rows, config = self.encode_stream(numeric_encoding, training_rows, validation, config)
            self.n_rows = len(self.stream)
        model = self._build(rows.width, config.n_networks)
        model.reset(config.seeds, self._fit_intercepts(training_rows))
        model_with_unpacking = model
        if rows.packing is not None:
            model_with_unpacking = model.with_backbone(UnpackingBackbone(cast(MLP, model.backbone), rows.packing))
        return self._make_member(
            rows, model, self._train(model_with_unpacking, rows.train, rows.validation, config, clock)
        )

    def fit_copies(self, train: CountRows, fold: np.ndarray, seed: int, clock: Clock) -> list[NetworksType]:
        """Fit one ensemble per fold to the rows outside this fold, each with its own encoder.

        Return one fitted member (`Networks` or a subclass) per fold, in the order of the folds.

        `fold` has the fold of each row, numbered from 0. The networks of all ensembles are trained together. They all
        keep the weights of the same epoch: the one with the best mean score, where each network is scored on the fold
        that it left out.
        """
        n_folds, n_per_copy = int(fold.max()) + 1, self.options.n_networks
        smallest = len(train) - int(np.bincount(fold).max())
        self._set_row_attributes(train, smallest)
        seeds = _draw_seeds(seed, n_folds * n_per_copy)
        numeric_encoding, config = self._choose_settings(train, seeds)
        fold_rows = [(train.rows(fold != k), train.rows(fold == k)) for k in range(n_folds)]
        # Not packed, because the copies differ in which inputs are numbers.
        encoded = [self._encode(numeric_encoding, *rows, seed, packs_inputs=False) for rows in fold_rows]
        model = self._build(max(rows.width for rows in encoded), len(seeds))
        slices = [slice(k * n_per_copy, (k + 1) * n_per_copy) for k in range(n_folds)]
        for k, rows in enumerate(encoded):
            copy_model = self._build(rows.width, n_per_copy)
            copy_model.reset(seeds[slices[k]], self._fit_intercepts(train.rows(fold != k)))
            _insert_copy(model, slices[k], copy_model)
        joint_rows = _join_copies([(rows.train, rows.validation) for rows in encoded], n_per_copy)
        history = self._train(model, joint_rows, None, config, clock)
        copies = []
        for k, rows in enumerate(encoded):
            copy_model = self._build(rows.width, n_per_copy)
            # The inverse of `_insert_copy`.
            shapes = {name: tuple(map(slice, tensor.shape)) for name, tensor in copy_model.state_dict().items()}
            copy_model.load_state_dict(
                {name: tensor[slices[k]][shapes[name]] for name, tensor in model.state_dict().items()}
            )
            copies.append(self._make_member(rows, copy_model, history.select_networks(slices[k])))
        return copies

    def _set_row_attributes(self, train: CountRows, rows: int) -> None:
        """Set the attributes `unit` (the reference exposure), `n_rows`, and the layer widths in `options`.

        They depend on the training rows `train`. `rows` is the number of rows on which each network is trained.
        """
        self.unit, self.n_rows = choose_exposure_unit(train, self.head.exposure_is_total), rows
        self.options = self.options.with_widths(rows)

    def _choose_settings(self, train: CountRows, seeds: tuple[int, ...]) -> tuple[str, TrainingConfig]:
        """Choose the encoding of numeric columns, such as "steps", and the training settings; return both.

        They depend on the numbers of rows and columns of `train`, unless the user has set them. `seeds` has one seed
        per network.
        """
        numeric, columns = self.options.numeric, np.shape(train.X)[1]
        config = self.options.make_config(self.n_rows, seeds, self.head.validation_score, columns)
        return choose_numeric_encoding(self.n_rows, columns) if numeric == "auto" else numeric, config

    def _make_member(self, rows: EncodedRows, model: CountModel, history: History) -> NetworksType:
        """Create the fitted member from the trained model, which is converted to float64 and moved to the CPU in place.

        `rows` has the encoder, and `history` is the record of the training. Raise a `KeyboardInterrupt` if the training
        was interrupted before the first epoch was complete.
        """
        if not history.epochs:
            raise KeyboardInterrupt
        # Predictions are computed in float64, so that they do not depend on the other rows.
        model = model.double().cpu().eval()
        return self.kind(self.head, self.options, rows.encoder, rows.chosen, model, self.unit, self.n_rows, history)

    def _encode(
        self, numeric_encoding: str, train: CountRows, validation: CountRows | None, seed: int, packs_inputs: bool
    ) -> EncodedRows:
        """Fit an encoder to the training rows, and encode the training and validation rows.

        `numeric_encoding` is the encoding of numeric columns, such as "steps". `seed` draws folds of the training rows:
        level effects (target encoding) of a row are computed from the other folds. If `packs_inputs`, the inputs of a
        row are stored as bytes to save memory, unless the table has more than 500 columns.
        """
        check_deadline()
        encoder = self._make_encoder(numeric_encoding)
        # The level effects of a row are computed from other folds, so never from rows of the same group.
        folds = assign_folds(len(train), FOLDS, seed, train.group)
        packs_inputs = packs_inputs and np.shape(train.X)[1] <= MAX_ENCODED_COLUMNS
        size = PACKED_ROWS if packs_inputs else len(train)
        blocks = encoder.fit_blocks(train.X, train.y, train.weight, train.exposure, folds, size)
        chosen, packing = None, None
        if packs_inputs:
            packing = InputPacking(encoder.n_inputs, encoder.numeric_inputs)
            X = packing.pack(blocks, len(train))
        else:
            inputs = next(blocks)
            chosen = self._choose_inputs(train, inputs)
            X = torch.from_numpy(select_inputs(inputs, chosen))
        train_tensors, validation_tensors = self.to_tensors(train, X), None
        if validation is not None:
            inputs = select_inputs(encoder.encode(validation.X), chosen)
            X = torch.from_numpy(inputs) if packing is None else packing.pack([inputs], len(validation))
            validation_tensors = self.to_tensors(validation, X)
        return EncodedRows(encoder, chosen, train_tensors, validation_tensors, packing)

    def _make_encoder(self, numeric_encoding: str) -> TableEncoder:
        return TableEncoder(numeric=numeric_encoding, bins=self.options.bins, categorical=self.options.categorical)

    def _choose_inputs(self, train: CountRows, inputs: np.ndarray) -> np.ndarray | None:
        """Choose the most predictive inputs if the table has more than 500 columns.

        `inputs` has the encoded training rows, of shape (rows, inputs). As many inputs are chosen as there are rows,
        but at least 500. Return their positions, or None to use all inputs.
        """
        if np.shape(train.X)[1] <= MAX_ENCODED_COLUMNS:
            return None
        exposure = train.exposure_or_ones
        return choose_columns(inputs, train.y / exposure, exposure * train.weight_or_ones, MAX_ENCODED_COLUMNS)

    def encode_stream(
        self, numeric_encoding: str, train: CountRows, validation: CountRows | None, config: TrainingConfig
    ) -> tuple[EncodedRows, TrainingConfig]:
        """Fit an encoder to `train`, a sample of the stream, and prepare the training on the whole stream.

        Return the encoded rows and the training settings. The rows are read and encoded during training. The settings
        are those of `config`, except that an epoch covers only a part of the stream. `numeric_encoding` is the encoding
        of numeric columns, such as "steps".
        """
        assert self.stream is not None
        encoder = self._make_encoder(numeric_encoding)
        encoder.fit(train.X, train.y, train.weight, train.exposure)
        # Rows of the stream may be in the sample, so their level effects must be computed out of fold.
        crossed: OutOfFoldEffects | None = None
        while crossed is None and has_effects(encoder):
            folds = assign_folds_by_content(encoder, train.X)
            effects = OutOfFoldEffects(encoder, train.X, train.y, train.weight, train.exposure, folds)
            if effects.weak_columns:
                encoder.set_columns(drop_effects(encoder.columns_, effects.weak_columns))
            else:
                crossed = effects
        screened_rows, source = train.rows(slice(0, _MAX_SCREENED_ROWS)), self.stream
        chosen = (
            self._choose_inputs(screened_rows, encoder.encode(screened_rows.X))
            if np.shape(screened_rows.X)[1] > MAX_ENCODED_COLUMNS
            else None
        )
        mean_weight = float(train.weight_or_ones.mean())

        def encode(rows: pl.DataFrame) -> TensorRows:
            chunk_rows = source.sample(rows)
            if crossed is None:
                inputs = encoder.encode(chunk_rows.X)
            else:
                inputs = crossed.encode(chunk_rows.X, assign_folds_by_content(encoder, chunk_rows.X))
            return self.to_tensors(chunk_rows, torch.from_numpy(select_inputs(inputs, chosen)), mean_weight)

        validation_rows = None
        if validation is not None:
            inputs = select_inputs(encoder.encode(validation.X), chosen)
            validation_rows = self.to_tensors(validation, torch.from_numpy(inputs))
        stream, config = StreamedRows.plan_chunks(source, encode, config)
        return EncodedRows(encoder, chosen, stream, validation_rows), config

    def to_tensors(self, sample: CountRows, inputs: Tensor, mean_weight: float | None = None) -> TensorRows:
        """Convert rows to tensors, with `inputs` in place of the table: the encoded or packed inputs, one row each.

        The tensors are float32. If a count is 2^24 or more, counts and their bounds are float64, because float32 would
        round them. Exposures are divided by the reference exposure. Weights are divided by `mean_weight`, by default
        the mean weight of these rows. If these rows are a part of the training rows, pass the mean weight of all of
        them.
        """
        dtype = torch.float32 if sample.y.max(initial=0.0) < 2**24 else torch.float64
        weight = None
        if sample.weight is not None:
            divisor = sample.weight.mean() if mean_weight is None else mean_weight
            weight = torch.from_numpy(sample.weight / divisor).float()
        exposure = make_exposure_tensor(sample.exposure, self.unit, len(sample))
        counts = {name: part for name, part in sample.parts.items() if name in ("y", "lower", "upper", "limit")}
        return CountRows.from_checked(
            inputs,
            **{name: torch.from_numpy(part).to(dtype) for name, part in counts.items()},
            weight=weight,
            exposure=None if exposure is None else exposure.float(),
        )

    def _fit_intercepts(self, sample: CountRows) -> Tensor | None:
        """Fit the likelihood to the counts in `sample` without features, and return its raw outputs, such as log mu.

        Training starts from them. The result has shape (head.n_raw,). Return None if the options ask for a random
        start.
        """
        if self.options.start == "random":
            return None
        wide = self.to_tensors(sample.replace(X=None), torch.zeros(len(sample), 0)).map(torch.Tensor.double)
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
            title=f"Training {self.kind.label}",
        )

    def _build(self, n_in: int, n_networks: int) -> CountModel:
        return build_model(self.head, self.options, n_in, n_networks)


def build_model(head: Head, options: NetworkOptions, n_in: int, n_networks: int) -> CountModel:
    """Build a model of `n_networks` networks with `n_in` inputs each, for the likelihood `head`.

    `options` has the backbone, the layer widths and the activation. The weights are not initialised; call
    `CountModel.reset`.
    """
    if options.backbone == "mlp":
        layers = MLP(n_in=n_in, n_networks=n_networks, hidden=options.widths, activation=options.activation)
        return CountModel(layers, head, n_networks)
    # Layers of torch draw weights from its global stream, which is restored.
    with torch.random.fork_rng(devices=[]):
        backbone = check_table_backbone(options.backbone)(n_in=n_in, n_networks=n_networks)
    if not isinstance(backbone, nn.Module):
        raise ConfigError(argument="backbone", must="return a torch.nn.Module", got=type(backbone).__name__)
    return CountModel(backbone, head, n_networks)


def select_inputs(inputs: np.ndarray, chosen: np.ndarray | None) -> np.ndarray:
    """Select the columns of a matrix of inputs at the positions `chosen`; None selects all columns.

    Shape: (rows, inputs) -> (rows, chosen inputs).
    """
    return inputs if chosen is None else np.ascontiguousarray(inputs[:, chosen])


def _draw_seeds(seed: int, number: int) -> tuple[int, ...]:
    return tuple(np.random.RandomState(seed).randint(2**31 - 1, size=number).tolist())


# Networks of several copies of a member, each with its own inputs, that are trained as one model ----------------------


def _join_copies(copies: Sequence[tuple[Any, Any]], n_per_copy: int) -> PerNetworkRows:
    """Concatenate the rows of all copies of a cross-fitted member, so that their networks can be trained together.

    `copies` has one pair per copy: its training rows and its validation rows, both as tensors. A copy has `n_per_copy`
    networks, and all of them get the rows of their copy. The encoders of the copies may differ in their number of
    inputs, so rows with fewer inputs are padded with zeros.
    """
    width, samples, end = max(train.X.shape[1] for train, _ in copies), [], 0
    positions: tuple[list[Tensor], list[Tensor]] = [], []
    for copy in copies:
        for sample, indices in zip(copy, positions, strict=True):
            padding = torch.zeros(len(sample), width - sample.X.shape[1])
            samples.append(sample.replace(X=torch.cat([sample.X, padding], dim=1)))
            indices += [torch.arange(end, end + len(sample))] * n_per_copy
            end += len(sample)
    joined = {name: torch.cat([sample.parts[name] for sample in samples]) for name in samples[0].parts}
    return PerNetworkRows(CountRows.from_checked(**joined), *positions)


def _insert_copy(model: CountModel, networks: slice, copy: CountModel) -> None:
    """Write the weights of the model of one copy into the joint model of all copies, `model`, in place.

    `networks` has the positions of the networks of this copy in the joint model. If the joint model has more inputs
    than the copy, the rows of this copy are padded with zeros (`_join_copies`). The weights of these inputs are set to
    0, so that training starts as if the copy were trained alone.
    """
    whole = model.state_dict()
    for name, tensor in copy.state_dict().items():
        whole[name][networks] = 0.0
        whole[name][networks][tuple(map(slice, tensor.shape))] = tensor
