"""Training the members of a run: all at once, or some at a time, each kept as soon as it is finished."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddpn.experiments.experiment import Run
from ddpn.experiments.inputs import Parts
from ddpn.experiments.machine import cores
from ddpn.experiments.networks import network_of
from ddpn.model import CountModel
from ddpn.sample import Sample
from ddpn.training import Runtime, TrainingConfig, fit_ensemble
from ddpn.training.batches import WITHOUT_GRADIENTS
from ddpn.training.trainable import trained_tensors

#: Rows of a table that are predicted together.
_BLOCK = 16_384


class Trained(NamedTuple):
    """What a training leaves: raw outputs of the test rows (and of those outside), weights, and how it went.

    Weights of members that were not trained together have the number of their group before their names.
    """

    raw: Tensor
    outside: Tensor | None
    weights: dict[str, Tensor]
    history: dict[str, Any]


def train(run: Run, parts: Parts, folder: Path, device: str, tell: Callable[[str], object]) -> Trained:
    """Every member; files of those that are finished lie in `folder` until the run is. `tell` is told every epoch."""
    settings = run.training
    config = _config(run, len(parts.train))  # type: ignore[arg-type]
    runtime = Runtime(device, config.precision)

    def make(members: int) -> CountModel:
        width = parts.train.X.shape[1] if isinstance(parts.train, Sample) else 0
        network = network_of(run.experiment, width, members, classes=parts.classes)
        return CountModel(network.tail if parts.cached else network, run.head, members)

    ensemble = fit_ensemble(
        make, parts.train, parts.validation, config, folder,
        at_once=settings.at_once or settings.members, runtime=runtime, prepare=_start_gamma,
        workers=min(settings.workers, cores()), on_epoch=tell,
    )  # fmt: skip
    if ensemble.interrupted:
        raise KeyboardInterrupt  # no run has a part of its members; what is finished is kept for the next time
    found: list[list[Tensor]] = []
    weights: dict[str, Tensor] = {}
    for number, model in enumerate(ensemble.models()):
        given = (parts.test.X, *(() if parts.outside is None else (parts.outside,)))
        found.append([predicted(model, x, runtime, _at_once(run)) for x in given])
        prefix = f"{number}/" if len(ensemble.groups) > 1 else ""
        weights |= {f"{prefix}{name}": tensor.float().cpu() for name, tensor in trained_tensors(model).items()}
    raw, *outside = (torch.cat(each, dim=1) for each in zip(*found, strict=True))
    histories = [history.as_dict() for history in ensemble.histories()]
    history = histories[0] if len(histories) == 1 else {"groups": histories}
    return Trained(raw, outside[0] if outside else None, weights, history)


def forget_members(folder: Path) -> None:
    """Delete the files of members: the run has all of them, or is begun anew."""
    for path in folder.glob("members-*"):
        path.unlink()


def _config(run: Run, rows: int) -> TrainingConfig:
    settings = run.training
    return TrainingConfig(
        epochs=settings.epochs_for(rows),
        batch_size=settings.batch_size,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        warmup=settings.warmup,
        precision=settings.precision,  # type: ignore[arg-type]
        accumulate=settings.accumulate,
        clip=None,
        ema=0.0,
        score="crps",
        seeds=tuple(settings.seed + member for member in range(settings.members)),
    )


def _at_once(run: Run) -> int:
    """Rows to predict together: what the training has room for."""
    return WITHOUT_GRADIENTS * -(-run.training.batch_size // run.training.accumulate)


@torch.no_grad()
def predicted(model: CountModel, x: Tensor, runtime: Runtime, batch: int) -> Tensor:
    """Raw outputs (rows, M, P): of tables in float64 on the CPU, of other inputs as they were trained."""
    if x.dim() == 2 and x.is_floating_point():
        exact = model.cpu().double()
        raw = torch.cat([exact.raw(part.double()) for part in x.split(_BLOCK)]).float()
        model.float()
        return raw
    model.to(runtime.device)
    with runtime.autocast():
        return torch.cat([model.raw(part.to(runtime.device)).float().cpu() for part in x.split(batch)])


def _start_gamma(model: CountModel) -> None:
    """The paper starts anywhere, unless gamma's initial value is what is studied: then it is a bias (Appendix A.4)."""
    gamma = getattr(model.head, "initial_gamma", None)
    if gamma is not None:
        with torch.no_grad():
            model.projection.bias[..., 1] = math.log(gamma)
