"""Where batches come from: tensors in memory, or any torch Dataset."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from ddpn.errors import InputError


class Rows(NamedTuple):
    """Inputs, counts, and where given a weight and an exposure a row.

    Shape: x (N, ...), the others (N,); in a batch with each member's own rows (B, M, ...) and (B, M).
    """

    x: Tensor
    y: Tensor
    weight: Tensor | None = None
    exposure: Tensor | None = None

    def __len__(self) -> int:  # a NamedTuple's own length would be 4
        return len(self.y)

    def to(self, device: torch.device) -> "Rows":
        """The same rows on another device."""
        return Rows(*(None if t is None else t.to(device) for t in self))

    def pick(self, index: Tensor) -> "Rows":
        """Rows by index. Shape: index (M, B) gives (B, M, ...)."""
        picked = (None if t is None else t.index_select(0, index.reshape(-1)) for t in self)
        return Rows(*(None if t is None else t.view(*index.shape, *t.shape[1:]).transpose(0, 1) for t in picked))

    def parts(self, size: int) -> Iterator["Rows"]:
        """One after the other, `size` rows at a time."""
        for first in range(0, len(self), size):
            yield Rows(*(None if t is None else t[first : first + size] for t in self))


class Share(NamedTuple):
    """The part of every batch that this process computes: every `world`-th row from `rank` on."""

    rank: int = 0
    world: int = 1


class MemoryBatches:
    """Batches of tensors in memory, each member's rows in its own order; no DataLoader.

    Where all rows fit one batch, every member gets all of them in the order they came in.
    """

    def __init__(self, rows: Rows, batch_size: int, share: Share = Share()) -> None:  # noqa: B008
        self.rows, self.share = rows, share
        self.n, self.batch = len(rows), min(batch_size, len(rows))
        # What is left over after whole batches waits for another epoch: orders are drawn anew each time.
        self.steps = self.n // self.batch

    def orders(self, streams: Sequence[torch.Generator]) -> Tensor:
        """This epoch's rows. Shape: (M, steps * batch)."""
        if self.steps == 1 and self.batch == self.n:
            return torch.arange(self.n).expand(len(streams), -1)
        return torch.stack([torch.randperm(self.n, generator=s)[: self.steps * self.batch] for s in streams])

    def epoch(self, streams: Sequence[torch.Generator]) -> Iterator[Rows]:
        """All batches of one epoch."""
        orders = self.orders(streams).to(self.rows.y.device)
        for index in orders.split(self.batch, dim=1):
            yield self.rows.pick(index[:, self.share.rank :: self.share.world])


class DatasetBatches:
    """Batches of a torch Dataset whose items are (x, y), (x, y, weight) or (x, y, weight, exposure).

    Items are loaded once for every member that wants them, in `workers` processes.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        device: torch.device,
        workers: int = 0,
        share: Share = Share(),  # noqa: B008
    ) -> None:
        self.dataset, self.device, self.workers, self.share = dataset, device, workers, share
        self.n = len(dataset)  # type: ignore[arg-type]
        if self.n == 0:
            raise InputError("the data set must hold at least one row, got 0. Give it rows.")
        self.batch = min(batch_size, self.n)
        self.steps = self.n // self.batch

    orders = MemoryBatches.orders

    def epoch(self, streams: Sequence[torch.Generator]) -> Iterator[Rows]:
        """All batches of one epoch."""
        members = len(streams)
        shared = [i[:, self.share.rank :: self.share.world] for i in self.orders(streams).split(self.batch, dim=1)]
        loader: DataLoader = DataLoader(
            self.dataset,
            batch_sampler=[index.reshape(-1).tolist() for index in shared],
            num_workers=self.workers,
            collate_fn=_as_rows,
        )
        for loaded in loader:
            batch = loaded.to(self.device)
            yield batch.pick(torch.arange(len(batch), device=self.device).view(members, -1))

    def in_order(self, size: int) -> Iterator[Rows]:
        """Every item once, for validation and prediction."""
        loader: DataLoader = DataLoader(self.dataset, size, num_workers=self.workers, collate_fn=_as_rows)
        for loaded in loader:
            yield loaded.to(self.device)


def _as_rows(items: list[Any]) -> Rows:
    collated = default_collate(items)
    if not isinstance(collated, list | tuple) or not 2 <= len(collated) <= 4:
        raise InputError(
            f"items of the data set must be (x, y[, weight[, exposure]]), got {type(items[0]).__name__}. "
            "Return a tuple from __getitem__."
        )
    return Rows(*collated)
