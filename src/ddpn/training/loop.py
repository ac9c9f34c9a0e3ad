"""The one training loop: every member of an ensemble at once, each as if it were alone."""

import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ddpn.backbones.members import generators
from ddpn.errors import ConfigError
from ddpn.model import CountModel
from ddpn.sample import Sample
from ddpn.training.batches import Augmented, DatasetBatches, MemoryBatches, Source, check_tensors, parts_of
from ddpn.training.buffers import Buffers
from ddpn.training.capture import CapturedSteps
from ddpn.training.checkpointing import Checkpoint, restore, snapshot
from ddpn.training.config import TrainingConfig
from ddpn.training.evaluation import mean_scores
from ddpn.training.flat import Flat
from ddpn.training.history import History
from ddpn.training.progress import bar
from ddpn.training.recovery import mend
from ddpn.training.runtime import Runtime
from ddpn.training.updates import Updates
from ddpn.training.validation import check_any_weight, check_exposure_in_both, check_source, check_values

#: Batch orders come from another stream than initial weights.
_ORDER_SEED = 2**31


def fit(
    model: CountModel,
    train: Source,
    validation: Sample | Dataset | None = None,
    config: TrainingConfig = TrainingConfig(),  # noqa: B008
    *,
    runtime: Runtime | None = None,
    checkpoint: Path | str | None = None,
    save_seconds: float = 30.0,
    verbose: bool = False,
    title: str = "Training",
    workers: int = 0,
    on_epoch: Callable[[str], object] | None = None,
) -> History:
    """Train `model` in place; afterwards, however it ended, it holds each member's best weights.

    With `checkpoint`, the state is written there every `save_seconds` and when interrupted, and a training that finds
    its own checkpoint goes on from it, on a CPU to the same weights bit for bit. `title` names the bar of `verbose`;
    `on_epoch` is called after every epoch with a sentence on the progress.

    Interruption: Ctrl-C (any KeyboardInterrupt) ends the training, not the program. The state returns to the end of
    the last complete epoch, the checkpoint is written, the model gets each member's best weights until then, and the
    history comes back with `interrupted` set, which callers look at before they go on. `history.epochs` is empty where
    no epoch was complete: then the model has its initial weights. A second Ctrl-C, after the first was taken up, is
    raised as usual.
    """
    runtime = runtime or Runtime(precision=config.precision)
    if runtime.precision != config.precision:
        raise ConfigError(
            f"precision of runtime must be that of config, got {runtime.precision} and {config.precision}. "
            "Use Runtime(device, config.precision)."
        )
    training = Training(model.to(runtime.device), train, validation, config, runtime, workers)
    file = None if checkpoint is None else Checkpoint(Path(checkpoint), training)
    if file is not None:
        file.resume()
    saved = time.monotonic()
    try:
        with bar(config.epochs, training.epoch, verbose and runtime.is_main, title) as move:
            while training.epoch < config.epochs and not training.is_done:
                text = training.run_epoch()
                move(training.epoch, text)
                if on_epoch is not None and runtime.is_main:
                    on_epoch(f"epoch {training.epoch} of {config.epochs}, {text}")
                if file is not None and time.monotonic() - saved > save_seconds:
                    file.save()
                    saved = time.monotonic()
    except KeyboardInterrupt:
        restore(training, training.before)
        if file is not None:
            file.save()
        training.history.interrupted, training.history.stopped = True, "interrupted"
    finally:
        training.keep_best()
    if training.is_done and not training.history.interrupted:
        training.history.stopped = f"no member had a better {config.score} for {config.patience} epochs"
    return training.history


class Training:
    """The state of a training between two epochs, and how to do the next one."""

    def __init__(
        self,
        model: CountModel,
        train: Source,
        validation: Sample | Dataset | None,
        config: TrainingConfig,
        runtime: Runtime,
        workers: int = 0,
    ) -> None:
        self.model, self.config, self.runtime = model, config, runtime
        check_exposure_in_both(train, validation)
        self.flat = Flat(model, config.members)
        _check_drawn(model)
        self.buffers = Buffers(model, config.members)
        self.updates = Updates(self.flat, config)
        self.batches = _batches("train", train, self, workers)
        if self.batches.batch < runtime.share.world:
            raise ConfigError(
                f"a batch must hold a row for each of the {runtime.share.world} processes, got {self.batches.batch}. "
                "Raise batch_size or use fewer processes."
            )
        self.validation = None if validation is None else _batches("validation", validation, self, workers)
        self.streams = generators([seed + _ORDER_SEED for seed in config.seeds])
        self.steps = config.epochs * self.batches.steps
        self.step, self.epoch = 0, 0
        self.history = History(best_epoch=[0] * config.members, best_score=[float("inf")] * config.members)
        self.best, self.best_buffers = self.flat.values.clone(), self.buffers.copied()
        self.failures = [0] * config.members
        self._captured = CapturedSteps.of(self) if isinstance(self.batches, MemoryBatches) else None
        self.before = snapshot(self)

    @property
    def is_done(self) -> bool:
        """Whether every member is."""
        return all(self.is_done_with(member) for member in range(self.config.members))

    def is_done_with(self, member: int) -> bool:
        """Whether a member has gone `patience` epochs without a better score; later ones change nothing for it."""
        patience = self.config.patience
        if patience is None or self.validation is None:
            return False
        return self.epoch - self.history.best_epoch[member] >= patience

    # One epoch ---------------------------------------------------------------------------------------------------

    def run_epoch(self) -> str:
        """Train once over the rows, validate, keep what is best; says how it went."""
        started = time.perf_counter()
        if isinstance(self.batches, MemoryBatches):
            self.batches.augment(self.epoch)
        if self._captured is not None and not self._captured.is_ready():
            self._captured = None
        with self._drawing():
            losses = self._train_epoch()
        scores = self._validate()
        if scores is not None:
            self._select(scores)
        self.epoch += 1
        record = {"epoch": self.epoch, "loss": losses, "lr": self.config.lr_at(self.step - 1, self.steps)}
        record |= {} if scores is None else {"score": scores}
        self.history.epochs.append(record | {"seconds": time.perf_counter() - started})
        self.before = snapshot(self)
        if scores is None:
            return f"loss {sum(losses) / len(losses):.4f}"
        return f"validation {self.config.score} {sum(scores) / len(scores):.4f}"

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Dropout, and pictures that are changed at random, draw from torch's own stream; it is put back afterwards.

        It begins anew with every epoch, so that a training that goes on draws what it would have drawn. A captured step
        keeps to its device's stream.
        """
        device = self.runtime.device
        if self._captured is not None:
            yield
            return
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(zlib.crc32(repr((self.config.seeds, self.epoch, self.runtime.share.rank)).encode()))
            yield

    def _train_epoch(self) -> list[float]:
        self.model.train()
        if self._captured is not None:
            totals, healthy = self._captured.epoch()
            self.step += self.batches.steps
            mend(self, healthy)
            return (totals / self.batches.steps).tolist()
        total = torch.zeros(self.config.members, device=self.runtime.device)
        on_host = self.runtime.device.type == "cpu"
        healthy = torch.ones_like(total, dtype=torch.bool)
        for batch in self.batches.epoch(self.streams):
            self.updates.lr.fill_(self.config.lr_at(self.step, self.steps))
            total += self.train_step(batch)
            self.step += 1
            healthy &= self.updates.healthy
            if on_host and not healthy.all():
                mend(self, healthy)
                healthy.fill_(True)
        mend(self, healthy)
        return (total / self.batches.steps).tolist()

    def train_step(self, batch: Sample) -> Tensor:
        """One update of every member; its mean loss. Shape: (M,)."""
        loss = None
        for part in parts_of(batch, -(-len(batch) // self.config.accumulate)):
            # Per member, so that the sum of all gives each the gradient of its own mean.
            mean = self.losses(part).sum(0) / self.batches.batch
            self.flat.add_gradient_of(mean.sum(), fresh=loss is None)
            loss = mean.detach() if loss is None else loss + mean.detach()
        assert loss is not None
        self.runtime.add_up(self.flat.grad)
        self.runtime.add_up(loss)
        self.updates.apply(loss)
        return loss

    def losses(self, part: Sample) -> Tensor:
        """The weighted objective of every row and member. Shape: (B, M)."""
        with self.runtime.autocast():
            raw = self.model.raw(part.X)
        each = self.model.head.loss(raw, part.y, part.exposure)
        return each if part.weight is None else each * part.weight

    # Judging an epoch --------------------------------------------------------------------------------------------

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """The averaged weights in place of the current ones."""
        if not self.config.ema:
            yield
            return
        current = self.flat.values.clone()
        self.flat.values.copy_(self.updates.average)
        try:
            yield
        finally:
            self.flat.values.copy_(current)

    def _validate(self) -> list[float] | None:
        if self.validation is None:
            return None
        with self._averaged():
            return mean_scores(self.model, self.validation, self.config.score, self.runtime)

    def _select(self, scores: list[float]) -> None:
        for member, score in enumerate(scores):
            if score < self.history.best_score[member] and not self.is_done_with(member):
                self.history.best_score[member], self.history.best_epoch[member] = score, self.epoch + 1
                self.best[member] = self.updates.average[member]
                self.buffers.keep(self.best_buffers, member)

    def keep_best(self) -> None:
        """Put the weights to keep into the model: each member's best epoch, or the last where nothing was validated."""
        if self.validation is None or not self.history.epochs:
            self.history.best_epoch = [self.epoch] * self.config.members
            self.flat.values.copy_(self.updates.average)
        else:
            self.flat.values.copy_(self.best)
            self.buffers.put(self.best_buffers)
        self.model.eval()
        # It knows the training that knows it: together they would stay in a GPU's memory for a while.
        self._captured = None


def _check_drawn(model: CountModel) -> None:
    """Layers are made of zeros, from which nothing but biases would learn."""
    weight = model.projection.weight
    if weight.numel() and not weight.flatten(1).any(1).all():
        raise ConfigError("weights must be drawn before a training, got zeros. Call model.reset(seeds=config.seeds).")


def _batches(name: str, source: Source, training: Training, workers: int) -> MemoryBatches | DatasetBatches:
    check_source(name, source)
    config, runtime, check = training.config, training.runtime, partial(check_values, head=training.model.head)
    if isinstance(source, Sample | Augmented):
        sample = source.sample if isinstance(source, Augmented) else source
        check_tensors(sample)
        sample = sample.map(lambda t: t.to(runtime.device))
        here = Augmented(sample, source.augment) if isinstance(source, Augmented) else sample
        batches = MemoryBatches(here, config.batch_size, runtime.share, config.accumulate)
        check(sample)
        check_any_weight(sample.weight)
        return batches
    return DatasetBatches(source, config.batch_size, runtime.device, workers, runtime.share, config.accumulate, check)
