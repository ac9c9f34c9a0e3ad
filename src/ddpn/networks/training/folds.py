"""Networks that are trained side by side, each on rows of its own and validated with others."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ddpn.networks.training.batches import ALL, MemoryBatches, Share, pick
from ddpn.runtime.errors import ConfigError
from ddpn.sample import Sample


@dataclass(frozen=True, eq=False)
class OwnRows:
    """Rows in memory of which each network trains on some and is validated with others.

    One epoch is chosen for all networks, by the mean of their validation scores: a number that all rows choose together
    hardly depends on a single one of them.

    Parameters
    ----------
    sample : Sample
        All rows, as tensors. A row that networks read in different encodings is there once per encoding.
    train, validation : sequence of Tensor of int
        For each network the positions of the rows it trains on, and of those that validate it.
    """

    sample: Sample
    train: Sequence[Tensor]
    validation: Sequence[Tensor]

    def __post_init__(self) -> None:
        sizes = [len(rows) for rows in (*self.train, *self.validation)]
        if len(self.train) != len(self.validation) or not min(sizes, default=0):
            got = [[len(rows) for rows in part] for part in (self.train, self.validation)]
            raise ConfigError(f"Every network must have rows to train on and rows to validate with, got {got}.")

    def __len__(self) -> int:
        return len(self.sample)


class OwnBatches(MemoryBatches):
    """Batches of rows in memory, of which each network has its own.

    All networks take as many steps per epoch as the one with the fewest rows; the rows that others leave over wait for
    another epoch, as orders are drawn anew each time.
    """

    own_rows = True

    def __init__(
        self,
        source: OwnRows,
        positions: Sequence[Tensor],
        batch_size: int,
        share: Share = ALL,
        accumulate: int = 1,
    ) -> None:
        super().__init__(source.sample, batch_size, share, accumulate)
        self.source = source  # type: ignore[assignment]
        self._positions = [rows.to(source.sample.y.device) for rows in positions]
        self.n = min(map(len, positions))
        self.batch = min(batch_size, self.n)
        self.steps = self.n // self.batch

    def indices(self, streams: Sequence[torch.Generator]) -> Iterable[Tensor]:
        """The row positions of each batch of one epoch. Shape: (M, B)."""
        used = self.steps * self.batch
        both = zip(self._positions, streams, strict=True)
        drawn = torch.stack([rows[_order(len(rows), used, stream).to(rows.device)] for rows, stream in both])
        return [index[:, self.share.rank :: self.share.world] for index in drawn.split(self.batch, dim=1)]

    def in_order(self) -> Iterator[Sample]:
        """Every row of each network; those of a network with fewer rows are repeated."""
        longest = max(map(len, self._positions))
        index = torch.stack([rows[torch.arange(longest, device=rows.device) % len(rows)] for rows in self._positions])
        return (pick(self.sample, part) for part in index.split(self._rows_at_once(self.sample.X), dim=1))


def _order(rows: int, used: int, stream: torch.Generator) -> Tensor:
    """So many of the rows in random order; all of them as they are, where they are one batch."""
    return torch.arange(rows) if used == rows else torch.randperm(rows, generator=stream)[:used]
