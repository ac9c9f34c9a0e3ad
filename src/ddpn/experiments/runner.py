"""Running an experiment: one folder a run, written whole, skipped when done, taken up where it stopped."""

import json
import math
import platform
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ddpn.errors import InputError
from ddpn.estimators import CountGLM
from ddpn.experiments.ensemble import Trained, forget_members, train
from ddpn.experiments.experiment import Experiment, Run
from ddpn.experiments.inputs import PARTS, Parts
from ddpn.experiments.scoring import score
from ddpn.files import write_bytes
from ddpn.sample import Sample
from ddpn.tensor_files import is_complete, read, write
from ddpn.training import Runtime

#: A quick look: a tenth of the steps, two members.
_QUICK_SHARE, _QUICK_MEMBERS = 0.1, 2
#: Settings that say how long a training is.
_LENGTHS = ("epochs", "steps")
#: How far a training is; there while it goes on.
PROGRESS = "progress.txt"
#: What a run's folder holds; `CONFIG` is written first, `DONE` last, and members' own files are there while it trains.
CONFIG, PREDICTIONS, WEIGHTS, RESULT, DONE = (
    "config.json",
    "predictions.safetensors",
    "weights.safetensors",
    "run.json",
    "DONE",
)
#: The folder, among those of experiments, of what frozen trunks gave.
FEATURES = "features"


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


def dry(experiment: Experiment, steps: int) -> Experiment:
    """The same experiment for a few steps on a few rows and with random weights, to see that all of it works."""
    changes: dict[str, Any] = {"name": f"{experiment.name}-dry", "title": f"{experiment.title} (a dry run)", "grid": {}}
    return replace(experiment, **changes, dry_steps=steps).with_training(epochs=1, steps=None, members=1)


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
    if result is None or not all(is_complete(folder / name) for name in (PREDICTIONS, WEIGHTS)):
        return "damaged"
    if result["settings"] != run.as_dict() or identity not in (None, result.get("identity")):
        return "changed"
    return "done"


def execute(run: Run, parts: Parts, folder: Path, device: str = "auto") -> dict[str, Any]:
    """Train, predict, score; DONE is written last. Of several processes that share the training one writes."""
    runtime = Runtime(device)
    config = {"settings": run.as_dict(), "identity": parts.identity}
    if runtime.is_main:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / DONE).unlink(missing_ok=True)
        _begin(folder, config)
    runtime.wait()
    started = time.perf_counter()
    trained = _exact(run, parts) if run.method.exact else train(run, parts, folder, device, _Progress(folder))
    law = run.head(trained.raw.double())
    used = "cpu" if run.method.exact else str(runtime.device)
    result = config | {
        "experiment": run.experiment.name,
        "method": run.method.name,
        "label": run.method.label,
        "point": dict(run.point),
        "note": parts.note,
        "rows": {name: len(getattr(parts, name) or ()) for name in PARTS},
        "scores": score(law, parts.test.y.double(), parts.truth),
        "seconds": time.perf_counter() - started,
        "machine": {"system": platform.platform(), "torch": torch.__version__, "device": used},
        "history": trained.history,
    }
    # Files of members are deleted below, when no process reads them any more.
    runtime.wait()
    if runtime.is_main:
        _write_predictions(folder, trained, parts)
        write(folder / WEIGHTS, trained.weights, {"head": run.head.name})
        write_bytes(folder / RESULT, json.dumps(result, indent=1).encode())
        write_bytes(folder / DONE, b"")
        forget_members(folder)
        (folder / PROGRESS).unlink(missing_ok=True)
    return result


class _Progress:
    """Keeps in a file how far a training is; once a second at most, as epochs may be shorter than a disk is fast."""

    def __init__(self, folder: Path) -> None:
        self._path, self._last = folder / PROGRESS, -math.inf

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._last >= 1.0:
            write_bytes(self._path, text.encode())
            self._last = time.monotonic()


def _write_predictions(folder: Path, trained: Trained, parts: Parts) -> None:
    """Raw outputs and counts; inputs where they are a table, as those of simulations are."""
    tensors = {"raw": trained.raw, "y": parts.test.y}
    tensors |= {"x": parts.test.X} if parts.test.X.dim() == 2 and not parts.cached else {}
    tensors |= {} if trained.outside is None else {"outside": trained.outside}
    tensors |= {} if parts.sizes is None else dict(zip(("size", "outside_size"), parts.sizes, strict=True))
    write(folder / PREDICTIONS, tensors, {})


def _begin(folder: Path, config: dict[str, Any]) -> None:
    """Keep a half-done training only where it is this one: `fit` would refuse another's state."""
    content = json.dumps(config, indent=1).encode()
    path = folder / CONFIG
    if not path.exists() or path.read_bytes() != content:
        forget_members(folder)
        write_bytes(path, content)


def _exact(run: Run, parts: Parts) -> Trained:
    """A GLM has one maximum: no members, no seeds."""
    assert isinstance(parts.train, Sample)
    x, y = parts.train.X.double().numpy(), parts.train.y.double().numpy()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        glm = CountGLM(likelihood=run.method.head).fit(x, y)
    known = {"coef": torch.from_numpy(glm.coef_), "intercept": torch.from_numpy(glm.intercept_)}
    raw = parts.test.X.double() @ known["coef"].T + known["intercept"]
    history = {"iterations": int(glm.n_iter_), "gradient_norm": float(glm.gradient_norm_)}
    warned = {"warnings": [str(each.message) for each in told]}
    return Trained(raw.unsqueeze(1).float(), None, known, history | warned)


def result_of(folder: Path) -> dict[str, Any] | None:
    """What a finished run wrote; None where it is not finished."""
    if not (folder / DONE).exists():
        return None
    path = folder / RESULT
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        missing = {"settings", "scores", "rows", "seconds", "label"} - set(result)
        missing = missing or {"paper", "ours"} - set(result["scores"])
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} must be what a run wrote, got {error}. Delete {folder} and run it again.") from None
    if missing:
        lacks = ", ".join(sorted(missing))
        raise InputError(f"{path} must be what a run wrote, got one without {lacks}. Delete {folder} and run it again.")
    return result


def progress_of(folder: Path) -> str:
    """How far a training is, where one is under way."""
    try:
        return (folder / PROGRESS).read_text(encoding="utf-8")
    except OSError:
        return ""


def predictions_of(folder: Path) -> dict[str, Tensor]:
    """Raw outputs (rows, M, P) and counts of the test rows, inputs of a table, raw outputs of rows outside."""
    return read(folder / PREDICTIONS)[0]
