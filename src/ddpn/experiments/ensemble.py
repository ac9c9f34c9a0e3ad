"""Training the members of a run: all at once, or some at a time, each kept as soon as it is finished."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddpn.errors import InputError
from ddpn.experiments.experiment import Run
from ddpn.experiments.material import Parts
from ddpn.experiments.networks import network_of
from ddpn.model import CountModel
from ddpn.training import Rows, Runtime, TrainingConfig, fit
from ddpn.training.checkpoint import read, write

#: Rows of a table that are predicted together.
_BLOCK = 16_384
_RAW, _OUTSIDE, _WEIGHT = "raw", "outside", "weight:"


class Trained(NamedTuple):
    """What a training leaves: raw outputs of the test rows (and of those outside), weights, and how it went.

    Weights of members that were not trained together have the number of their group before their names.
    """

    raw: Tensor
    outside: Tensor | None
    weights: dict[str, Tensor]
    history: dict[str, Any]


def train(run: Run, parts: Parts, folder: Path, state: Path, device: str) -> Trained:
    """Every member; a group of them that was finished before is read from its file in `folder`."""
    groups = run.training.groups()
    if len(groups) == 1:
        return _train_group(run, parts, groups[0], state, device)
    found, runtime = [], Runtime(device)
    for number, group in enumerate(groups):
        path = folder / f"members-{number}.safetensors"
        found.append(_finished(path) or _train_group(run, parts, group, state, device))
        if runtime.is_main:
            _keep(path, found[-1])
            state.unlink(missing_ok=True)
        runtime.wait()
    return Trained(
        torch.cat([each.raw for each in found], dim=1),
        None if parts.outside is None else torch.cat([each.outside for each in found], dim=1),  # type: ignore[misc]
        {f"{number}/{name}": t for number, each in enumerate(found) for name, t in each.weights.items()},
        {"groups": [each.history for each in found]},
    )


def forget_groups(folder: Path) -> None:
    """Delete the files of finished groups: the run has all of them."""
    for path in folder.glob("members-*.safetensors"):
        path.unlink()


def _keep(path: Path, trained: Trained) -> None:
    tensors = {_RAW: trained.raw} | {f"{_WEIGHT}{name}": tensor for name, tensor in trained.weights.items()}
    tensors |= {} if trained.outside is None else {_OUTSIDE: trained.outside}
    write(path, tensors, {"history": trained.history})


def _finished(path: Path) -> Trained | None:
    """None where it is not there or was damaged, to be trained anew."""
    try:
        tensors, info = read(path)
    except InputError:
        return None
    weights = {name.removeprefix(_WEIGHT): t for name, t in tensors.items() if name.startswith(_WEIGHT)}
    return Trained(tensors[_RAW], tensors.get(_OUTSIDE), weights, info["history"])


def _train_group(run: Run, parts: Parts, group: range, state: Path, device: str) -> Trained:
    settings, head = run.training, run.head
    seeds = tuple(settings.seed + member for member in group)
    width = parts.train.x.shape[1] if isinstance(parts.train, Rows) else 0
    network = network_of(run.experiment, width, len(group), classes=parts.classes)
    model = CountModel(network.tail if parts.cached else network, head, len(group))
    model.reset(seeds)
    _start_gamma(model)
    config = TrainingConfig(
        epochs=settings.epochs_for(len(parts.train)),  # type: ignore[arg-type]
        batch_size=settings.batch_size,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        warmup=settings.warmup,
        precision=settings.precision,  # type: ignore[arg-type]
        accumulate=settings.accumulate,
        clip=None,
        ema=0.0,
        score="crps",
        seeds=seeds,
    )
    runtime = Runtime(device, config.precision)
    workers = settings.workers
    history = fit(
        model, parts.train, parts.validation, config, runtime=runtime, checkpoint=state, workers=workers
    ).as_dict()
    raw = predicted(model, parts.test.x, runtime, settings.batch_size)
    outside = None if parts.outside is None else predicted(model, parts.outside, runtime, settings.batch_size)
    learned = {name: p.detach().float().cpu() for name, p in model.named_parameters() if p.requires_grad}
    return Trained(raw, outside, learned, history)


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
