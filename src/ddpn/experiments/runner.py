"""Running an experiment: one folder a run, written whole, skipped when done, taken up where it stopped."""

import json
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.backbones import MLP
from ddpn.data import load, simulate
from ddpn.distributions import CountDistribution
from ddpn.estimator import CountGLM
from ddpn.experiments.scoring import score
from ddpn.experiments.settings import Experiment, Run
from ddpn.model import CountModel
from ddpn.training import Rows, Runtime, TrainingConfig, fit
from ddpn.training.checkpoint import read, write, write_bytes

#: A simulation is scored on so many rows that no training saw: a hundred would move the true law's own score by 10%.
TEST_ROWS = 10_000
#: A quick look: a tenth of the steps, two members.
_QUICK_SHARE, _QUICK_MEMBERS = 0.1, 2
RESULT, PREDICTIONS, WEIGHTS, STATE, DONE = (
    "run.json",
    "predictions.safetensors",
    "weights.safetensors",
    "state",
    "DONE",
)


class Parts(NamedTuple):
    """The rows of an experiment, and for simulations the law its test counts were drawn from."""

    train: Rows
    validation: Rows
    test: Rows
    truth: CountDistribution | None
    note: str


def quick(experiment: Experiment) -> Experiment:
    """The same experiment in a tenth of the time."""
    training = experiment.training
    changes: dict[str, Any] = {"members": min(training.members, _QUICK_MEMBERS)}
    for name in ("epochs", "steps"):
        if (value := getattr(training, name)) is not None:
            changes[name] = max(1, round(_QUICK_SHARE * value))
    return experiment.with_training(**changes)


def rows_of(experiment: Experiment) -> Parts:
    """Load or draw the rows."""
    if experiment.data is not None:
        data = load(experiment.data["name"])
        parts = {name: data.part(name, experiment.data["features"]) for name in ("train", "validation", "test")}
        rows = {name: _rows(table.matrix, y) for name, (table, y) in parts.items()}
        return Parts(rows["train"], rows["validation"], rows["test"], None, data.note)
    name = (experiment.simulation or {})["name"]
    drawn, fresh = simulate(name), simulate(name, n=TEST_ROWS, seed=experiment.training.seed + 7)
    train, validation = drawn.split.train, drawn.split.validation
    inside = validation if len(validation) else train
    return Parts(
        _rows(drawn.X[train], drawn.y[train]),
        _rows(drawn.X[inside], drawn.y[inside]),
        _rows(fresh.X, fresh.y),
        fresh.truth,
        f"{len(train)} training rows, scored on {len(fresh.y)} fresh ones",
    )


def _rows(x: np.ndarray, y: np.ndarray) -> Rows:
    return Rows(torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)), torch.from_numpy(y.astype(np.float32)))


def is_done(folder: Path, run: Run) -> bool:
    """Whether this run, with these settings, has been finished here."""
    if not (folder / DONE).exists():
        return False
    return json.loads((folder / RESULT).read_text())["settings"] == run.as_dict()


def run_all(experiment: Experiment, out: Path, device: str = "auto") -> Iterator[tuple[Run, str]]:
    """Do what is missing; tells of every run when it begins ("running") and how it ended ("done", "was done")."""
    parts: Parts | None = None
    for run in experiment.runs():
        folder = out / experiment.name / run.name
        if is_done(folder, run):
            yield run, "was done"
            continue
        yield run, "running"
        parts = rows_of(experiment) if parts is None else parts
        execute(run, parts, folder, device)
        yield run, "done"


def execute(run: Run, parts: Parts, folder: Path, device: str = "auto") -> dict[str, Any]:
    """Train, predict, score; DONE is written last."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DONE).unlink(missing_ok=True)
    started = time.perf_counter()
    raw, weights, history = (_exact if run.method.exact else _trained)(run, parts, folder, device)
    law = run.head(raw.double())
    result = {
        "experiment": run.experiment.name,
        "method": run.method.name,
        "label": run.method.label,
        "point": dict(run.point),
        "settings": run.as_dict(),
        "note": parts.note,
        "rows": {name: len(getattr(parts, name)) for name in ("train", "validation", "test")},
        "scores": score(law, parts.test.y.double(), parts.truth),
        "seconds": time.perf_counter() - started,
        "machine": {"system": platform.platform(), "torch": torch.__version__, "device": str(Runtime(device).device)},
        "history": history,
    }
    write(folder / PREDICTIONS, {"raw": raw, "y": parts.test.y, "x": parts.test.x}, {"method": run.method.name})
    write(folder / WEIGHTS, weights, {"head": run.head.name})
    write_bytes(folder / RESULT, json.dumps(result, indent=1).encode())
    (folder / STATE).unlink(missing_ok=True)
    write_bytes(folder / DONE, b"")
    return result


def _trained(run: Run, parts: Parts, folder: Path, device: str) -> tuple[Tensor, dict[str, Tensor], dict[str, Any]]:
    settings, head = run.training, run.head
    seeds = tuple(settings.seed + member for member in range(settings.members))
    model = CountModel(
        MLP(n_in=parts.train.x.shape[1], hidden=settings.hidden, members=settings.members), head, settings.members
    )
    model.reset(seeds, _start(run, head, parts))
    config = TrainingConfig(
        epochs=settings.epochs_for(len(parts.train)),
        batch_size=settings.batch_size,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        warmup=0.0,
        clip=None,
        ema=0.0,
        score="crps",
        seeds=seeds,
    )
    history = fit(model, parts.train, parts.validation, config, runtime=Runtime(device), checkpoint=folder / STATE)
    model.cpu().double()
    with torch.no_grad():
        raw = torch.cat([model.raw(part.x.double()) for part in parts.test.parts(16384)])
    return raw.float(), {name: t.float() for name, t in model.state_dict().items()}, history.as_dict()


def _start(run: Run, head: Any, parts: Parts) -> Tensor | None:
    """The paper starts anywhere, unless gamma's initial value is what is studied."""
    if getattr(head, "initial_gamma", None) is None:
        return None
    return torch.stack([torch.zeros((), dtype=torch.float64), torch.tensor(head.initial_gamma).double().log()])


def _exact(run: Run, parts: Parts, folder: Path, device: str) -> tuple[Tensor, dict[str, Tensor], dict[str, Any]]:
    """A GLM has one maximum: no members, no seeds."""
    glm = CountGLM(likelihood=run.method.head)
    glm.fit(parts.train.x.double().numpy(), parts.train.y.double().numpy())
    raw, _ = glm._raw(parts.test.x.double().numpy(), None)
    known = {name: torch.as_tensor(np.asarray(getattr(glm, name))) for name in ("coef_", "intercept_")}
    return raw.float(), known, {"iterations": int(glm.n_iter_), "gradient_norm": float(glm.gradient_norm_)}


def result_of(folder: Path) -> dict[str, Any] | None:
    """What a finished run wrote."""
    return json.loads((folder / RESULT).read_text()) if (folder / DONE).exists() else None


def predictions_of(folder: Path) -> dict[str, Tensor]:
    """Raw outputs (rows, M, P), counts and inputs of the test rows."""
    return read(folder / PREDICTIONS)[0]
