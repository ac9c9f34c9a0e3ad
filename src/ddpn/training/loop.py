"""The one training loop: every member of an ensemble at once, each as if it were alone."""

import time
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ddpn.backbones.members import generators
from ddpn.errors import InputError, TrainingError
from ddpn.metrics import crps
from ddpn.model import CountModel
from ddpn.training import checkpoint as files
from ddpn.training.capture import CapturedSteps
from ddpn.training.config import TrainingConfig
from ddpn.training.flat import Flat
from ddpn.training.history import History
from ddpn.training.progress import bar
from ddpn.training.rows import DatasetBatches, MemoryBatches, Rows
from ddpn.training.runtime import Runtime
from ddpn.training.updates import Updates

#: Rows looked at together in validation.
_VALIDATION_ROWS = 8192
#: A member that had to be rolled back so often will not recover by itself.
_MAX_ROLLBACKS = 3
#: Batch orders come from another stream than initial weights.
_ORDER_SEED = 2**31


def fit(
    model: CountModel,
    train: Rows | Dataset,
    validation: Rows | Dataset | None = None,
    config: TrainingConfig = TrainingConfig(),  # noqa: B008
    *,
    runtime: Runtime | None = None,
    checkpoint: Path | None = None,
    save_seconds: float = 30.0,
    verbose: bool = False,
    workers: int = 0,
) -> History:
    """Train `model` in place; afterwards it holds each member's best weights.

    With `checkpoint`, the state is written there every `save_seconds` and when interrupted, and a training that finds
    its own checkpoint goes on from it, on a CPU to the same weights bit for bit.
    """
    runtime = runtime or Runtime(precision=config.precision)
    training = Training(model.to(runtime.device), train, validation, config, runtime, workers)
    if checkpoint is not None:
        training.resume(checkpoint)
    saved = time.monotonic()
    try:
        with bar(config.epochs, training.epoch, verbose and runtime.is_main) as tell:
            while training.epoch < config.epochs and not training.is_done:
                tell(training.epoch, training.run_epoch())
                if checkpoint is not None and time.monotonic() - saved > save_seconds:
                    training.save(checkpoint)
                    saved = time.monotonic()
    except KeyboardInterrupt:
        training.history.stopped = f"interrupted in epoch {training.epoch + 1} of {config.epochs}"
        if checkpoint is not None:
            training.save(checkpoint)
        training.keep_best()
        raise
    training.keep_best()
    return training.history


class Training:
    """The state of a training between two epochs, and how to do the next one."""

    def __init__(
        self,
        model: CountModel,
        train: Rows | Dataset,
        validation: Rows | Dataset | None,
        config: TrainingConfig,
        runtime: Runtime,
        workers: int = 0,
    ) -> None:
        self.model, self.config, self.runtime = model, config, runtime
        self.flat = Flat(model, config.members)
        self.updates = Updates(self.flat, config)
        self.batches = _batches(train, config, runtime, workers)
        self.validation = None if validation is None else _batches(validation, config, runtime, workers)
        self.streams = generators([seed + _ORDER_SEED for seed in config.seeds])
        self.steps = config.epochs * self.batches.steps
        self.step, self.epoch = 0, 0
        self.history = History(best_epoch=[0] * config.members, best_score=[float("inf")] * config.members)
        self.best = self.flat.values.clone()
        self._rollbacks = [0] * config.members
        self._captured = CapturedSteps.of(self) if isinstance(self.batches, MemoryBatches) else None
        self._remember()

    @property
    def is_done(self) -> bool:
        """Whether every member has gone `patience` epochs without a better score."""
        patience = self.config.patience
        if patience is None or self.validation is None:
            return False
        return all(self.epoch - best >= patience for best in self.history.best_epoch)

    # One epoch ---------------------------------------------------------------------------------------------------

    def run_epoch(self) -> str:
        """Train once over the rows, validate, keep what is best; says how it went."""
        started = time.perf_counter()
        losses = self._train_epoch()
        scores = self._validate()
        self.epoch += 1
        record = {"epoch": self.epoch, "loss": losses, "lr": self.config.lr_at(self.step - 1, self.steps)}
        if scores is not None:
            record["score"] = scores
            self._select(scores)
        self.history.epochs.append(record | {"seconds": time.perf_counter() - started})
        self._remember()
        if scores is None:
            return f"loss {sum(losses) / len(losses):.4f}"
        return f"validation {self.config.score} {sum(scores) / len(scores):.4f}"

    def _train_epoch(self) -> list[float]:
        self.model.train()
        if self._captured is not None:
            totals, healthy = self._captured.epoch()
            self.step += self.batches.steps
            self._mend(healthy)
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
                self._mend(healthy)
                healthy.fill_(True)
        self._mend(healthy)
        return (total / self.batches.steps).tolist()

    def train_step(self, batch: Rows) -> Tensor:
        """One update of every member; its mean loss. Shape: (M,)."""
        loss = torch.zeros(self.config.members, device=self.runtime.device)
        for number, part in enumerate(batch.parts(-(-len(batch) // self.config.accumulate))):
            with self.runtime.autocast():
                raw = self.model.raw(part.x)
            each = self.model.head.loss(raw, part.y, part.exposure)
            if part.weight is not None:
                each = each * part.weight
            # Per member, so that the sum of all gives each the gradient of its own mean.
            mean = each.sum(0) / self.batches.batch
            self.flat.add_gradient_of(mean.sum(), fresh=number == 0)
            loss += mean.detach()
        self.runtime.add_up(self.flat.grad)
        self.updates.apply()
        return loss

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
        """Mean proper score a member; never the training objective, which a weight on it can bend."""
        if self.validation is None:
            return None
        self.model.eval()
        sums = torch.zeros(self.config.members + 1, dtype=torch.float64, device=self.runtime.device)
        with self._averaged(), torch.no_grad():
            for number, part in enumerate(_in_order(self.validation)):
                if number % self.runtime.share.world == self.runtime.share.rank:
                    each = self._scores(part)
                    weight = torch.ones_like(part.y) if part.weight is None else part.weight
                    sums[:-1] += (each.double() * weight.unsqueeze(1)).sum(0)
                    sums[-1] += weight.sum()
        self.runtime.add_up(sums)
        scores = (sums[:-1] / sums[-1]).tolist()
        return [score if score == score else float("inf") for score in scores]

    def _scores(self, part: Rows) -> Tensor:
        with self.runtime.autocast():
            raw = self.model.raw(part.x)
        law = self.model.head(raw, None if part.exposure is None else part.exposure.unsqueeze(1))
        y = part.y.unsqueeze(1)
        return -law.log_prob(y) if self.config.score == "nll" else crps(law, y)

    def _select(self, scores: list[float]) -> None:
        for member, score in enumerate(scores):
            late = self.config.patience is not None and (
                self.epoch - 1 - self.history.best_epoch[member] >= self.config.patience
            )
            if score < self.history.best_score[member] and not late:
                self.history.best_score[member], self.history.best_epoch[member] = score, self.epoch
                self.best[member] = self.updates.average[member]

    def keep_best(self) -> None:
        """Put the weights to keep into the model: each member's best epoch, or the last where nothing was validated."""
        if self.validation is None or not self.history.epochs:
            self.history.best_epoch = [self.epoch] * self.config.members
            self.flat.values.copy_(self.updates.average)
        else:
            self.flat.values.copy_(self.best)
        self.model.eval()

    # When a step fails -------------------------------------------------------------------------------------------

    def _mend(self, healthy: Tensor) -> None:
        """Members whose gradient was not finite go back to where the epoch began."""
        for member in (~healthy).nonzero().flatten().tolist():
            where = f"epoch {self.epoch + 1}, member {member}"
            story = f"non-finite loss in {where}, {self._culprits(member)}: the member was rolled back one epoch"
            self.history.rollbacks.append(story)
            self._rollbacks[member] += 1
            if self._rollbacks[member] > _MAX_ROLLBACKS:
                raise TrainingError(
                    f"loss must stay finite, got {self._rollbacks[member]} failures; the last: {story}. "
                    "Lower lr, or look at those rows."
                )
            warnings.warn(story, RuntimeWarning, stacklevel=2)
            for now, before in zip(self.updates.member_tensors(), self._members_before, strict=True):
                now[member] = before[member]

    def _culprits(self, member: int) -> str:
        """Rows whose loss is not finite for this member as it stands."""
        bad: list[int] = []
        first = 0
        with torch.no_grad():
            for part in _in_order(self.batches):
                y, exposure = (None if t is None else t.unsqueeze(1) for t in (part.y, part.exposure))
                assert y is not None
                each = self.model.head.loss(self.model.raw(part.x), y, exposure)[:, member]
                bad += (first + (~torch.isfinite(each)).nonzero().flatten()).tolist()
                first += len(part)
        if not bad:
            return "in its gradient alone"
        shown = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
        return f"{len(bad)} training rows: {shown}"

    # Stopping and going on ---------------------------------------------------------------------------------------

    def _remember(self) -> None:
        """What an epoch starts from: for rolling back, and for a checkpoint that is asked for in its middle."""
        self._members_before = [t.clone() for t in self.updates.member_tensors()]
        scalars = {name: t.clone() for name, t in self.updates.tensors().items() if t.dim() < 2}
        names = [name for name, t in self.updates.tensors().items() if t.dim() == 2]
        self._before = scalars | dict(zip(names, self._members_before, strict=True))
        self._before |= {"orders": files.generator_states(self.streams)}
        self._info_before = {"epoch": self.epoch, "step": self.step}

    def _identity(self) -> dict[str, Any]:
        data: dict[str, Any] = {"rows": self.batches.n}
        if isinstance(self.batches, MemoryBatches):
            for name, tensor in zip(Rows._fields, self.batches.rows, strict=True):
                data[name] = None if tensor is None else zlib.crc32(tensor.cpu().contiguous().numpy().tobytes())
        head = {"head": self.model.head.name, "options": self.model.head.options}
        return {"config": self.config.as_dict(), "data": data, "head": head, "size": list(self.flat.values.shape)}

    def save(self, path: Path) -> None:
        """The state at the beginning of the current epoch."""
        if self.runtime.is_main:
            history = self.history.as_dict() | {"epochs": self.history.epochs[: self._info_before["epoch"]]}
            info = {"identity": self._identity(), "history": history, "rollbacks": self._rollbacks} | self._info_before
            files.write(path, self._before | {"best": self.best}, info)
        self.runtime.wait()

    def resume(self, path: Path) -> None:
        """Take up a checkpoint where there is one."""
        if not path.exists():
            return
        tensors, info = files.read(path)
        if info["identity"] != self._identity():
            changed = [k for k, v in self._identity().items() if info["identity"].get(k) != v]
            raise InputError(
                f"checkpoint must come from this training, got {path} with another {' and '.join(changed)}. "
                "Delete it to start anew, or name another file."
            )
        for name, tensor in self.updates.tensors().items():
            tensor.copy_(tensors[name])
        self.best.copy_(tensors["best"])
        for stream, state in zip(self.streams, tensors["orders"], strict=True):
            stream.set_state(state)
        self.epoch, self.step, self._rollbacks = info["epoch"], info["step"], info["rollbacks"]
        self.history = History(**info["history"] | {"stopped": ""})
        self._remember()


def _batches(
    source: Rows | Dataset, config: TrainingConfig, runtime: Runtime, workers: int
) -> MemoryBatches | DatasetBatches:
    if isinstance(source, Rows):
        return MemoryBatches(source.to(runtime.device), config.batch_size, runtime.share)
    return DatasetBatches(source, config.batch_size, runtime.device, workers, runtime.share)


def _in_order(batches: MemoryBatches | DatasetBatches) -> Iterator[Rows]:
    if isinstance(batches, MemoryBatches):
        return batches.rows.parts(_VALIDATION_ROWS)
    return batches.in_order(_VALIDATION_ROWS)
