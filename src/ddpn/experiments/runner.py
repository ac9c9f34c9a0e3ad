"""One run: train, predict, score. Its folder is written completely, skipped when done and resumed when interrupted."""

import json
import math
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ddpn.errors import InputError
from ddpn.estimators import CountGLM
from ddpn.experiments.ensemble import Trained, forget_members, train
from ddpn.experiments.experiment import Run
from ddpn.experiments.inputs import PARTS, Parts
from ddpn.experiments.scoring import score
from ddpn.files import write_text
from ddpn.training import Rows, Runtime
from ddpn.training.checkpoint import is_complete, read, write

#: The files of a run. `CONFIG` is written first and `DONE` last; `PROGRESS` and files of members exist while it trains.
CONFIG, RESULT, DONE, PROGRESS = "config.json", "run.json", "DONE", "progress.txt"
PREDICTIONS, WEIGHTS = "predictions.safetensors", "weights.safetensors"
#: The folder of features of frozen networks, beside those of experiments.
FEATURES = "features"
#: The names that tensors of `PREDICTIONS` had in version 0.1.
_RENAMED = {"outside": "ood", "size": "length", "outside_size": "ood_length"}


def folder_of(run: Run, out: Path) -> Path:
    """The folder of a run, in the folder of all results."""
    return out / run.experiment.name / run.name


def state_of(folder: Path, run: Run, identity: list[int] | None = None) -> str:
    """One of "missing", "done", "damaged", and "changed": done with other settings or (with `identity`) other rows."""
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
    """Do a run and return its result. If several processes share the training, one of them writes the files.

    KeyboardInterrupt passes through; checkpoints of members stay in `folder`, and the next call resumes from them.
    """
    runtime = Runtime(device)
    config = {"settings": run.as_dict(), "identity": parts.identity}
    if runtime.is_main:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / DONE).unlink(missing_ok=True)
        _begin(folder, config)
    runtime.wait()
    started = time.perf_counter()
    trained = _exact(run, parts) if run.method.exact else train(run, parts, folder, device, _Progress(folder))
    used = "cpu" if run.method.exact else str(runtime.device)
    result = config | {
        "experiment": run.experiment.name,
        "method": run.method.name,
        "label": run.method.label,
        "point": dict(run.point),
        "note": parts.note,
        "rows": {name: len(getattr(parts, name) or ()) for name in PARTS},
        "scores": score(run.head(trained.raw.double()), parts.test.y.double(), parts.truth),
        "seconds": time.perf_counter() - started,
        "machine": {"system": platform.platform(), "torch": torch.__version__, "device": used},
        "history": trained.history,
    }
    # No process may still read the files of members when they are deleted.
    runtime.wait()
    if runtime.is_main:
        _write_predictions(folder, trained, parts)
        write(folder / WEIGHTS, trained.weights, {"head": run.head.name})
        write_text(folder / RESULT, json.dumps(result, indent=1))
        write_text(folder / DONE, "")
        forget_members(folder)
        (folder / PROGRESS).unlink(missing_ok=True)
    return result


class _Progress:
    """Writes the progress of a training to a file, at most once a second: epochs may be short and disks slow."""

    def __init__(self, folder: Path) -> None:
        self._path, self._last = folder / PROGRESS, -math.inf

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._last >= 1.0:
            write_text(self._path, text)
            self._last = time.monotonic()


def _write_predictions(folder: Path, trained: Trained, parts: Parts) -> None:
    """Raw outputs and counts, and the inputs if they are a table."""
    tensors = {"raw": trained.raw, "y": parts.test.y}
    tensors |= {"x": parts.test.x} if parts.test.x.dim() == 2 and not parts.cached else {}
    tensors |= {} if trained.ood is None else {"ood": trained.ood}
    tensors |= {} if parts.lengths is None else dict(zip(("length", "ood_length"), parts.lengths, strict=True))
    write(folder / PREDICTIONS, tensors, {})


def _begin(folder: Path, config: dict[str, Any]) -> None:
    """Keep checkpoints of the same settings and rows only: `fit` refuses others."""
    content, path = json.dumps(config, indent=1), folder / CONFIG
    if not path.exists() or path.read_text(encoding="utf-8") != content:
        forget_members(folder)
        write_text(path, content)


def _exact(run: Run, parts: Parts) -> Trained:
    """Fit a GLM by maximum likelihood, without members and seeds."""
    assert isinstance(parts.train, Rows)
    x, y = parts.train.x.double().numpy(), parts.train.y.double().numpy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        glm = CountGLM(likelihood=run.method.head).fit(x, y)
    known = {"coef": torch.from_numpy(glm.coef_), "intercept": torch.from_numpy(glm.intercept_)}
    raw = parts.test.x.double() @ known["coef"].T + known["intercept"]
    history = {"iterations": int(glm.n_iter_), "gradient_norm": float(glm.gradient_norm_)}
    warned = {"warnings": [str(each.message) for each in caught]}
    return Trained(raw.unsqueeze(1).float(), None, known, history | warned)


def result_of(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run; None if it is not finished."""
    if not (folder / DONE).exists():
        return None
    try:
        result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        lacking = {"settings", "scores", "rows", "seconds", "label"} - set(result)
        lacking = lacking or {"paper", "ours"} - set(result["scores"])
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{folder / RESULT} is damaged: {error}. Delete {folder} and run it again.") from None
    if lacking:
        missing = ", ".join(sorted(lacking))
        raise InputError(f"{folder / RESULT} is damaged: {missing} missing. Delete {folder} and run it again.")
    return result


def progress_of(folder: Path) -> str:
    """The progress of a training that is under way, else ""."""
    try:
        return (folder / PROGRESS).read_text(encoding="utf-8")
    except OSError:
        return ""


def predictions_of(folder: Path) -> dict[str, Tensor]:
    """Raw outputs "raw" (rows, M, P) and counts "y" of the test rows; inputs "x" of a table; raw outputs "ood"."""
    return {_RENAMED.get(name, name): tensor for name, tensor in read(folder / PREDICTIONS)[0].items()}
