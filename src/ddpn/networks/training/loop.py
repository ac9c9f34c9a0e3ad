"""The training loop: it trains all networks of an ensemble at once, each as if it were trained alone."""

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor

from ddpn.networks.model import CountModel
from ddpn.networks.training.batches import (
    MemoryBatches,
    PerNetworkRows,
    Source,
    StreamBatches,
    StreamedRows,
    TensorRows,
    check_sample,
    iter_chunks,
)
from ddpn.networks.training.captured_steps import CapturedSteps, can_capture
from ddpn.networks.training.config import Runtime, TrainingConfig
from ddpn.networks.training.history import History
from ddpn.networks.training.seeds import seed_torch
from ddpn.networks.training.state import State, identify_rows, read_checkpoint
from ddpn.networks.training.validation import AnyBatches, compute_mean_scores
from ddpn.networks.training.weights import hash_frozen_tensors
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import Clock, TimeLimitError, check_deadline
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.progress import progress_bar
from ddpn.runtime.threads import limit_torch_threads
from ddpn.storage.contents import JsonObject
from ddpn.storage.tensor_files import fingerprint, write


@torch.inference_mode(False)  # whatever the caller's mode: gradients are needed
def fit(
    model: CountModel,
    train: Source,
    validation: TensorRows | None = None,
    config: TrainingConfig = TrainingConfig(),  # noqa: B008
    *,
    augment: Callable[[Tensor], Tensor] | None = None,
    runtime: Runtime | None = None,
    checkpoint: Path | str | None = None,
    save_seconds: float = 30.0,
    verbose: bool = False,
    title: str = "Training",
    on_epoch: Callable[[str], object] | None = None,
    after_epoch: Callable[[int], object] | None = None,
    clock: Clock | None = None,
) -> History:
    """Train a model in place. When the training ends, for whatever reason, each network has its best weights.

    Parameters
    ----------
    model : CountModel
        The model, with weights that `reset` drew.
    train : CountRows of tensors, PerNetworkRows or StreamedRows
        Training rows. `PerNetworkRows` contain training and validation rows for each network. All networks then keep
        the weights of the same epoch. `StreamedRows` are read during training.
    validation : CountRows of tensors, optional
        Rows whose score selects each network's best epoch. Without them, the weights of the last epoch are kept.
    config : TrainingConfig
        The settings.
    augment : callable, optional
        Randomly changes the inputs of training rows before every epoch, in the same way for all networks. It takes up
        to 1,024 inputs at a time and returns inputs of the same shape and dtype. It should use torch's global
        generator, which is seeded in every epoch. The original inputs may stay in CPU memory; only the changed copy
        must be on the device.
    runtime : Runtime, optional
        The device on which the model is trained, and the processes that share this work. Default: a GPU if there is
        one.
    checkpoint : path, optional
        A file for the state of the training, written every `save_seconds` and on Ctrl-C. If the file exists and belongs
        to the same training run, training continues from it. On a CPU, the final weights are then the same, bit for
        bit, as without an interruption.
    save_seconds : float
        The time between two checkpoints.
    verbose : bool
        Show a progress bar.
    title : str
        The title of the progress bar.
    on_epoch : callable, optional
        Called after every epoch with a progress message.
    after_epoch : callable, optional
        Called after every epoch, in every process, with the number of completed epochs. The model then has the weights
        of that epoch, so that they can be scored or saved. When training continues after an interruption, the calls
        since the checkpoint are repeated.
    clock : Clock, optional
        A time limit. When it is up, each network gets its best weights so far. If there is not enough time for all
        epochs, the learning rate falls faster. If no epoch was completed, a `TimeLimitError` is raised.

    Notes
    -----
    Ctrl-C (any KeyboardInterrupt) during an epoch ends the training, not the program. The state returns to the end of
    the last completed epoch, the checkpoint is written, the model gets each network's best weights so far, and the
    history is returned with `interrupted=True`. Callers should check this flag. If no epoch was completed,
    `history.epochs` is empty and the model has its initial weights. A second Ctrl-C is raised as usual.
    """
    runtime = runtime or Runtime()
    training = Training(model.to(runtime.device), train, validation, config, runtime, clock=clock, augment=augment)
    state = training.state
    # Only the main process writes checkpoints. The others need not wait, and may be on other machines.
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None:
        identity = training.describe_identity()
        runtime.broadcast_file(path)
        if (saved := read_checkpoint(path, identity)) is not None:
            state.restore(saved)

    def save() -> None:
        """Write a checkpoint of the state at the start of the current epoch, from which training can continue."""
        if path is not None and runtime.is_main:
            write(path, state.epoch_start.tensors, state.epoch_start.info | {"identity": identity})

    saved_at = time.monotonic()
    try:
        with progress_bar(title, config.epochs, verbose and runtime.is_main, state.epoch) as bar:
            while not state.is_done:
                text = training.run_epoch()
                bar.advance(1, text)
                if on_epoch is not None and runtime.is_main:
                    on_epoch(f"epoch {state.epoch} of {config.epochs}, {text}")
                if after_epoch is not None:
                    with state.use_averaged_weights():
                        after_epoch(state.epoch)
                if time.monotonic() - saved_at > save_seconds:
                    save()
                    saved_at = time.monotonic()
    except TimeLimitError:
        state.restore(state.epoch_start)
        state.history.stopped = "the time was up"
        if not state.history.epochs:
            raise
    except KeyboardInterrupt:
        state.restore(state.epoch_start)
        save()
        state.history.interrupted, state.history.stopped = True, "interrupted"
    finally:
        training.close()
    if state.have_all_stopped and not state.history.interrupted:
        state.history.stopped = f"no network had a better {config.score} for {config.patience} epochs"
    return state.history


class Training:
    """A training run in progress: its batches and its state, and a method that runs the next epoch.

    The arguments are those of `fit`.
    """

    def __init__(
        self,
        model: CountModel,
        train: Source,
        validation: TensorRows | None,
        config: TrainingConfig,
        runtime: Runtime,
        clock: Clock | None = None,
        augment: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.model, self.config, self.runtime = model, config, runtime
        self._sources, self._augment = (train, validation), augment
        self._clock = clock if clock is not None and clock.has_limit else None
        if isinstance(train, PerNetworkRows) and validation is not None:
            raise ConfigError("validation must be None if training rows are PerNetworkRows, which contain it.")
        if isinstance(train, StreamedRows) and augment is not None:
            raise ConfigError(
                "augment must be None if training rows are StreamedRows. Change the rows in `encode` instead."
            )
        has_exposure = [rows.exposure is not None for rows in (train, validation) if isinstance(rows, CountRows)]
        if len(set(has_exposure)) > 1:
            got = "one in train only" if has_exposure[0] else "one in validation only"
            raise InputError(argument="exposure", must="be in both train and validation, or in neither", got=got)
        weight = model.projection.weight
        if weight.numel() and not weight.flatten(1).any(1).all():
            # New layers hold zeros, from which only biases would learn.
            raise ConfigError("All weights of the model are 0. Call model.reset(config.seeds) before training.")
        is_per_network = isinstance(train, PerNetworkRows)
        self.state = State(
            model, config, has_validation=is_per_network or validation is not None, shares_epoch=is_per_network
        )
        self.batches, self.validation = self._make_batches("train", train), None
        if is_per_network:
            self.validation = self._make_batches("validation", train)
        elif validation is not None:
            self.validation = self._make_batches("validation", validation)
        if self.batches.batch < runtime.shard.world_size:
            processes = f"the number of processes, {runtime.shard.world_size}"
            raise ConfigError(f"batch_size must be at least {processes}, got batches of {self.batches.batch} rows.")
        self.steps = config.epochs * self.batches.steps
        self._captured: CapturedSteps | None = None
        if isinstance(self.batches, MemoryBatches) and can_capture(model, self.batches, runtime):
            self._captured = CapturedSteps(self.train_step, self.state, self.batches)

    def _make_batches(self, name: str, source: Source) -> AnyBatches:
        """Validate rows and return batches of them on the device.

        `name` is "train" or "validation". If `source` is `PerNetworkRows`, it selects their training or validation
        rows.
        """
        shared: JsonObject = {"shard": self.runtime.shard, "accumulate": self.config.accumulate}
        if isinstance(source, StreamedRows):
            return StreamBatches(source, self.config.batch_size, self.config.seeds[0], self._load_rows, **shared)
        if not isinstance(source, CountRows | PerNetworkRows):
            kinds, remedy = "be a CountRows, PerNetworkRows or StreamedRows", "Use CountRows(X, y)."
            raise InputError(argument=name, must=kinds, got=type(source).__name__, remedy=remedy)
        sample = self._load_rows(source if isinstance(source, CountRows) else source.sample, needs_weight=True)
        positions = getattr(source, name) if isinstance(source, PerNetworkRows) else None
        if name == "train" and self._augment is not None:
            rows = source if isinstance(source, CountRows) else source.sample
            shared |= {"augment": self._augment, "original_inputs": rows.X}
        return MemoryBatches(sample, self.config.batch_size, positions, **shared)

    def _load_rows(self, sample: TensorRows, needs_weight: bool = False) -> TensorRows:
        check_sample(sample, self.model.head, needs_weight)
        return sample.map(lambda t: t.to(self.runtime.device))

    def describe_identity(self) -> JsonObject:
        """Describe the settings, rows and initial weights that distinguish this training run from others.

        A checkpoint stores this description, so that only the same training run continues from it. Call this method
        before the first step.
        """
        train, validation = self._sources
        head = {"name": self.model.head.name, "options": self.model.head.options}
        shapes = {name: list(p.shape) for name, p in self.model.named_parameters()}
        return {
            "config": self.config.as_dict(),
            "training data": identify_rows(train) | ({} if self._augment is None else {"augmented": True}),
            "validation data": None if self.validation is None else identify_rows(validation or train),
            # Through JSON, so that it equals what is read from a file, where tuples are lists.
            "head": json.loads(json.dumps(head)),
            "network": {"layers": str(self.model.backbone), "shapes": shapes},
            "frozen weights": hash_frozen_tensors(self.model),
            "initial weights": fingerprint(self.state.flat.values),
        }

    def close(self) -> None:
        """Load each network's best weights into the model, and free the GPU memory of captured steps."""
        self.state.keep_best()
        self._captured = None

    # One epoch ---------------------------------------------------------------------------------------------------

    def run_epoch(self) -> str:
        """Train for one epoch, score the validation rows and keep the best weights; return a progress message."""
        if isinstance(self.batches, StreamBatches):
            return self._run_epoch()
        # The thread limit covers the whole epoch, because operations between steps are small as well.
        with limit_torch_threads(self.model.estimate_multiply_adds(self.batches.sample.X[: self.batches.batch])):
            return self._run_epoch()

    def _run_epoch(self) -> str:
        started = time.perf_counter()
        if self._captured is not None and not self._captured.ensure_captured():
            self._captured = None
        self.batches.begin_epoch(self.state.epoch)
        # Captured steps use the generator of their device instead.
        is_captured = self._captured is not None
        key = (self.config.seeds, self.state.epoch, self.runtime.shard.rank)
        with nullcontext() if is_captured else seed_torch(self.runtime.device, key):
            losses = self._train_epoch()
        scores = None
        if self.validation is not None:
            with self.state.use_averaged_weights():
                scores = compute_mean_scores(self.model, self.validation, self.config, self.runtime)
        lr, seconds = self.config.lr_at(self.state.step - 1, self.steps), time.perf_counter() - started
        self.state.complete_epoch(losses, scores, lr=lr, seconds=seconds)
        if scores is None:
            return f"loss {sum(losses) / len(losses):.4f}"
        return f"validation {self.config.score} {sum(scores) / len(scores):.4f}"

    def _train_epoch(self) -> list[float]:
        self.model.train()
        state = self.state
        if self._captured is not None:
            self._get_schedule_step()
            total, healthy = self._captured.epoch()
            state.step += self.batches.steps
        else:
            total = torch.zeros(self.config.n_networks, dtype=torch.float32, device=self.runtime.device)
            healthy = torch.ones_like(total, dtype=torch.bool)
            for batch in self.batches.epoch(state.generators):
                state.optimizer.lr.fill_(self.config.lr_at(self._get_schedule_step(), self.steps))
                total += self.train_step(batch)
                state.step += 1
                healthy &= state.optimizer.healthy
                if self.runtime.device.type == "cpu" and not healthy.all():
                    state.roll_back(healthy, self._find_failing_rows, self.runtime.is_main)
                    healthy.fill_(True)
        state.roll_back(healthy, self._find_failing_rows, self.runtime.is_main)
        return (total / self.batches.steps).tolist()

    def _get_schedule_step(self) -> int:
        """Return the index of the step that determines the learning rate.

        This is the index of the current step. If there is a time limit, and the share of the time that has passed is
        larger than the share of the steps that are done, it is the index of a later step. The learning rate thus
        reaches the end of its schedule when the time is up.
        """
        check_deadline()
        if self._clock is None:
            return self.state.step
        if not self._clock.left:
            raise TimeLimitError("the time is up")
        used_share = 1.0 - self._clock.left / (self._clock.end - self._clock.started)
        return max(self.state.step, round(used_share * self.steps))

    def train_step(self, batch: TensorRows) -> Tensor:
        """Update all networks with one batch; return the mean loss of each network, of shape (M,).

        The fields of `batch` have shape (B, M, ...).
        """
        loss, flat, size = None, self.state.flat, -(-len(batch) // self.config.accumulate)
        with limit_torch_threads(self.model.estimate_multiply_adds(batch.X[:size, 0])):
            for part in iter_chunks(batch, size):
                # The mean of each network: the gradient of their sum is each network's own gradient.
                mean = self._losses(part).sum(0) / self.batches.batch
                flat.add_gradient(mean.sum(), overwrites=loss is None)
                loss = mean.detach() if loss is None else loss + mean.detach()
            assert loss is not None
            self.runtime.sum_over_processes(flat.grad)
            self.runtime.sum_over_processes(loss)
            self.state.optimizer.apply(loss)
        return loss

    def _losses(self, part: TensorRows) -> Tensor:
        """Compute the training objective times the sample weight for each row and network. Shape: (B, M).

        `part` has rows of a training batch, whose fields have shape (B, M, ...).
        """
        with self.runtime.autocast(self.config.precision):
            raw = self.model.raw(part.X)
        losses = self.model.head.sample_loss(raw, part)
        return losses if part.weight is None else losses * part.weight

    @torch.no_grad()
    def _find_failing_rows(self, network: int) -> list[int]:
        losses = torch.cat([self._losses(part)[:, network] for part in self.batches.in_order()])
        return (~losses.isfinite()).nonzero().flatten().tolist()
