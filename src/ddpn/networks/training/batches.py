"""Batches of training rows from memory or from a stream, and checks of these rows.

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
    """Rows in memory, of which each network is trained on some and validated on others.

    `train` and `validation` hold the row positions of each network. A row that is encoded differently for some networks
    occurs in `sample` once per encoding. One epoch is chosen for all networks by the mean of their validation scores,
    because this mean hardly depends on a single row.
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
    """Select rows by their positions `index`, one set per network. Shape: index (M, B) -> fields (B, M, ...)."""
    flat = index.reshape(-1)
    return sample.map(lambda t: t.index_select(0, flat).view(*index.shape, *t.shape[1:]).transpose(0, 1))


def iter_chunks(sample: TensorRows, size: int) -> Iterator[TensorRows]:
    """Divide rows of tensors into chunks of `size` rows, and yield the chunks in order.

    This is faster than `CountRows.blocks`, which also handles other arrays.
    """
    for start in range(0, len(sample), size):
        yield sample.map(lambda t, part=slice(start, start + size): t[part])  # type: ignore[misc]


class MemoryBatches:
    """Batches of training rows that are in memory. In every epoch, each network gets the rows in a new random order.

    All networks take the same number of steps per epoch, as many as the network with the fewest rows. Rows that do not
    fill a batch are skipped in this epoch.

    Parameters
    ----------
    sample : CountRows of tensors
        The rows, on the device.
    batch_size : int
        Rows per step.
    positions : sequence of Tensor, optional
        For each network, the positions of its rows in `sample`. Default: all rows, for every network.
    share : WorkerShard
        The share of this process in every batch.
    accumulate : int
        The number of parts in which a batch is computed, one after the other.
    augment : callable, optional
        Changes the inputs before every epoch, some rows at a time. It gets the `unchanged` inputs, never its own
        results.
    unchanged : Tensor, optional
        The inputs as they were before `augment`, which need not be on the device. Default: those of `sample`.
    """

    def __init__(
        self,
        sample: TensorRows,
        batch_size: int,
        positions: Sequence[Tensor] | None = None,
        share: WorkerShard = WHOLE_BATCH,
        accumulate: int = 1,
        augment: Callable[[Tensor], Tensor] | None = None,
        unchanged: Tensor | None = None,
    ) -> None:
        rows = len(sample) if positions is None else min(map(len, positions))
        if not rows:
            raise InputError("data must hold at least one row for each network, got none.")
        self.device, self.share = sample.y.device, share
        self.batch = min(batch_size, rows)
        self.steps = rows // self.batch
        #: True if networks have different rows.
        self.has_separate_rows = positions is not None
        self._positions = [index.to(self.device) for index in positions or ()]
        self._part = -(-batch_size // accumulate)
        self._augment, self._unchanged = augment, sample.X if unchanged is None else unchanged
        is_shared = augment is not None and self._unchanged.data_ptr() == sample.X.data_ptr()
        self.sample = sample.replace(X=sample.X.clone()) if is_shared else sample

    def begin(self, epoch: int) -> None:
        """Augment the inputs for an epoch, in place, because a captured step reads them from a fixed address."""
        if self._augment is not None:
            X = self.sample.X
            with torch.random.fork_rng(devices=[X.device] if X.device.type == "cuda" else []):
                torch.manual_seed(epoch)
                for rows, target in zip(*(x.split(AUGMENTED_ROWS) for x in (self._unchanged, X)), strict=True):
                    changed = self._augment(rows.to(X.device))
                    taken, got = (f"shape {tuple(t.shape)} and {t.dtype}" for t in (rows, changed))
                    if got != taken:
                        raise InputError(argument="augment", must=f"return inputs of unchanged {taken}", got=got)
                    target.copy_(changed)

    def indices(self, streams: Sequence[torch.Generator]) -> list[Tensor]:
        """Draw the positions of the rows of every batch of an epoch, for this process. Shape of each batch: (M, B).

        `streams` has one random generator per network.

        If all rows of a network fit into one batch, their order is kept.
        """
        sizes = [len(rows) for rows in self._positions] or [len(self.sample)] * len(streams)
        both, used = zip(sizes, streams, strict=True), self.steps * self.batch
        drawn = [torch.arange(n) if n == self.batch else torch.randperm(n, generator=s)[:used] for n, s in both]
        if self.has_separate_rows:
            drawn = [rows[order.to(self.device)] for rows, order in zip(self._positions, drawn, strict=True)]
        batches = torch.stack(drawn).to(self.device).split(self.batch, dim=1)
        return [index[:, self.share.rank :: self.share.world] for index in batches]

    def epoch(self, streams: Sequence[torch.Generator]) -> Iterator[TensorRows]:
        """Yield all batches of one epoch."""
        for index in self.indices(streams):
            yield gather_rows(self.sample, index)

    def in_order(self) -> Iterator[TensorRows]:
        """Yield batches that contain every row once, in the same order for all networks.

        If networks have different numbers of rows, those with fewer rows get some of them again.
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
    """The protocol of training rows that are read from a table again in every pass, at most `max_passes` times.

    `identity` is a digest of the table, by which a checkpoint recognises it.
    """

    @property
    def identity(self) -> str:
        """A digest of the table."""

    @property
    def max_passes(self) -> float:
        """The largest number of passes over the table."""

    def __len__(self) -> int:
        """Return the approximate number of rows per pass, on which learning rate schedules depend."""
        ...

    def chunks(self, rows: int, seed: int) -> Iterator["pl.DataFrame"]:
        """Yield tables of exactly `rows` rows in random order, pass after pass, without end."""
        ...

    def sample(self, chunk: "pl.DataFrame") -> CountRows:
        """Convert a table that `chunks` yielded to rows with inputs and counts."""
        ...


@dataclass(frozen=True, eq=False)
class StreamedRows:
    """Training rows that are read from a stream while networks are trained on them.

    Parameters
    ----------
    source : RowStream
        The rows.
    encode : callable
        Converts a chunk to `CountRows` of tensors.
    rows : int
        Rows per chunk, a multiple of the batch size.
    chunks : int
        Chunks per epoch. An epoch is a part of a pass, after which validation rows are scored.
    """

    source: RowStream
    encode: Callable[["pl.DataFrame"], TensorRows]
    rows: int
    chunks: int

    @classmethod
    def plan_chunks(
        cls, source: RowStream, encode: Callable[["pl.DataFrame"], TensorRows], config: TrainingConfig
    ) -> tuple["StreamedRows", TrainingConfig]:
        """Choose a chunk size that suits encoding; return the rows, and settings in which an epoch is a few chunks.

        The epochs of `config` count passes over the rows, at most `source.max_passes`.
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
    """Batches of a stream of chunks. Within a chunk, each network gets the rows in a different random order.

    `load` checks an encoded chunk and moves it to the device. `shared` holds further arguments of `MemoryBatches`.
    """

    has_separate_rows = False

    def __init__(
        self, source: StreamedRows, batch_size: int, seed: int, load: Callable[[TensorRows], TensorRows], **shared: Any
    ) -> None:
        self.source, self._seed, self._load = source, seed, load
        self.batch = min(batch_size, source.rows)
        self.steps = source.chunks * (source.rows // self.batch)
        self._shared: dict[str, Any] = {"batch_size": batch_size, **shared}
        self._chunks: Iterator[pl.DataFrame] = iter(())
        self._next = -1
        self._current: MemoryBatches | None = None

    def begin(self, epoch: int) -> None:
        """Go to the first chunk of this epoch; the chunks before it are skipped when a training is resumed."""
        if epoch != self._next:
            self._chunks = self.source.source.chunks(self.source.rows, self._seed)
            for _ in range(epoch * self.source.chunks):
                next(self._chunks)
        self._next = epoch + 1

    def epoch(self, streams: Sequence[torch.Generator]) -> Iterator[TensorRows]:
        """Yield all batches of one epoch."""
        for _ in range(self.source.chunks):
            self._current = MemoryBatches(self._load(self.source.encode(next(self._chunks))), **self._shared)
            yield from self._current.epoch(streams)

    def in_order(self) -> Iterator[TensorRows]:
        """Yield the rows of the current chunk in a fixed order, to find rows with non-finite losses."""
        assert self._current is not None
        return self._current.in_order()


# Checks of training rows before the first step ------------------------------------------------------------------------


def check_sample(sample: TensorRows, head: Head, needs_weight: bool) -> None:
    """Raise an `InputError` if fields are not tensors of equal length, or have values that `head` does not support.

    With `needs_weight`, it is an error if all weights are 0. In a chunk of a stream they may be.
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
