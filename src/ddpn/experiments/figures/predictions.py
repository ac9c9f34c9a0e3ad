"""Finished runs as laws: at the rows they were tested on, or anywhere else from the weights they kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.backbones import MLP
from ddpn.errors import InputError
from ddpn.experiments.experiment import Experiment, Run
from ddpn.experiments.runner import WEIGHTS, folder_of, predictions_of, result_of, state_of
from ddpn.model import CountModel
from ddpn.tensor_files import read


@dataclass(frozen=True)
class Finished:
    """A run, and what it wrote."""

    run: Run
    folder: Path
    result: Mapping[str, Any]

    @property
    def label(self) -> str:
        """Its method's name in tables."""
        return self.run.method.label

    def predictions(self) -> dict[str, Tensor]:
        """Raw outputs "raw" (rows, M, P) and counts "y" of the test rows, and what else was kept of them."""
        return predictions_of(self.folder)

    def law(self, raw: Tensor) -> Any:
        """The members' laws by their raw outputs. Shape: (..., M, P) -> (..., M)."""
        return self.run.head(raw.double())

    def tested(self) -> tuple[Any, Tensor]:
        """The members' laws (rows, M) of the test rows, and their counts."""
        found = self.predictions()
        return self.law(found["raw"]), found["y"]

    def at(self, x: np.ndarray) -> Distribution:
        """The members' laws at other inputs. Shape: (n,) -> (n, M)."""
        weights, _ = read(self.folder / WEIGHTS)
        hidden, members = self.result["settings"]["hidden"], len(weights["projection.bias"])
        model = CountModel(MLP(n_in=1, hidden=hidden, members=members), self.run.head, members)
        model.load_state_dict(weights)
        with torch.no_grad():
            return model.double()(torch.from_numpy(x.astype(np.float64))[:, None])


def finished(experiment: Experiment, out: Path, figure: str) -> list[Finished]:
    """The experiment's finished trainings, in its order; at least one."""
    found = []
    for run in experiment.runs():
        folder = folder_of(run, out)
        if not run.method.exact and state_of(folder, run) == "done":
            found.append(Finished(run, folder, result_of(folder) or {}))
    if not found:
        raise InputError(
            f"{out / experiment.name} must hold finished runs for the figure {figure}, got none. "
            "Run the experiment first."
        )
    return found


def of_methods(experiment: Experiment, out: Path, figure: str, methods: tuple[str, ...]) -> list[Finished]:
    """The finished runs of these methods, in their order; none may be missing."""
    by_name = {one.run.method.name: one for one in finished(experiment, out, figure)}
    for name in methods:
        if name not in by_name:
            raise InputError(
                f"{out / experiment.name} must hold a finished run of {name} for the figure {figure}, got none. "
                "Run that method too."
            )
    return [by_name[name] for name in methods]


def first_of(experiment: Experiment, out: Path, figure: str, methods: tuple[str, ...]) -> Finished:
    """The finished run of the first of these methods that has one."""
    by_name = {one.run.method.name: one for one in finished(experiment, out, figure)}
    for name in methods:
        if name in by_name:
            return by_name[name]
    raise InputError(
        f"{out / experiment.name} must hold a finished run of {' or '.join(methods)} for the figure {figure}, "
        "got none. Run one of them."
    )


def check_rows(run: Finished, counts: Tensor, known: np.ndarray) -> None:
    """Refuse rows that are others than those the run was tested on: `known` are the data's test counts, in order."""
    # A dry run is tested on the first of them.
    if len(counts) > len(known) or not np.array_equal(counts.numpy(), known[: len(counts)]):
        raise InputError(
            f"the data must be what {run.folder} was tested on, got test rows with other counts. Run it again."
        )
