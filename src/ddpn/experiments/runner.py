"""Running an experiment: one folder a run, written whole, skipped when done, taken up where it stopped."""

import json
import platform
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.backbones import MLP
from ddpn.data import load, simulate
from ddpn.distributions import CountDistribution
from ddpn.errors import InputError
from ddpn.estimator import CountGLM
from ddpn.experiments.scoring import score
from ddpn.experiments.settings import Experiment, Run
from ddpn.model import CountModel
from ddpn.training import Rows, Runtime, TrainingConfig, fit
from ddpn.training.checkpoint import fingerprint, read, write, write_bytes

#: A simulation is scored on so many rows that no training saw: a hundred would move the true law's own score by 10%.
TEST_ROWS = 10_000
#: Another one than the training rows were drawn with; the same for every seed of a training.
TEST_SEED = 7
#: A quick look: a tenth of the steps, two members.
_QUICK_SHARE, _QUICK_MEMBERS = 0.1, 2
#: Settings that say how long a training is.
_LENGTHS = ("epochs", "steps")
#: What a run's folder holds; `CONFIG` is written first, `STATE` is there while it trains, `DONE` is written last.
CONFIG, STATE, PREDICTIONS, WEIGHTS, RESULT, DONE = (
    "config.json",
    "state",
    "predictions.safetensors",
    "weights.safetensors",
    "run.json",
    "DONE",
)


class Parts(NamedTuple):
    """The rows of an experiment, and for simulations the law its test counts were drawn from.

    Without validation rows a training keeps its last epoch: its own rows would pick one that leaves hard points out.
    """

    train: Rows
    validation: Rows | None
    test: Rows
    truth: CountDistribution | None
    note: str

    @property
    def identity(self) -> list[int]:
        """Numbers that other rows would not have."""
        given = [rows for rows in (self.train, self.validation, self.test) if rows is not None]
        return [fingerprint(tensor) for rows in given for tensor in (rows.x, rows.y)]


def quick(experiment: Experiment) -> Experiment:
    """The same experiment in a tenth of the time, under another name: it must not replace the results of a full run."""
    training = experiment.training
    changes: dict[str, Any] = {"members": min(training.members, _QUICK_MEMBERS)}
    changes |= {name: _shorter(getattr(training, name)) for name in _LENGTHS if getattr(training, name) is not None}
    grid = {k: tuple(map(_shorter, values)) if k in _LENGTHS else values for k, values in experiment.grid.items()}
    named = replace(experiment, name=f"{experiment.name}-quick", title=f"{experiment.title} (a quick look)", grid=grid)
    return named.with_training(**changes)


def _shorter(length: int) -> int:
    return max(1, round(_QUICK_SHARE * length))


def rows_of(experiment: Experiment) -> Parts:
    """Load or draw the rows."""
    if experiment.data is not None:
        data = load(experiment.data["name"])
        parts = {name: data.part(name, experiment.data["features"]) for name in ("train", "validation", "test")}
        rows = {name: _rows(table.matrix, y) for name, (table, y) in parts.items()}
        return Parts(rows["train"], rows["validation"], rows["test"], None, data.note)
    name = (experiment.simulation or {})["name"]
    drawn, fresh = simulate(name), simulate(name, n=TEST_ROWS, seed=TEST_SEED)
    train, validation = drawn.split.train, drawn.split.validation
    return Parts(
        _rows(drawn.X[train], drawn.y[train]),
        _rows(drawn.X[validation], drawn.y[validation]) if len(validation) else None,
        _rows(fresh.X, fresh.y),
        fresh.truth,
        f"{len(train)} training rows, scored on {len(fresh.y)} fresh ones",
    )


def _rows(x: np.ndarray, y: np.ndarray) -> Rows:
    return Rows(torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)), torch.from_numpy(y.astype(np.float32)))


def folder_of(run: Run, out: Path) -> Path:
    """Where a run writes, below the folder of all results."""
    return out / run.experiment.name / run.name


def state_of(folder: Path, run: Run, identity: list[int] | None = None) -> str:
    """One of "missing", "done", "damaged" or "changed": done with other settings or, where told, with other rows."""
    if not (folder / DONE).exists():
        return "missing"
    try:
        result = result_of(folder)
    except InputError:
        return "damaged"
    if result is None or not all((folder / name).exists() for name in (PREDICTIONS, WEIGHTS)):
        return "damaged"
    if result["settings"] != run.as_dict() or identity not in (None, result.get("identity")):
        return "changed"
    return "done"


def execute(run: Run, parts: Parts, folder: Path, device: str = "auto") -> dict[str, Any]:
    """Train, predict, score; DONE is written last."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DONE).unlink(missing_ok=True)
    config = {"settings": run.as_dict(), "identity": parts.identity}
    _begin(folder, config)
    started = time.perf_counter()
    raw, weights, history = (_exact if run.method.exact else _trained)(run, parts, folder, device)
    law = run.head(raw.double())
    used = "cpu" if run.method.exact else str(Runtime(device).device)
    result = config | {
        "experiment": run.experiment.name,
        "method": run.method.name,
        "label": run.method.label,
        "point": dict(run.point),
        "note": parts.note,
        "rows": {name: len(getattr(parts, name) or ()) for name in ("train", "validation", "test")},
        "scores": score(law, parts.test.y.double(), parts.truth),
        "seconds": time.perf_counter() - started,
        "machine": {"system": platform.platform(), "torch": torch.__version__, "device": used},
        "history": history,
    }
    write(folder / PREDICTIONS, {"raw": raw, "y": parts.test.y, "x": parts.test.x}, {"method": run.method.name})
    write(folder / WEIGHTS, weights, {"head": run.head.name})
    write_bytes(folder / RESULT, json.dumps(result, indent=1).encode())
    (folder / STATE).unlink(missing_ok=True)
    write_bytes(folder / DONE, b"")
    return result


def _begin(folder: Path, config: dict[str, Any]) -> None:
    """Keep a half-done training only where it is this one: `fit` would refuse another's state."""
    content = json.dumps(config, indent=1).encode()
    path = folder / CONFIG
    if not path.exists() or path.read_bytes() != content:
        (folder / STATE).unlink(missing_ok=True)
        write_bytes(path, content)


def _trained(run: Run, parts: Parts, folder: Path, device: str) -> tuple[Tensor, dict[str, Tensor], dict[str, Any]]:
    settings, head = run.training, run.head
    seeds = tuple(settings.seed + member for member in range(settings.members))
    model = CountModel(
        MLP(n_in=parts.train.x.shape[1], hidden=settings.hidden, members=settings.members), head, settings.members
    )
    model.reset(seeds, _start(head))
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


def _start(head: Any) -> Tensor | None:
    """The paper starts anywhere, unless gamma's initial value is what is studied."""
    if getattr(head, "initial_gamma", None) is None:
        return None
    return torch.stack([torch.zeros((), dtype=torch.float64), torch.tensor(head.initial_gamma).double().log()])


def _exact(run: Run, parts: Parts, folder: Path, device: str) -> tuple[Tensor, dict[str, Tensor], dict[str, Any]]:
    """A GLM has one maximum: no members, no seeds."""
    x, y = parts.train.x.double().numpy(), parts.train.y.double().numpy()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        glm = CountGLM(likelihood=run.method.head).fit(x, y)
    known = {"coef": torch.from_numpy(glm.coef_), "intercept": torch.from_numpy(glm.intercept_)}
    raw = parts.test.x.double() @ known["coef"].T + known["intercept"]
    history = {"iterations": int(glm.n_iter_), "gradient_norm": float(glm.gradient_norm_)}
    return raw.unsqueeze(1).float(), known, history | {"warnings": [str(each.message) for each in told]}


def result_of(folder: Path) -> dict[str, Any] | None:
    """What a finished run wrote; None where it is not finished."""
    if not (folder / DONE).exists():
        return None
    path = folder / RESULT
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        missing = {"settings", "scores", "rows", "seconds", "label"} - set(result)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} must be what a run wrote, got {error}. Delete {folder} and run it again.") from None
    if missing:
        lacks = ", ".join(sorted(missing))
        raise InputError(f"{path} must be what a run wrote, got one without {lacks}. Delete {folder} and run it again.")
    return result


def predictions_of(folder: Path) -> dict[str, Tensor]:
    """Raw outputs (rows, M, P), counts and inputs of the test rows."""
    return read(folder / PREDICTIONS)[0]
