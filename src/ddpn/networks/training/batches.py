"""Batches of training rows, from memory or from a stream, and checks of these rows.

In shapes, B is the number of rows of a batch and M the number of networks.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ddpn.networks.backbones.packed import holds_table_rows
from ddpn.networks.heads import Head
from ddpn.networks.training.config import WHOLE_BATCH, TrainingConfig, WorkerShard
from ddpn.rows.checks import check_counts, check_vector
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError, InputError

if TYPE_CHECKING:
    import polars as pl

#: Rows whose inputs and vectors are tensors.
TensorRows: TypeAlias = CountRows[Tensor, Tensor]
#: Rows of a table per batch when no gradients are kept.
_SCORED_TABLE_ROWS = 8192
#: Rows per batch when no gradients are kept, per row of a training batch. They need no more memory than a training step
#: if the network has a few layers or more.
SCORED_ROWS_PER_TRAINED_ROW = 4
#: Rows that are augmented together, because a second copy of all images would fill a GPU.
AUGMENTED_ROWS = 1024
#: Rows of a stream that are encoded together; about 2 KB each for 40 numeric columns.
CHUNK_ROWS = 16_384
#: The approximate number of epochs of a stream, each of which scores the validation rows; and the most chunks per
#: epoch.
_STREAM_EPOCHS, _MAX_CHUNKS_PER_EPOCH = 40, 16


@dataclass(frozen=True, eq=False)
class PerNetworkRows:
    """Rows in memory for networks that are trained on different rows, such as the copies of a cross-fitted member.

    `train` and `validation` have one tensor per network: the positions of its rows in `sample`. If a row is encoded
    differently for different networks, `sample` contains each version of it. All networks keep the weights of the same
    epoch: the one with the best mean validation score. This mean is used because it hardly depends on any single row.
    """

    sample: TensorRows
    train: Sequence[Tensor]
    validation: Sequence[Tensor]

    def __post_init__(self) -> None:
        sizes = [len(rows) for rows in (*self.train, *self.validation)]
        if len(self.train) != len(self.validation) or not min(sizes, default=0):
            got = [[len(rows) for rows in part] for part in (self.train, self.validation)]
            raise ConfigError(f"Every network must have rows to train on and rows to validate with, got {got}.")

    def __len__(self) -> int:
        return len(self.sample)


def gather_rows(sample: TensorRows, index: Tensor) -> TensorRows:
    """Select rows by position, separately for each network.

    `index` has shape (M, B): for each network, the positions of its rows in `sample`. The fields of the result have
    shape (B, M, ...).
    """
    flat = index.reshape(-1)
    return sample.map(lambda t: t.index_select(0, flat).view(*index.shape, *t.shape[1:]).transpose(0, 1))


def iter_chunks(sample: TensorRows, size: int) -> Iterator[TensorRows]:
    """Split rows whose fields are tensors into chunks of `size` rows, and yield the chunks in order.

    This is faster than `CountRows.blocks`, which also handles other arrays.
    """
    for start in range(0, len(sample), size):
        yield sample.map(lambda t, part=slice(start, start + size): t[part])  # type: ignore[misc]


class MemoryBatches:
    """Batches of training rows in memory. In every epoch, each network gets its rows in a new random order.

    All networks take the same number of steps per epoch, limited by the network with the fewest rows. The last rows of
    an epoch are skipped if they do not fill a batch.

    Parameters
    ----------
    sample : CountRows of tensors
        The rows, on the device.
    batch_size : int
        The number of rows per step.
    positions : sequence of Tensor of int, shape (rows of the network,), optional
        For each network, the positions of its rows in `sample`. Default: all rows, for every network.
    shard : WorkerShard
        The rows of each batch that this process computes.
    accumulate : int
        The number of parts into which each batch is split to save memory. Their gradients are added up.
    augment : callable, optional
        Randomly changes the inputs before every epoch. It is called with a part of the `original_inputs` at a time, a
        tensor (rows, ...), and returns inputs of the same shape and dtype.
    original_inputs : Tensor, optional
        The inputs to which `augment` is applied, on any device. Default: those of `sample`.
    """

    def __init__(
        self,
        sample: TensorRows,
        batch_size: int,
        positions: Sequence[Tensor] | None = None,
        shard: WorkerShard = WHOLE_BATCH,
        accumulate: int = 1,
        augment: Callable[[Tensor], Tensor] | None = None,
        original_inputs: Tensor | None = None,
    ) -> None:
        rows = len(sample) if positions is None else min(map(len, positions))
        if not rows:
            raise InputError("data must hold at least one row for each network, got none.")
        self.device, self.shard = sample.y.device, shard
        self.batch = min(batch_size, rows)
        self.steps = rows // self.batch
        #: True if networks have different rows.
        self.has_separate_rows = positions is not None
        self._positions = [index.to(self.device) for index in positions or ()]
        self._part = -(-batch_size // accumulate)
        self._augment = augment
        self._original_inputs = sample.X if original_inputs is None else original_inputs
        is_shared = augment is not None and self._original_inputs.data_ptr() == sample.X.data_ptr()
        self.sample = sample.replace(X=sample.X.clone()) if is_shared else sample

    def begin_epoch(self, epoch: int) -> None:
        """Augment the inputs for an epoch, if there is a function `augment`.

        They are changed in place, because a captured CUDA graph reads them from a fixed address.
        """
        if self._augment is not None:
            X = self.sample.X
            with torch.random.fork_rng(devices=[X.device] if X.device.type == "cuda" else []):
                torch.manual_seed(epoch)
                for rows, target in zip(*(x.split(AUGMENTED_ROWS) for x in (self._original_inputs, X)), strict=True):
                    changed = self._augment(rows.to(X.device))
                    taken, got = (f"shape {tuple(t.shape)} and {t.dtype}" for t in (rows, changed))
                    if got != taken:
                        raise InputError(argument="augment", must=f"return inputs of unchanged {taken}", got=got)
                    target.copy_(changed)

    def draw_positions(self, generators: Sequence[torch.Generator]) -> list[Tensor]:
        """Draw the row positions of every batch of an epoch; return a list of tensors (M, B), one per batch.

        If several processes share the training, B counts only the rows of a batch that this process computes.
        `generators` holds one random generator per network. If all rows of a network fit into one batch, their order is
        not changed.
        """
        sizes = [len(rows) for rows in self._positions] or [len(self.sample)] * len(generators)
        pairs, n_used = zip(sizes, generators, strict=True), self.steps * self.batch
        drawn = [torch.arange(n) if n == self.batch else torch.randperm(n, generator=s)[:n_used] for n, s in pairs]
        if self.has_separate_rows:
            drawn = [rows[order.to(self.device)] for rows, order in zip(self._positions, drawn, strict=True)]
        batches = torch.stack(drawn).to(self.device).split(self.batch, dim=1)
        return [index[:, self.shard.rank :: self.shard.world_size] for index in batches]

    def epoch(self, generators: Sequence[torch.Generator]) -> Iterator[TensorRows]:
        """Yield all batches of one epoch, whose fields have shape (B, M, ...).

        `generators` holds one random generator per network, which draws the order of its rows.
        """
        for index in self.draw_positions(generators):
            yield gather_rows(self.sample, index)

    def in_order(self) -> Iterator[TensorRows]:
        """Yield batches that together contain every row, in a fixed order.

        If all networks have the same rows, inputs have shape (B, ...) and other fields (B, 1). Otherwise, all fields
        have shape (B, M, ...), and some rows of networks with fewer rows than others are repeated.
        """
        X = self.sample.X
        # For texts, images and point clouds, batches are limited by the memory that training needs.
        size = _SCORED_TABLE_ROWS if holds_table_rows(X) else SCORED_ROWS_PER_TRAINED_ROW * self._part
        if not self.has_separate_rows:
            # The same rows for every network: X as it is, the others (N, 1).
            return (part.map(lambda t: t.unsqueeze(1)).replace(X=part.X) for part in iter_chunks(self.sample, size))
        longest = torch.arange(max(map(len, self._positions)), device=self.device)
        index = torch.stack([rows[longest % len(rows)] for rows in self._positions])
        return (gather_rows(self.sample, part) for part in index.split(size, dim=1))


class RowStream(Protocol):
    """The protocol of tables that are larger than memory, whose rows are read in chunks."""

    @property
    def identity(self) -> str:
        """A digest of the table, by which a checkpoint recognises it."""

    @property
    def max_passes(self) -> float:
        """The largest number of passes over the table."""

    def __len__(self) -> int:
        """Return the approximate number of rows per pass over the table, on which learning rate schedules depend."""
        ...

    def chunks(self, rows: int, seed: int) -> Iterator["pl.DataFrame"]:
        """Yield data frames of exactly `rows` rows in random order, in an endless sequence of passes over the table.

        `seed` determines the order.
        """
        ...

    def sample(self, chunk: "pl.DataFrame") -> CountRows:
        """Convert a data frame that `chunks` yielded, or some of its rows, to rows with inputs and counts."""
        ...


@dataclass(frozen=True, eq=False)
class StreamedRows:
    """Training rows that are read from a stream during training.

    Parameters
    ----------
    source : RowStream
        The table.
    encode : callable
        Converts a chunk, a data frame that `source.chunks` yields, to `CountRows` of tensors.
    rows : int
        The number of rows per chunk, a multiple of the batch size.
    chunks : int
        The number of chunks per epoch. An epoch is usually only a part of a pass over the table. The validation rows
        are scored after each epoch.
    """

    source: RowStream
    encode: Callable[["pl.DataFrame"], TensorRows]
    rows: int
    chunks: int

    @classmethod
    def plan_chunks(
        cls, source: RowStream, encode: Callable[["pl.DataFrame"], TensorRows], config: TrainingConfig
    ) -> tuple["StreamedRows", TrainingConfig]:
        """Choose the chunk size, and divide the passes over the table into epochs of a few chunks.

        `source` is the table, and `encode` converts a chunk to tensors. `config.epochs` is the number of passes, of
        which there are at most `source.max_passes`. Return two results: the `StreamedRows`, and a copy of `config` in
        which `epochs` and `patience` count the shorter epochs.
        """
        rows = len(source)
        batch = min(config.batch_size, rows)
        size = batch * max(1, min(CHUNK_ROWS, rows) // batch)
        total = max(1, math.ceil(min(config.epochs, source.max_passes) * rows / size))
        per_epoch = min(_MAX_CHUNKS_PER_EPOCH, max(1, total // _STREAM_EPOCHS))
        epochs = math.ceil(total / per_epoch)
        patience = config.patience
        if patience is not None:
            patience = max(3, round(patience * epochs / config.epochs))
        chunk_config = replace(config, batch_size=batch, epochs=epochs, patience=patience)
        return cls(source, encode, size, per_epoch), chunk_config

    def __len__(self) -> int:
        return self.rows * self.chunks


#: Kinds of training rows.
Source = TensorRows | PerNetworkRows | StreamedRows


class StreamBatches:
    """Batches of training rows from a stream of chunks. Each network gets the rows of a chunk in its own random order.

    `source` is the stream. `batch_size` is the number of rows per step, and `seed` determines the order of the stream.
    `load` validates an
    encoded chunk and moves it to the device. `options` are further arguments of `MemoryBatches`.
    """

    has_separate_rows = False

    def __init__(
        self, source: StreamedRows, batch_size: int, seed: int, load: Callable[[TensorRows], TensorRows], **options: Any
    ) -> None:
        self.source, self._seed, self._load = source, seed, load
        self.batch = min(batch_size, source.rows)
        self.steps = source.chunks * (source.rows // self.batch)
        self._options: dict[str, Any] = {"batch_size": batch_size, **options}
        self._chunks: Iterator[pl.DataFrame] = iter(())
        self._next = -1
        self._current: MemoryBatches | None = None

    def begin_epoch(self, epoch: int) -> None:
        """Move to the first chunk of this epoch.

        If training continues after an interruption, the chunks of all earlier epochs are read and skipped.
        """
        if epoch != self._next:
            self._chunks = self.source.source.chunks(self.source.rows, self._seed)
            for _ in range(epoch * self.source.chunks):
                next(self._chunks)
        self._next = epoch + 1

    def epoch(self, generators: Sequence[torch.Generator]) -> Iterator[TensorRows]:
        """Yield all batches of one epoch, whose fields have shape (B, M, ...); see `MemoryBatches.epoch`."""
        for _ in range(self.source.chunks):
            self._current = MemoryBatches(self._load(self.source.encode(next(self._chunks))), **self._options)
            yield from self._current.epoch(generators)

    def in_order(self) -> Iterator[TensorRows]:
        """Yield the rows of the current chunk in a fixed order, to find rows with non-finite losses.

        Inputs have shape (B, ...), and other fields have shape (B, 1).
        """
        assert self._current is not None
        return self._current.in_order()


# Checks of training rows before the first step ------------------------------------------------------------------------


def check_sample(sample: TensorRows, head: Head, needs_weight: bool) -> None:
    """Raise an `InputError` for rows with which a model with this head cannot be trained.

    Fields must be tensors of equal length with values that the head supports. If `needs_weight`, at least one weight
    must be positive. Single chunks of a stream need not fulfil this.
    """
    for name, part in sample.parts.items():
        if not isinstance(part, Tensor):
            raise InputError(argument=name, must="be a tensor", got=type(part).__name__, remedy="Use torch.as_tensor.")
        if name != "X" and part.dim() != 1:
            must, got = "have one number per row", f"shape {tuple(part.shape)}"
            raise InputError(argument=name, must=must, got=got, remedy="Use reshape(-1).")
        if len(part) != len(sample.X):
            must = f"have as many rows as X, {len(sample.X)}"
            raise InputError(argument=name, must=must, got=str(len(part)))
    if len(sample) == 0:
        raise InputError(argument="data", must="hold at least one row", got="0")
    columns = {name: part.double().numpy(force=True) for name, part in sample.parts.items() if name != "X"}
    y, exposure = columns["y"], columns.get("exposure")
    is_checked = sample.is_checked  # True if they were checked before they became tensors
    if not is_checked and head.support.is_discrete:
        check_counts(y, len(y), remedy="Use y.round().")
    elif not is_checked and not np.isfinite(y).all():
        bad = np.flatnonzero(~np.isfinite(y))
        raise InputError(argument="y", must="be finite", got=str(y[bad[0]]), rows=bad.tolist())
    check_vector("exposure", exposure, len(y), allow_zero=False)
    check_vector("weight", columns.get("weight"), len(y), allow_zero=True, allow_all_zero=not needs_weight)
    if head.exposure_is_total:
        head.check_targets(y, exposure)
