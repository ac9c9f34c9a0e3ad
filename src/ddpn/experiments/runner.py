"""Doing one run: train, predict, score, write its folder."""

import json
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ddpn.estimators import CountGLM
from ddpn.experiments.ensemble import Trained, forget_members, train
from ddpn.experiments.experiment import Run
from ddpn.experiments.inputs import PARTS, Parts
from ddpn.experiments.results import CONFIG, DONE, PREDICTIONS, RESULT, WEIGHTS
from ddpn.experiments.scoring import score
from ddpn.files import write_text
from ddpn.sample import Sample
from ddpn.tensor_files import write
from ddpn.training import Runtime


def execute(
    run: Run, parts: Parts, folder: Path, device: str = "auto", tell: Callable[[str], object] = lambda text: None
) -> dict[str, Any]:
    """Do a run and return its result. If several processes share the training, one of them writes the files.

    `tell` gets the progress as a text after every epoch. KeyboardInterrupt passes through; checkpoints of members stay
    in `folder`, and the next call resumes from them.
    """
    runtime = Runtime(device)
    config = {"settings": run.as_dict(), "identity": parts.identity}
    if runtime.is_main:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / DONE).unlink(missing_ok=True)
        content, path = json.dumps(config, indent=1), folder / CONFIG
        # `fit` refuses checkpoints of other settings or rows.
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            forget_members(folder)
            write_text(path, content)
    runtime.wait()
    started = time.perf_counter()
    trained = _exact(run, parts) if run.method.exact else train(run, parts, folder, device, tell)
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
        _write(folder, run, parts, trained, result)
    return result


def _write(folder: Path, run: Run, parts: Parts, trained: Trained, result: dict[str, Any]) -> None:
    tensors = {"raw": trained.raw, "y": parts.test.y}
    tensors |= {"x": parts.test.X} if parts.test.X.dim() == 2 and not parts.cached else {}
    tensors |= {} if trained.ood is None else {"ood": trained.ood}
    tensors |= {} if parts.lengths is None else dict(zip(("length", "ood_length"), parts.lengths, strict=True))
    write(folder / PREDICTIONS, tensors, {})
    write(folder / WEIGHTS, trained.weights, {"head": run.head.name})
    write_text(folder / RESULT, json.dumps(result, indent=1))
    write_text(folder / DONE, "")
    forget_members(folder)


def _exact(run: Run, parts: Parts) -> Trained:
    """Fit a GLM by maximum likelihood, without members and seeds."""
    assert isinstance(parts.train, Sample)
    x, y = parts.train.X.double().numpy(), parts.train.y.double().numpy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        glm = CountGLM(likelihood=run.method.head).fit(x, y)
    known = {"coef": torch.from_numpy(glm.coef_), "intercept": torch.from_numpy(glm.intercept_)}
    raw = parts.test.X.double() @ known["coef"].T + known["intercept"]
    history = {"iterations": int(glm.n_iter_), "gradient_norm": float(glm.gradient_norm_)}
    warned = {"warnings": [str(each.message) for each in caught]}
    return Trained(raw.unsqueeze(1).float(), None, known, history | warned)
