"""Where batches come from: tensors in memory, or any torch Dataset."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from ddpn.errors import DDPNError, InputError

#: Rows of a table looked at together where nothing is learned from them.
_IN_ORDER = 8192
#: So many times the rows of a training's batch fit where no gradients are kept, in a network of a few layers or more.
WITHOUT_GRADIENTS = 4


class Rows(NamedTuple):
    """Inputs, counts, and where given a weight and an exposure a row.

    A weight multiplies its row's loss, so weights should have mean 1: else they change what `lr` and `clip` mean.

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
        for name, given in zip(self._fields, self, strict=True):
            if given is not None and not isinstance(given, Tensor):
                raise InputError(f"{name} must be a tensor, got {type(given).__name__}. Use torch.as_tensor.")
        return self._each(lambda t: t.to(device))

    def pick(self, index: Tensor) -> "Rows":
        """Rows by index. Shape: index (M, B) gives (B, M, ...)."""
        flat = index.reshape(-1)
        return self._each(lambda t: t.index_select(0, flat).view(*index.shape, *t.shape[1:]).transpose(0, 1))

    def parts(self, size: int) -> Iterator["Rows"]:
        """One after the other, `size` rows at a time."""
        for first in range(0, len(self), size):
            yield self._each(lambda t, part=slice(first, first + size): t[part])  # type: ignore[misc]

    def shared(self) -> "Rows":
        """The same rows for every member. Shape: x as it is, the others (N, 1)."""
        y, weight, exposure = (None if t is None else t.unsqueeze(1) for t in self[1:])
        return Rows(self.x, cast(Tensor, y), weight, exposure)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Rows":
        weight, exposure = (None if t is None else change(t) for t in (self.weight, self.exposure))
        return Rows(change(self.x), change(self.y), weight, exposure)


class Changing(NamedTuple):
    """Rows in memory whose inputs are changed at random before every epoch, the same way for all members.

    `change` takes all inputs and gives as many of the same shape; it draws from torch's own stream.
    """

    rows: Rows
    change: Callable[[Tensor], Tensor]

    @property
    def x(self) -> Tensor:
        """As they are, before any change."""
        return self.rows.x

    @property
    def y(self) -> Tensor:
        return self.rows.y

    def __len__(self) -> int:  # a NamedTuple's own length would be 2
        return len(self.rows)

    def to(self, device: torch.device) -> "Changing":
        """The same rows on another device, where they are changed too."""
        return Changing(self.rows.to(device), self.change)


class Share(NamedTuple):
    """The part of every batch that this process computes: every `world`-th row from `rank` on."""

    rank: int = 0
    world: int = 1


def orders(rows: int, batch: int, streams: Sequence[torch.Generator]) -> Tensor:
    """Each member's order of the rows in one epoch, whole batches only. Shape: (M, steps * batch)."""
    if batch == rows:
        return torch.arange(rows).expand(len(streams), -1)
    used = rows // batch * batch
    return torch.stack([torch.randperm(rows, generator=stream)[:used] for stream in streams])


class MemoryBatches:
    """Batches of tensors in memory, each member's rows in its own order; no DataLoader.

    Where all rows fit one batch, every member gets all of them in the order they came in. `accumulate` is how many
    parts a batch is computed in.
    """

    def __init__(
        self,
        source: Rows | Changing,
        batch_size: int,
        share: Share = Share(),  # noqa: B008
        accumulate: int = 1,
    ) -> None:
        rows = source.rows if isinstance(source, Changing) else source
        _check_lengths(rows)
        self.source, self.share, self._part = source, share, -(-batch_size // accumulate)
        self.rows = Rows(rows.x.clone(), *rows[1:]) if isinstance(source, Changing) else rows
        self.n, self.batch = len(rows), min(batch_size, len(rows))
        # What is left over after whole batches waits for another epoch: orders are drawn anew each time.
        self.steps = self.n // self.batch

    def renew(self, seed: int) -> None:
        """Change inputs at random, where they are to be; in place, as a captured step reads them where they are."""
        if isinstance(self.source, Changing):
            device = self.rows.x.device
            with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                torch.manual_seed(seed)
                changed = self.source.change(self.source.x)
            if (changed.shape, changed.dtype) != (self.rows.x.shape, self.rows.x.dtype):
                raise InputError(
                    f"change must give inputs of shape {tuple(self.rows.x.shape)} and {self.rows.x.dtype} as it takes "
                    f"them, got {tuple(changed.shape)} and {changed.dtype}. Convert them at its end."
                )
            self.rows.x.copy_(changed)

    def orders(self, streams: Sequence[torch.Generator]) -> Tensor:
        """This epoch's rows. Shape: (M, steps * batch)."""
        return orders(self.n, self.batch, streams)

    def epoch(self, streams: Sequence[torch.Generator]) -> Iterator[Rows]:
        """All batches of one epoch."""
        orders = self.orders(streams).to(self.rows.y.device)
        for index in orders.split(self.batch, dim=1):
            yield self.rows.pick(index[:, self.share.rank :: self.share.world])

    def in_order(self) -> Iterator[Rows]:
        """Every row once, the same for all members."""
        return (part.shared() for part in self.rows.parts(_at_once(self.rows.x, self._part)))


class DatasetBatches:
    """Batches of a torch Dataset whose items are (x, y), (x, y, weight) or (x, y, weight, exposure).

    Items are loaded once for every member that wants them, in `workers` processes. `accumulate` is how many parts a
    batch is computed in; `check` looks at what was loaded.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        device: torch.device,
        workers: int = 0,
        share: Share = Share(),  # noqa: B008
        accumulate: int = 1,
        check: Callable[[Rows], object] = lambda rows: None,
    ) -> None:
        self.dataset, self.device, self.workers, self.share, self._check = dataset, device, workers, share, check
        self._part = -(-batch_size // accumulate)
        self.n = len(dataset)  # type: ignore[arg-type]
        _check_any(self.n)
        self.batch = min(batch_size, self.n)
        self.steps = self.n // self.batch

    def epoch(self, streams: Sequence[torch.Generator]) -> Iterator[Rows]:
        """All batches of one epoch."""
        members = len(streams)
        shared = [
            i[:, self.share.rank :: self.share.world]
            for i in orders(self.n, self.batch, streams).split(self.batch, dim=1)
        ]
        for batch in self._loaded(batch_sampler=[index.reshape(-1).tolist() for index in shared]):
            yield batch.pick(torch.arange(len(batch), device=self.device).view(members, -1))

    def in_order(self) -> Iterator[Rows]:
        """Every item once, the same for all members."""
        size = _at_once(as_rows([self.dataset[0]]).x, self._part)
        return (rows.shared() for rows in self._loaded(batch_size=size))

    def _loaded(self, **batches: Any) -> Iterator[Rows]:
        for loaded in DataLoader(_Told(self.dataset), num_workers=self.workers, collate_fn=_as_told, **batches):
            if isinstance(loaded, DDPNError):
                raise loaded
            self._check(loaded)
            yield loaded.to(self.device)


class _Told(Dataset):
    """Items, or the error that says why not: one that is raised in a worker comes with its traceback for a message."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __getitem__(self, index: int) -> Any:
        try:
            return self.dataset[index]
        except DDPNError as error:
            return error

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]


def _as_told(items: list[Any]) -> Rows | DDPNError:
    try:
        return next((item for item in items if isinstance(item, DDPNError)), None) or as_rows(items)
    except DDPNError as error:
        return error


def _at_once(x: Tensor, part: int) -> int:
    """Rows to look at together: of texts (whole numbers), pictures and clouds what a training has room for."""
    return _IN_ORDER if x.dim() == 2 and x.is_floating_point() else WITHOUT_GRADIENTS * part


def _check_any(rows: int) -> None:
    if rows == 0:
        raise InputError("data must hold at least one row, got 0. Give rows to train and to validate on.")


def _check_lengths(rows: Rows) -> None:
    _check_any(len(rows))
    lengths = {name: len(t) for name, t in zip(Rows._fields, rows, strict=True) if t is not None}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} of {length}" for name, length in lengths.items())
        raise InputError(f"x, y, weight and exposure must have as many rows each, got {listed}. Align them.")
    _check_one_a_row(rows)


def _check_one_a_row(rows: Rows) -> None:
    for name, given in zip(Rows._fields[1:], rows[1:], strict=True):
        if given is not None and given.dim() != 1:
            raise InputError(f"{name} must have one number a row, got shape {tuple(given.shape)}. Use reshape(-1).")


def as_rows(items: list[Any]) -> Rows:
    """Items of a data set as a batch."""
    try:
        collated = default_collate(items)
    except (TypeError, RuntimeError) as error:
        raise InputError(
            f"items of the data set must be tensors or numbers of one shape each, got {str(error).splitlines()[0]}. "
            "Pad what differs in length, and drop items without a count."
        ) from None
    if not isinstance(collated, list | tuple) or not 2 <= len(collated) <= 4:
        raise InputError(
            f"items of the data set must be (x, y[, weight[, exposure]]), got {type(items[0]).__name__}. "
            "Return a tuple from __getitem__."
        )
    rows = Rows(*collated)
    _check_one_a_row(rows)
    return rows
