"""The folder of a run: its files, its state, and what a finished run predicts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddpn.networks.backbones import MLP
from ddpn.networks.model import CountModel
from ddpn.paper.experiments.experiment import Experiment, Run
from ddpn.runtime.errors import InputError
from ddpn.storage.tensor_files import is_complete, read

#: The files of a run. `CONFIG` is written first and `DONE` last; files of members exist while it trains.
CONFIG, RESULT, DONE = "config.json", "run.json", "DONE"
PREDICTIONS, WEIGHTS = "predictions.safetensors", "weights.safetensors"
#: The folder of features of frozen networks, beside those of experiments.
FEATURES = "features"


def folder_of(run: Run, out: Path) -> Path:
    """The folder of a run, in the folder of all results."""
    return out / run.experiment.name / run.name


def state_of(folder: Path, run: Run, identity: list[int] | None = None) -> str:
    """One of "missing", "done", "damaged", and "changed": done with other settings or (with `identity`) other rows."""
    try:
        result = result_of(folder)
    except InputError:
        return "damaged"
    if result is None:
        return "missing"
    if not all(is_complete(folder / name) for name in (PREDICTIONS, WEIGHTS)):
        return "damaged"
    if result["settings"] != run.as_dict() or identity not in (None, result.get("identity")):
        return "changed"
    return "done"


def result_of(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run; None if it is not finished."""
    if not (folder / DONE).exists():
        return None
    try:
        result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        _ = [result[key] for key in ("settings", "rows", "seconds", "label")]
        _ = result["scores"]["paper"], result["scores"]["ours"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{folder / RESULT} is damaged ({error!r}). Delete {folder} and run it again.") from None
    return result


def predictions_of(folder: Path) -> dict[str, Tensor]:
    """Raw outputs "raw" (rows, M, P) and counts "y" of the test rows; inputs "x" of a table; raw outputs "ood"."""
    return read(folder / PREDICTIONS)[0]


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A run and what it wrote."""

    run: Run
    folder: Path
    result: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The name of its method in tables."""
        return self.run.method.label

    def distribution(self, raw: Tensor) -> Any:
        """The members' distributions from their raw outputs. Shape: (..., M, P) -> (..., M)."""
        return self.run.head(raw.double())

    def at(self, x: np.ndarray) -> Any:
        """The members' distributions at other inputs. Shape: (n,) -> (n, M)."""
        weights, _ = read(self.folder / WEIGHTS)
        hidden, members = self.result["settings"]["hidden"], len(weights["projection.bias"])
        model = CountModel(MLP(n_in=1, hidden=hidden, members=members), self.run.head, members)
        model.load_state_dict(weights)
        with torch.no_grad():
            return model.double()(torch.from_numpy(x.astype(np.float64))[:, None])


def finished_runs(experiment: Experiment, out: Path, glms: bool = True) -> list[FinishedRun]:
    """The finished runs of an experiment in its order, at least one; without `glms` only those of networks."""
    runs = [run for run in experiment.runs() if glms or not run.method.exact]
    done = [(run, folder) for run in runs if state_of(folder := folder_of(run, out), run) == "done"]
    if not done:
        raise InputError(f"No finished runs in {out / experiment.name}. Run the experiment first.")
    return [FinishedRun(run, folder, result_of(folder) or {}) for run, folder in done]


def runs_of(experiment: Experiment, out: Path, methods: Sequence[str], needed: int = 1) -> list[FinishedRun]:
    """The finished runs of these methods, in their order; at least the `needed` number of them."""
    by_name = {one.run.method.name: one for one in finished_runs(experiment, out, glms=False)}
    missing = [name for name in methods if name not in by_name]
    if len(methods) - len(missing) < needed:
        raise InputError(f"No finished run of {' or '.join(missing)} in {out / experiment.name}.")
    return [by_name[name] for name in methods if name in by_name]
