"""Training the members of a run: all at once or some at a time, each saved as soon as it is finished."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddpn.experiments.experiment import Run
from ddpn.experiments.inputs import Parts
from ddpn.experiments.networks import network_of
from ddpn.model import CountModel
from ddpn.sample import Sample
from ddpn.threads import cores
from ddpn.training import Runtime, TrainingConfig, fit_ensemble
from ddpn.training.batches import WITHOUT_GRADIENTS
from ddpn.training.trainable import trained_tensors

#: Rows of a table that are predicted in one call.
_BLOCK = 16_384


class Trained(NamedTuple):
    """The result of a training: raw outputs of the test rows and of the OOD rows, weights, and its history.

    If members were trained in groups, the names of weights begin with the number of their group.
    """

    raw: Tensor
    ood: Tensor | None
    weights: dict[str, Tensor]
    history: dict[str, Any]


def train(run: Run, parts: Parts, folder: Path, device: str, tell: Callable[[str], object]) -> Trained:
    """Train every member; `folder` holds the finished ones until the run is done. `tell` gets a text per epoch."""
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
        raise KeyboardInterrupt  # the finished members and the checkpoint stay in `folder`
    found: list[list[Tensor]] = []
    weights: dict[str, Tensor] = {}
    # The memory that training needs is enough for so many rows.
    batch = WITHOUT_GRADIENTS * -(-settings.batch_size // settings.accumulate)
    for number, model in enumerate(ensemble.models()):
        given = (parts.test.X, *(() if parts.ood is None else (parts.ood,)))
        found.append([predicted(model, x, runtime, batch) for x in given])
        prefix = f"{number}/" if len(ensemble.groups) > 1 else ""
        weights |= {f"{prefix}{name}": tensor.float().cpu() for name, tensor in trained_tensors(model).items()}
    raw, *ood = (torch.cat(each, dim=1) for each in zip(*found, strict=True))
    histories = [history.as_dict() for history in ensemble.histories()]
    history = histories[0] if len(histories) == 1 else {"groups": histories}
    return Trained(raw, ood[0] if ood else None, weights, history)


def forget_members(folder: Path) -> None:
    """Delete the files of members: the run is finished, or starts again."""
    for path in folder.glob("members-*"):
        path.unlink()


def _config(run: Run, rows: int) -> TrainingConfig:
    settings = run.training
    shared = ("batch_size", "lr", "weight_decay", "warmup", "precision", "accumulate")
    return TrainingConfig(
        epochs=settings.epochs_for(rows),
        clip=None,
        ema=0.0,
        score="crps",
        seeds=tuple(settings.seed + member for member in range(settings.members)),
        **{name: getattr(settings, name) for name in shared},
    )


@torch.no_grad()
def predicted(model: CountModel, x: Tensor, runtime: Runtime, batch: int) -> Tensor:
    """Raw outputs (rows, M, P): for tables in float64 on the CPU, for other inputs as in training."""
    if x.dim() == 2 and x.is_floating_point():
        exact = model.cpu().double()
        raw = torch.cat([exact.raw(part.double()) for part in x.split(_BLOCK)]).float()
        model.float()
        return raw
    model.to(runtime.device)
    with runtime.autocast():
        return torch.cat([model.raw(part.to(runtime.device)).float().cpu() for part in x.split(batch)])


def _start_gamma(model: CountModel) -> None:
    """Set the bias to gamma's initial value where an experiment studies it (Appendix A.4); else it starts randomly."""
    gamma = getattr(model.head, "initial_gamma", None)
    if gamma is not None:
        with torch.no_grad():
            model.projection.bias[..., 1] = math.log(gamma)
