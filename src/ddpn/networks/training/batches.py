"""Where batches come from: tensors in memory, any torch Dataset, or a stream; and checks of these rows."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from ddpn.distributions.arguments import check_counts, check_positive
from ddpn.networks.heads import Head
from ddpn.networks.training.config import TrainingConfig
from ddpn.runtime.errors import ConfigError, DDPNError, InputError
from ddpn.runtime.validation import listed
from ddpn.sample import Sample

#: Rows of a table that go through a network together where no gradients are kept.
_IN_ORDER = 8192
#: So many times the rows of a training batch fit where no gradients are kept, in a network of a few layers or more.
WITHOUT_GRADIENTS = 4
#: Rows of a stream that are encoded at once: 2 KB per row for 40 columns of numbers in steps.
CHUNK_ROWS = 16_384
#: Epochs of a stream, which end with a score of the validation rows: about so many, and at most so many chunks long.
_EPOCHS, _MOST_CHUNKS = 40, 16


@dataclass(frozen=True, eq=False)
class Augmented:
    """Rows in memory whose inputs are changed at random before every epoch, in the same way for all members.

    Parameters
    ----------
    sample : Sample
        The rows, as tensors.
    augment : callable
        Takes all inputs and returns as many of the same shape and dtype; it draws from torch's global generator, which
        is seeded by the epoch.
    """

    sample: Sample
    augment: Callable[[Tensor], Tensor]

    def __len__(self) -> int:
        return len(self.sample)


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


#: What a training takes its rows from.
Source = Sample | Augmented | Dataset


def pick(sample: Sample, index: Tensor) -> Sample:
    """Rows by position, for each member its own. Shape: index (M, B) gives (B, M, ...)."""
    flat = index.reshape(-1)
    return sample.map(lambda t: t.index_select(0, flat).view(*index.shape, *t.shape[1:]).transpose(0, 1))


def parts_of(sample: Sample, size: int) -> Iterator[Sample]:
    """The rows of tensors, `size` at a time; faster than `Sample.blocks`, as nothing but a tensor can be there."""
    for start in range(0, len(sample), size):
        yield sample.map(lambda t, part=slice(start, start + size): t[part])  # type: ignore[misc]


def same_for_all(sample: Sample) -> Sample:
    """The same rows for every member. Shape: X as it is, the others (N, 1)."""
    return sample.map(lambda t: t.unsqueeze(1)).replace(X=sample.X)


class Share(NamedTuple):
    """The part of every batch that this process computes: every `world`-th row from `rank` on."""

    rank: int
    world: int


#: The share of a single process.
ALL = Share(rank=0, world=1)


def orders(sizes: Sequence[int], batch: int, streams: Sequence[torch.Generator]) -> list[Tensor]:
    """Each member's order of its rows in one epoch, whole batches only, as many for all. Shape: (steps * batch,) each.

    Where all rows of a member fit one batch, they stay as they are.
    """
    used = min(sizes) // batch * batch
    both = zip(sizes, streams, strict=True)
    return [torch.arange(n) if n == batch else torch.randperm(n, generator=stream)[:used] for n, stream in both]


class Batches:
    """What all sources of batches have in common: how many rows, batches and steps there are in an epoch.

    `accumulate` is the number of parts that a batch is computed in; `check` validates rows that are loaded.
    """

    #: Whether members have rows of their own also in `in_order`.
    own_rows = False

    def __init__(
        self,
        rows: int,
        batch_size: int,
        device: torch.device,
        share: Share = ALL,
        accumulate: int = 1,
        check: Callable[[Sample], object] = lambda sample: None,
    ) -> None:
        check_any_row(rows)
        self.n, self.batch, self.device, self.share = rows, min(batch_size, rows), device, share
        self._part, self._check = -(-batch_size // accumulate), check
        # Rows left over after whole batches wait for another epoch: orders are drawn anew each time.
        self.steps = self.n // self.batch

    def begin(self, epoch: int) -> None:
        """Prepare the rows of an epoch, counted from 0. Does nothing by default."""

    def indices(self, streams: Sequence[torch.Generator]) -> Iterable[Tensor]:
        """The row positions of each batch of one epoch, those of this process. Shape: (M, B)."""
        return self.split(torch.stack(orders([self.n] * len(streams), self.batch, streams)))

    def split(self, drawn: Tensor) -> Iterable[Tensor]:
        """Batches of row positions (M, steps * batch), those of this process."""
        batches = drawn.to(self.device).split(self.batch, dim=1)
        return [index[:, self.share.rank :: self.share.world] for index in batches]

    def loaded(self, sample: Sample) -> Sample:
        """Rows that were loaded or encoded just now, checked and on the device."""
        self._check(sample)
        return sample.map(lambda t: t.to(self.device))

    def _rows_at_once(self, X: Tensor) -> int:
        """Rows that go through a network together: of texts, images and clouds as many as a training has room for."""
        return _IN_ORDER if X.dim() == 2 and X.is_floating_point() else WITHOUT_GRADIENTS * self._part


class MemoryBatches(Batches):
    """Batches of tensors in memory, each member's rows in its own order; no DataLoader.

    `positions` are those of each member's own rows, if it has any. All members take as many steps per epoch as the one
    with the fewest rows; the rows that others leave over wait for another epoch, as orders are drawn anew each time.
    """

    def __init__(
        self,
        source: Sample | Augmented | OwnRows,
        batch_size: int,
        positions: Sequence[Tensor] | None = None,
        **shared: Any,
    ) -> None:
        sample = source if isinstance(source, Sample) else source.sample
        rows = len(sample) if positions is None else min(map(len, positions))
        super().__init__(rows, batch_size, sample.y.device, **shared)
        self.source, self.own_rows = source, positions is not None
        self._positions = [each.to(self.device) for each in positions or ()]
        self.sample = sample.replace(X=sample.X.clone()) if isinstance(source, Augmented) else sample

    def indices(self, streams: Sequence[torch.Generator]) -> Iterable[Tensor]:
        """The row positions of each batch of one epoch, those of this process. Shape: (M, B)."""
        if not self.own_rows:
            return super().indices(streams)
        drawn = orders([len(rows) for rows in self._positions], self.batch, streams)
        both = zip(self._positions, drawn, strict=True)
        return self.split(torch.stack([rows[order.to(rows.device)] for rows, order in both]))

    def begin(self, epoch: int) -> None:
        """Change augmented inputs at random; in place, because a captured step reads them where they are."""
        if isinstance(self.source, Augmented):
            X = self.sample.X
            with torch.random.fork_rng(devices=[X.device] if X.device.type == "cuda" else []):
                torch.manual_seed(epoch)
                changed = self.source.augment(self.source.sample.X)
            taken, got = (f"shape {tuple(t.shape)} and {t.dtype}" for t in (X, changed))
            if got != taken:
                raise InputError(f"augment must return inputs of {taken} as it takes them, got {got}.")
            X.copy_(changed)

    def epoch(self, streams: Sequence[torch.Generator]) -> Iterator[Sample]:
        """All batches of one epoch."""
        for index in self.indices(streams):
            yield pick(self.sample, index)

    def in_order(self) -> Iterator[Sample]:
        """Every row once, the same for all members; own rows of a member with fewer than others are repeated."""
        size = self._rows_at_once(self.sample.X)
        if not self.own_rows:
            return (same_for_all(part) for part in parts_of(self.sample, size))
        longest = torch.arange(max(map(len, self._positions)), device=self.device)
        index = torch.stack([rows[longest % len(rows)] for rows in self._positions])
        return (pick(self.sample, part) for part in index.split(size, dim=1))


class DatasetBatches(Batches):
    """Batches of a torch Dataset whose items are (x, y), (x, y, weight) or (x, y, weight, exposure).

    Items are loaded once for every member that needs them, in `workers` processes.
    """

    def __init__(
        self, dataset: Dataset, batch_size: int, device: torch.device, workers: int = 0, **shared: Any
    ) -> None:
        super().__init__(len(dataset), batch_size, device, **shared)  # type: ignore[arg-type]
        self.source, self.workers = dataset, workers

    def epoch(self, streams: Sequence[torch.Generator]) -> Iterator[Sample]:
        """All batches of one epoch."""
        for batch in self._loads([index.reshape(-1).tolist() for index in self.indices(streams)]):
            yield pick(batch, torch.arange(len(batch), device=self.device).view(len(streams), -1))

    def in_order(self) -> Iterator[Sample]:
        """Every item once, the same for all members."""
        rows, size = range(self.n), self._rows_at_once(as_sample([self.source[0]]).X)
        return (same_for_all(part) for part in self._loads([rows[first : first + size] for first in rows[::size]]))

    def _loads(self, positions: list[Sequence[int]]) -> Iterator[Sample]:
        for found in DataLoader(_Loads(self.source, positions), batch_size=None, num_workers=self.workers):
            if isinstance(found, DDPNError):
                raise found
            yield self.loaded(found)


class _Loads(Dataset):
    """Batches, or the error of reading one: raised in a worker process it comes with a traceback in its message."""

    def __init__(self, dataset: Dataset, positions: list[Sequence[int]]) -> None:
        self.dataset, self.positions = dataset, positions

    def __getitem__(self, number: int) -> Sample | DDPNError:
        try:
            return as_sample([self.dataset[index] for index in self.positions[number]])
        except DDPNError as error:
            return error

    def __len__(self) -> int:
        return len(self.positions)


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

    @classmethod
    def scheduled(
        cls, source: RowStream, encode: Callable[[Any], Sample], config: TrainingConfig
    ) -> tuple["Streamed", TrainingConfig]:
        """Chunks of a size that suits encoding, and the settings of a training whose epochs are some chunks each.

        Parameters
        ----------
        source, encode
            As for `Streamed`.
        config : TrainingConfig
            Its epochs are passes over the rows, of which there are at most `source.most_passes`.
        """
        rows = len(source)
        batch = min(config.batch_size, rows)
        size = batch * max(1, min(CHUNK_ROWS, rows) // batch)
        total = max(1, math.ceil(min(config.epochs, source.most_passes) * rows / size))
        per_epoch = min(_MOST_CHUNKS, max(1, total // _EPOCHS))
        epochs = math.ceil(total / per_epoch)
        patience = config.patience
        if patience is not None:
            patience = max(3, round(patience * epochs / config.epochs))
        found = replace(config, batch_size=batch, epochs=epochs, patience=patience)
        return cls(source, encode, size, per_epoch), found

    def __len__(self) -> int:
        return self.rows * self.chunks

    @property
    def identity(self) -> str:
        """That of the table."""
        return self.source.identity


class StreamBatches(Batches):
    """Batches of a stream. All members see the same chunks, and within each of them every member has its own order."""

    def __init__(self, source: Streamed, batch_size: int, device: torch.device, seed: int, **shared: Any) -> None:
        super().__init__(len(source), batch_size, device, **shared)
        self.source, self._seed = source, seed
        self._chunks: Iterator[Any] = iter(())
        self._next = -1
        self._current: Sample | None = None

    def begin(self, epoch: int) -> None:
        """Go to the first chunk of an epoch; a resumed training reads over those before it."""
        if epoch != self._next:
            self._chunks = self.source.source.chunks(self.source.rows, self._seed)
            for _ in range(epoch * self.source.chunks):
                next(self._chunks)
        self._next = epoch + 1

    def epoch(self, streams: Sequence[torch.Generator]) -> Iterator[Sample]:
        """All batches of one epoch."""
        for _ in range(self.source.chunks):
            self._current = self.loaded(self.source.encode(next(self._chunks)))
            drawn = torch.stack(orders([len(self._current)] * len(streams), self.batch, streams))
            for index in self.split(drawn):
                yield pick(self._current, index)

    def in_order(self) -> Iterator[Sample]:
        """The rows of the current chunk, the same for all members: where a loss was not finite is found among them."""
        assert self._current is not None
        yield same_for_all(self._current)


def as_sample(items: list[Any]) -> Sample:
    """Items of a Dataset as a batch."""
    try:
        collated = default_collate(items)
    except (TypeError, RuntimeError) as error:
        must, why = "must be tensors or numbers of one shape each", str(error).splitlines()[0]
        remedy = "Pad what differs in length, and drop items without a count."
        raise InputError(f"items of the data set {must}, got {why}. {remedy}") from None
    if not isinstance(collated, list | tuple) or not 2 <= len(collated) <= 4:
        must, got = "must be (x, y[, weight[, exposure]])", type(items[0]).__name__
        raise InputError(f"items of the data set {must}, got {got}. Return a tuple from __getitem__.")
    sample = Sample(*collated)
    check_vectors(sample)
    return sample


# Checks of the rows a training is given, before its first step -------------------------------------------------------


def check_any_row(rows: int) -> None:
    """Raise an `InputError` if there is no row."""
    if rows == 0:
        raise InputError("data must hold at least one row, got 0.")


def check_vectors(sample: Sample) -> None:
    """Raise an `InputError` if counts, weights or exposures are not one number per row."""
    for name, part in sample.parts.items():
        if name != "X" and part.dim() != 1:
            raise InputError(f"{name} must have one number per row, got shape {tuple(part.shape)}. Use reshape(-1).")


def check_source(name: str, source: Any) -> None:
    """Raise an `InputError` if `source` is no rows in memory and no map-style Dataset."""
    is_dataset = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    if isinstance(source, Sample | Augmented | OwnRows):
        return
    if not is_dataset or isinstance(source, tuple | list | dict | str | Tensor):
        kinds = "a Sample, Augmented or a Dataset with a length"
        raise InputError(f"{name} must be {kinds}, got {type(source).__name__}. Use Sample(X, y).")


def check_sample(sample: Sample, head: Head) -> None:
    """Raise an `InputError` if the parts are not tensors of one length, or hold values that `head` cannot take."""
    parts = sample.parts
    for name, part in parts.items():
        if not isinstance(part, Tensor):
            raise InputError(f"{name} must be a tensor, got {type(part).__name__}. Use torch.as_tensor.")
    check_any_row(len(sample))
    if len({len(part) for part in parts.values()}) > 1:
        found = listed([f"{name} of {len(part)}" for name, part in parts.items()])
        raise InputError(f"X, y, weight and exposure must have the same number of rows, got {found}.")
    check_vectors(sample)
    check_values(sample, head)
    if sample.weight is not None and not sample.weight.any():
        raise InputError("weight must be above 0 in some row, got 0 in all rows.")


def check_values(sample: Sample, head: Head) -> None:
    """Raise an `InputError` for counts outside the support, negative weights, and exposures that are not positive."""
    if head.support.is_discrete:
        check_counts("y", sample.y)
    _check("y", sample.y, sample.y.isfinite(), "finite")
    if sample.exposure is not None:
        check_positive("exposure", sample.exposure, "Give the time or size that each count was counted over.")
    if head.exposure_is_total:
        exposure = None if sample.exposure is None else sample.exposure.cpu().numpy()
        head.check_targets(sample.y.cpu().numpy(), exposure)
    if sample.weight is not None:
        _check("weight", sample.weight, sample.weight.isfinite(), "finite")
        _check("weight", sample.weight, sample.weight >= 0, "at least 0")


def check_exposure_in_both(train: Any, validation: Any) -> None:
    """Raise an `InputError` if one of training and validation rows has exposures and the other has none."""
    samples = [source.sample if isinstance(source, Augmented) else source for source in (train, validation)]
    has = [sample.exposure is not None for sample in samples if isinstance(sample, Sample)]
    if len(set(has)) > 1:
        with_, without = ("train", "validation") if has[0] else ("validation", "train")
        raise InputError(f"exposure must be in both or in none, got one in {with_}, none in {without}.")


def _check(name: str, values: Tensor, good: Tensor, condition: str) -> None:
    if not good.all():
        row = int((~good).nonzero()[0])
        raise InputError(f"{name} must be {condition}, got {values[row]:g} at row {row}.")
