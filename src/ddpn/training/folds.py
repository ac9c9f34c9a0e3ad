"""Cross-fitting: every member of an ensemble leaves out a fold of the rows, which validates it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ddpn.errors import ConfigError
from ddpn.sample import Sample
from ddpn.training.batches import ALL, MemoryBatches, Share, orders, pick


@dataclass(frozen=True, eq=False)
class Folded:
    """Rows of which member m trains on all but those of fold m modulo the number of folds, which validate it.

    Parameters
    ----------
    sample : Sample
        The rows, as tensors.
    fold : Tensor of int, shape (rows,)
        The number of each row's fold, from 0 on. Folds differ by one row at most.
    """

    sample: Sample
    fold: Tensor

    def __len__(self) -> int:
        return len(self.sample)

    @property
    def folds(self) -> int:
        """How many folds there are."""
        return int(self.fold.max()) + 1

    def positions(self, members: int) -> tuple[Tensor, Tensor]:
        """The rows that each member trains on, and those that validate it. Shape: (M, n) and (M, n').

        As all members must have as many, those of a smaller fold train on one row less, and a larger fold validates
        with one row less.
        """
        sizes = torch.bincount(self.fold)
        if int(sizes.max()) - int(sizes.min()) > 1 or len(sizes) < 2:
            raise ConfigError(f"fold must divide the rows into two or more folds of one size, got {sizes.tolist()}.")
        left_out = [self.fold == member % self.folds for member in range(members)]
        kept, held = len(self.fold) - int(sizes.max()), int(sizes.min())
        return (
            torch.stack([(~mask).nonzero().flatten()[:kept] for mask in left_out]),
            torch.stack([mask.nonzero().flatten()[:held] for mask in left_out]),
        )


class FoldBatches(MemoryBatches):
    """Batches of rows in memory, of which each member has its own."""

    own_rows = True

    def __init__(
        self, source: Folded, positions: Tensor, batch_size: int, share: Share = ALL, accumulate: int = 1
    ) -> None:
        super().__init__(source.sample, batch_size, share, accumulate)
        self.source = source  # type: ignore[assignment]
        self._positions = positions.to(source.sample.y.device)
        self.n = positions.shape[1]
        self.batch = min(batch_size, self.n)
        self.steps = self.n // self.batch

    def indices(self, streams: Sequence[torch.Generator]) -> Iterable[Tensor]:
        """The row positions of each batch of one epoch. Shape: (M, B)."""
        chosen = orders(self.n, self.batch, streams).to(self._positions.device)
        batches = self._positions.gather(1, chosen).split(self.batch, dim=1)
        return [index[:, self.share.rank :: self.share.world] for index in batches]

    def in_order(self) -> Iterator[Sample]:
        """Every row of each member once."""
        size = self._rows_at_once(self.sample.X)
        return (pick(self.sample, part) for part in self._positions.split(size, dim=1))


def fold_numbers(rows: int, folds: int, seed: int) -> Tensor:
    """Divide rows at random into folds of one size, give or take a row. Shape: (rows,)."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    return (torch.arange(rows) % folds)[order]
