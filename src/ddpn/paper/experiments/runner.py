"""Doing one run: train, predict, score, write its folder."""

import json
import math
import platform
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddpn.networks.model import CountModel
from ddpn.networks.training import Runtime, TrainingConfig, fit
from ddpn.networks.training.batches import WITHOUT_GRADIENTS
from ddpn.networks.training.weights import load_trained_tensors, trained_tensors
from ddpn.paper.experiments.experiment import Run
from ddpn.paper.experiments.networks import network_of
from ddpn.paper.experiments.results import CONFIG, DONE, PREDICTIONS, RESULT, WEIGHTS
from ddpn.paper.experiments.rows import PARTS, ExperimentRows
from ddpn.paper.experiments.scoring import score
from ddpn.sample import Sample
from ddpn.storage.files import write_text
from ddpn.storage.tensor_files import read, write


class Trained(NamedTuple):
    """The result of a training: raw outputs of test rows ("raw") and OOD rows ("ood"), weights, and its history.

    If members were trained in groups, the names of weights begin with the number of their group.
    """

    outputs: dict[str, Tensor]
    weights: dict[str, Tensor]
    history: dict[str, Any]


def execute(run: Run, parts: ExperimentRows, folder: Path, device: str = "auto") -> dict[str, Any]:
    """Do a run and return its result. If several processes share the training, one of them writes the files.

    KeyboardInterrupt passes through; checkpoints of members stay in `folder`, and the next call resumes from them.
    """
    runtime = Runtime(device)
    config = {"settings": run.as_dict(), "identity": parts.identity}
    if runtime.is_main:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / DONE).unlink(missing_ok=True)
        content, path = json.dumps(config, indent=1), folder / CONFIG
        # `fit` refuses checkpoints of other settings or rows.
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            _forget_members(folder)
            write_text(path, content)
    runtime.wait()
    started = time.perf_counter()
    trained = _fit_glm(run, parts) if run.method.exact else _train(run, parts, folder, device)
    used = "cpu" if run.method.exact else str(runtime.device)
    result = config | {
        "experiment": run.experiment.name,
        "method": run.method.name,
        "label": run.method.label,
        "point": dict(run.point),
        "note": parts.note,
        "rows": {name: len(getattr(parts, name) or ()) for name in PARTS},
        "scores": score(run.head(trained.outputs["raw"].double()), parts.test.y.double(), parts.truth),
        "seconds": time.perf_counter() - started,
        "machine": {"system": platform.platform(), "torch": torch.__version__, "device": used},
        "history": trained.history,
    }
    # No process may still read the files of members when they are deleted.
    runtime.wait()
    if runtime.is_main:
        _write(folder, run, parts, trained, result)
    return result


def _write(folder: Path, run: Run, parts: ExperimentRows, trained: Trained, result: dict[str, Any]) -> None:
    tensors = trained.outputs | {"y": parts.test.y}
    tensors |= {"x": parts.test.X} if parts.test.X.dim() == 2 and not parts.cached else {}
    tensors |= {} if parts.lengths is None else dict(zip(("length", "ood_length"), parts.lengths, strict=True))
    write(folder / PREDICTIONS, tensors, {})
    write(folder / WEIGHTS, trained.weights, {"head": run.head.name})
    write_text(folder / RESULT, json.dumps(result, indent=1))
    write_text(folder / DONE, "")
    _forget_members(folder)


def _forget_members(folder: Path) -> None:
    """Delete the files of members: the run is finished, or starts again."""
    for path in folder.glob("members-*"):
        path.unlink()


def _fit_glm(run: Run, parts: ExperimentRows) -> Trained:
    """Fit a GLM by maximum likelihood, without members and seeds."""
    from ddpn.estimators import CountGLM  # imports scikit-learn, which no worker needs to train networks

    assert isinstance(parts.train, Sample)
    x, y = parts.train.X.double().numpy(), parts.train.y.double().numpy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        glm = CountGLM(likelihood=run.method.head).fit(x, y)
    known = {"coef": torch.from_numpy(glm.coef_), "intercept": torch.from_numpy(glm.intercept_)}
    raw = parts.test.X.double() @ known["coef"].T + known["intercept"]
    history = {"iterations": int(glm.n_iter_), "gradient_norm": float(glm.gradient_norm_)}
    warned = {"warnings": [str(each.message) for each in caught]}
    return Trained({"raw": raw.unsqueeze(1).float()}, known, history | warned)


def _train(run: Run, parts: ExperimentRows, folder: Path, device: str) -> Trained:
    """Train every member, some at a time in memory; `folder` holds the finished ones until the run is done."""
    settings = run.training
    shared = ("batch_size", "lr", "weight_decay", "warmup", "precision", "accumulate")
    config = TrainingConfig(
        epochs=settings.epochs_for(len(parts.train)),
        clip=None,
        ema=0.0,
        score="crps",
        seeds=tuple(settings.seed + member for member in range(settings.members)),
        **{name: getattr(settings, name) for name in shared},
    )
    runtime, at_once = Runtime(device, config.precision), settings.at_once or settings.members
    given = {"raw": parts.test.X} | ({} if parts.ood is None else {"ood": parts.ood})
    outputs: dict[str, list[Tensor]] = {name: [] for name in given}
    weights: dict[str, Tensor] = {}
    histories = []
    # The memory that training needs is enough for so many rows.
    batch = WITHOUT_GRADIENTS * -(-settings.batch_size // settings.accumulate)
    for number, first in enumerate(range(0, settings.members, at_once)):
        own = replace(config, seeds=config.seeds[first : first + at_once])
        model, history = _train_group(run, parts, own, runtime, folder / f"members-{number}")
        histories.append(history)
        for name, x in given.items():
            outputs[name].append(_predict(model, x, runtime, batch))
        prefix = f"{number}/" if at_once < settings.members else ""
        weights |= {f"{prefix}{name}": tensor.float().cpu() for name, tensor in trained_tensors(model).items()}
    together = histories[0] if len(histories) == 1 else {"groups": histories}
    return Trained({name: torch.cat(each, dim=1) for name, each in outputs.items()}, weights, together)


def _train_group(
    run: Run, parts: ExperimentRows, config: TrainingConfig, runtime: Runtime, path: Path
) -> tuple[CountModel, dict[str, Any]]:
    """Members that are trained together, or read from their file if they were, and their history.

    An interrupted training has a checkpoint beside that file, from which it resumes.
    """
    width = parts.train.X.shape[1] if isinstance(parts.train, Sample) else 0
    network = network_of(run.experiment, width, config.members, classes=parts.classes)
    model = CountModel(network.tail if parts.cached else network, run.head, config.members)
    done, state = path.with_suffix(".safetensors"), path.with_suffix(".state")
    if not done.exists():
        model.reset(config.seeds)
        _start_gamma(model)
        history = fit(model, parts.train, parts.validation, config, runtime=runtime, checkpoint=state)
        if history.interrupted:
            raise KeyboardInterrupt  # the finished members and the checkpoint stay
        if runtime.is_main:
            write(done, trained_tensors(model), {"history": history.as_dict()})
            state.unlink(missing_ok=True)
        runtime.wait()
    tensors, about = read(done)
    load_trained_tensors(model, tensors, done)
    return model.cpu().eval(), about["history"]


@torch.no_grad()
def _predict(model: CountModel, x: Tensor, runtime: Runtime, batch: int) -> Tensor:
    """Raw outputs (rows, M, P): for tables in float64 on the CPU, for other inputs as in training."""
    if x.dim() == 2 and x.is_floating_point():
        exact = model.cpu().double()
        raw = torch.cat([exact.raw(part.double()) for part in x.split(16_384)]).float()
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
