"""Finished runs: what they wrote, and their predictions as distributions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddpn.backbones import MLP
from ddpn.errors import InputError
from ddpn.experiments.experiment import Experiment, Run
from ddpn.experiments.runner import WEIGHTS, folder_of, predictions_of, result_of, state_of
from ddpn.model import CountModel
from ddpn.training.checkpoint import read


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

    def predictions(self) -> dict[str, Tensor]:
        """See `runner.predictions_of`."""
        return predictions_of(self.folder)

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
