"""Batches of rows that do not fit into memory: chunks that arrive one after the other, shuffled by their source."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ddpn.networks.training.batches import ALL, Batches, Share, orders, pick, shared
from ddpn.sample import Sample


class RowStream(Protocol):
    """Training rows of a table that is read again for every pass.

    Attributes
    ----------
    identity : str
        A digest of the table, by which a checkpoint knows it.
    most_passes : float
        Passes over the table at most.
    """

    identity: str
    most_passes: float

    def __len__(self) -> int:
        """About how many rows a pass has; schedules of learning rates follow it."""
        ...

    def chunks(self, rows: int, seed: int) -> Iterator[Any]:
        """Tables of exactly so many rows, in random order and without an end: one pass after the other."""
        ...

    def sample(self, chunk: Any) -> Sample:
        """Such a table as inputs and counts."""
        ...


@dataclass(frozen=True, eq=False)
class Streamed:
    """Training rows that are read while they are trained on.

    Parameters
    ----------
    source : RowStream
        The rows.
    encode : callable
        Makes a sample of tensors of a chunk.
    rows : int
        Rows per chunk, a multiple of the batch size.
    chunks : int
        Chunks per epoch: epochs are parts of a pass, after each of which validation rows are scored.
    """

    source: RowStream
    encode: Callable[[Any], Sample]
    rows: int
    chunks: int

    def __len__(self) -> int:
        return self.rows * self.chunks

    @property
    def identity(self) -> str:
        """That of the table."""
        return self.source.identity


class StreamBatches(Batches):
    """Batches of a stream. All members see the same chunks, and within each of them every member has its own order.

    `check` validates what was encoded.
    """

    def __init__(
        self,
        source: Streamed,
        batch_size: int,
        device: torch.device,
        seed: int,
        share: Share = ALL,
        accumulate: int = 1,
        check: Callable[[Sample], object] = lambda sample: None,
    ) -> None:
        super().__init__(len(source), batch_size, share, accumulate, device)
        self.source, self._seed, self._check = source, seed, check
        self._chunks: Iterator[Any] | None = None
        self._next = 0
        self._current: Sample | None = None

    def begin(self, epoch: int) -> None:
        """Go to the first chunk of an epoch, counted from 0; a resumed training reads over those before it."""
        if self._chunks is None or epoch != self._next:
            self._chunks = self.source.source.chunks(self.source.rows, self._seed)
            for _ in range(epoch * self.source.chunks):
                next(self._chunks)
        self._next = epoch + 1

    def epoch(self, streams: Sequence[torch.Generator]) -> Iterator[Sample]:
        """All batches of one epoch."""
        if self._chunks is None:
            self.begin(0)
        assert self._chunks is not None
        for _ in range(self.source.chunks):
            sample = self.source.encode(next(self._chunks))
            self._check(sample)
            self._current = sample.map(lambda t: t.to(self._device))
            drawn = torch.stack(orders([len(sample)] * len(streams), self.batch, streams))
            for index in self.split(drawn):
                yield pick(self._current, index)

    def in_order(self) -> Iterator[Sample]:
        """The rows of the current chunk, the same for all members: where a loss was not finite is found among them."""
        assert self._current is not None
        yield shared(self._current)
