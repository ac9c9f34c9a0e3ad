"""Do one run (train, predict, score, write files), and read the folder of a finished run.

Shapes use M for the number of networks of a run, and P for the number of raw outputs of a network, from which its
predicted distribution is computed.
"""

import json
import math
import platform
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.networks.backbones import MLP
from ddpn.networks.model import CountModel
from ddpn.networks.training import Runtime, TrainingConfig, fit
from ddpn.networks.training.batches import SCORED_ROWS_PER_TRAINED_ROW
from ddpn.networks.training.weights import find_trained_tensors
from ddpn.paper.datasets.dataset import PARTS
from ddpn.paper.experiments.experiment import Experiment, Run
from ddpn.paper.experiments.rows import ExperimentRows, make_network
from ddpn.paper.experiments.scoring import score
from ddpn.paper.experiments.snapshots import SnapshotWriter
from ddpn.runtime.errors import InputError
from ddpn.storage.contents import JsonObject
from ddpn.storage.files import write_text
from ddpn.storage.tensor_files import is_complete, read, write

#: The files of a run. `CONFIG` is written first and `DONE` last. Files named members-* hold trained networks, and exist
#: only during the training.
CONFIG, RESULT, DONE = "config.json", "run.json", "DONE"
PREDICTIONS, WEIGHTS = "predictions.safetensors", "weights.safetensors"
#: The file with the weights of snapshots, named by snapshot and tensor, such as "200/projection.bias".
SNAPSHOTS = "snapshots.safetensors"


def run_folder(run: Run, out: Path) -> Path:
    """Return the folder of a run, inside the folder `out` of all results."""
    return out / run.experiment.name / run.name


def check_run(folder: Path, run: Run, identity: list[int] | None = None) -> str:
    """Return the state of a run: "missing", "done", "damaged" or "changed".

    A run is "missing" if it never finished. It has "changed" if it was done with other settings or other rows.
    `identity` has the checksums of the rows (`ExperimentRows.identity`); if it is None, rows are not compared. `folder`
    is the folder of the run.
    """
    try:
        result = read_result(folder)
    except InputError:
        return "damaged"
    if result is None:
        return "missing"
    expected = [PREDICTIONS, WEIGHTS, *([SNAPSHOTS] if result["settings"].get("snapshots") else [])]
    if not all(is_complete(folder / name) for name in expected):
        return "damaged"
    if result["settings"] != run.as_dict() or identity not in (None, result.get("identity")):
        return "changed"
    return "done"


def read_result(folder: Path) -> JsonObject | None:
    """Read the scores and settings of a run from its folder; return None if the run is not finished.

    A damaged file raises an `InputError`. `execute` describes the content.
    """
    if not (folder / DONE).exists():
        return None
    try:
        result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        _ = [result[key] for key in ("settings", "rows", "seconds", "label")]
        _ = result["scores"]["paper"], result["scores"]["ours"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{folder / RESULT} is damaged ({error!r}). Delete {folder} and run it again.") from None
    return result


def read_predictions(folder: Path) -> dict[str, Tensor]:
    """Read the predictions of a finished run from its folder, as tensors by name.

    - "raw": the raw outputs for the test rows, shape (rows, M, P)
    - "y": the counts of the test rows, shape (rows,)
    - "x": the inputs of the test rows, only if they are rows of a table
    - "ood": the raw outputs for out-of-distribution rows, only if there are any
    """
    return read(folder / PREDICTIONS)[0]


@dataclass(frozen=True, eq=False)
class FinishedRun(Run):
    """A finished run, with the folder of its files and with its `result`: the scores and settings of `read_result`."""

    folder: Path
    result: JsonObject

    @property
    def label(self) -> str:
        """The method's name in tables, such as "DDPN"."""
        return self.method.label

    def distribution(self, raw: Tensor) -> Any:
        """Convert raw outputs, shape (..., M, P), to the distributions that the M networks predict, shape (..., M)."""
        return self.head(raw.double())

    def with_snapshot(self, name: str) -> "FinishedRun":
        """Return a copy of the run with the scores of a snapshot instead of those at the end of the training.

        `name` is the validation score by which the epoch of the snapshot was chosen, such as "crps". Snapshots of
        numbered epochs have no scores.
        """
        return replace(self, result={**self.result, "scores": self.result["snapshots"][name]})

    def predict(self, x: np.ndarray, snapshot: int | str | None = None) -> Any:
        """Predict the distributions of all M networks for the inputs `x`, shape (n,). The batch shape is (n, M).

        Only for simulations, which have one input. The weights are those at the end of the training, or those of
        `snapshot` if it is given: the number of an epoch, or a validation score such as "crps".
        """
        if snapshot is None:
            weights, _ = read(self.folder / WEIGHTS)
        else:
            tensors, start = read(self.folder / SNAPSHOTS)[0], f"{snapshot}/"
            weights = {k.removeprefix(start): tensor for k, tensor in tensors.items() if k.startswith(start)}
        hidden, n_networks = self.result["settings"]["hidden"], len(weights["projection.bias"])
        model = CountModel(MLP(n_in=1, hidden=hidden, n_networks=n_networks), self.head, n_networks)
        model.load_state_dict(weights)
        with torch.no_grad():
            return model.double()(torch.from_numpy(x.astype(np.float64))[:, None])


def find_finished_runs(experiment: Experiment, out: Path, glms: bool = True) -> list[FinishedRun]:
    """Return the finished runs of an experiment, in the order of its methods and grid.

    `out` is the folder of all results. With `glms=False`, GLMs that were fitted by maximum likelihood are left out.
    Runs whose files are damaged or whose settings have changed do not count as finished. If no run is finished, an
    `InputError` is raised.
    """
    runs = [run for run in experiment.runs() if glms or not run.method.exact]
    done = [(run, folder) for run in runs if check_run(folder := run_folder(run, out), run) == "done"]
    if not done:
        raise InputError(f"No finished runs in {out / experiment.name}. Run the experiment first.")
    return [
        FinishedRun(run.experiment, run.method, run.point, folder, read_result(folder) or {}) for run, folder in done
    ]


def find_runs(experiment: Experiment, out: Path, methods: Sequence[str], needed: int = 1) -> list[FinishedRun]:
    """Return the finished runs of `methods`, names of methods, in this order.

    `out` is the folder of all results. Methods without a finished run are left out. An `InputError` is raised if fewer
    than `needed` methods have one. Of a method with several finished runs, only the last is returned.
    """
    by_name = {one.method.name: one for one in find_finished_runs(experiment, out, glms=False)}
    missing = [name for name in methods if name not in by_name]
    if len(methods) - len(missing) < needed:
        raise InputError(f"No finished run of {' or '.join(missing)} in {out / experiment.name}.")
    return [by_name[name] for name in methods if name in by_name]


# Doing a run ----------------------------------------------------------------------------------------------------------


class Trained(NamedTuple):
    """The networks that a run has trained (or the GLM that it has fitted), with their outputs for the test rows.

    Raw outputs have the shape (rows, M, P) for M networks with P raw outputs each.

    - `outputs` has the raw outputs for the test rows (key "raw") and for out-of-distribution rows (key "ood", if there
      are any).
    - `weights` has the trained tensors by name. If the networks were trained in groups, the names begin with the number
      of the group, such as "0/projection.bias".
    - `history` describes the progress of the training, ready for JSON. If the networks were trained in several groups,
      it has a list with one history per group (key "groups").
    - `snapshots` has the tensors of each snapshot, by the name of the snapshot: the number of an epoch, or the name of
      a validation score.
    - `chosen` has the raw outputs for the test rows at the epoch with the lowest validation score, by the name of the
      score, such as "crps". Only snapshots that are named by a score are in it.
    """

    outputs: dict[str, Tensor]
    weights: dict[str, Tensor]
    history: JsonObject
    snapshots: Mapping[int | str, dict[str, Tensor]] = MappingProxyType({})
    chosen: Mapping[str, Tensor] = MappingProxyType({})


def execute(run: Run, parts: ExperimentRows, folder: Path, device: str = "auto") -> JsonObject:
    """Execute a run: train, predict, score, and write the files to `folder`. Return the scores and settings.

    Files of an earlier run in this folder are replaced. If several processes share the training, only one of them
    writes files. On Ctrl-C (KeyboardInterrupt), trained networks and checkpoints stay in `folder`. The next call
    resumes from them if settings and rows are the same; otherwise it deletes them.

    Parameters
    ----------
    run : Run
        The method and the settings.
    parts : ExperimentRows
        The training, validation and test rows.
    folder : Path
        The folder of the run, which is created if it does not exist.
    device : str
        "auto" (a GPU if there is one), or a torch device such as "cpu".

    Returns
    -------
    dict
        What is written to the file run.json. The main keys are "settings", "identity" (checksums of the rows), "rows"
        (the number of training, validation and test rows), "scores" (by protocol, see `scoring.score`), "snapshots"
        (the scores of snapshots that were chosen by a validation score), "seconds", "machine" and "history".
    """
    runtime = Runtime(device)
    config = {"settings": run.as_dict(), "identity": parts.identity}
    if runtime.is_main:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / DONE).unlink(missing_ok=True)
        content, path = json.dumps(config, indent=1), folder / CONFIG
        # `fit` would refuse checkpoints of other settings or rows, so they are deleted.
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            _delete_checkpoints(folder)
            write_text(path, content)
    runtime.wait()
    started = time.perf_counter()
    trained = _fit_glm(run, parts) if run.method.exact else _train(run, parts, folder, device)

    def score_rows(raw: Tensor) -> JsonObject:
        return score(run.head(raw.double()), parts.test.y.double(), parts.truth)

    used = "cpu" if run.method.exact else str(runtime.device)
    result = config | {
        "experiment": run.experiment.name,
        "method": run.method.name,
        "label": run.method.label,
        "point": dict(run.point),
        "note": parts.note,
        "rows": {name: len(getattr(parts, name) or ()) for name in PARTS},
        "scores": score_rows(trained.outputs["raw"]),
        "snapshots": {name: score_rows(raw) for name, raw in trained.chosen.items()},
        "seconds": time.perf_counter() - started,
        "machine": {"system": platform.platform(), "torch": torch.__version__, "device": used},
        "history": trained.history,
    }
    # Wait until no process reads the files of networks, which are deleted below.
    runtime.wait()
    if runtime.is_main:
        predictions = {**trained.outputs, "y": parts.test.y}
        if parts.test.X.dim() == 2 and not parts.cached:
            predictions["x"] = parts.test.X
        write(folder / PREDICTIONS, predictions, {})
        write(folder / WEIGHTS, trained.weights, {"head": run.head.name})
        if trained.snapshots:
            named = {f"{at}/{k}": t for at, weights in trained.snapshots.items() for k, t in weights.items()}
            write(folder / SNAPSHOTS, named, {"head": run.head.name})
        write_text(folder / RESULT, json.dumps(result, indent=1))
        write_text(folder / DONE, "")
        _delete_checkpoints(folder)
    return result


def _delete_checkpoints(folder: Path) -> None:
    """Delete the trained networks and checkpoints in the folder of a run that is finished or must start anew."""
    for path in folder.glob("members-*"):
        path.unlink()


def _fit_glm(run: Run, parts: ExperimentRows) -> Trained:
    """Fit the GLM of a run to its training rows by maximum likelihood, and predict its test rows.

    There is one GLM (M = 1) instead of an ensemble, because the fit has no random seed. Warnings of the fit, such as a
    failure to converge, are recorded in `Trained.history`.
    """
    from ddpn.estimators import CountGLM  # imports scikit-learn, which no worker needs to train networks

    x, y = parts.train.X.double().numpy(), parts.train.y.double().numpy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dispersion = "constant" if run.method.dispersion == "constant" else "linear"
        glm = CountGLM(run.method.head, dispersion=dispersion, location="mu", covariance="model").fit(x, y)
    coefficients = {"coef": torch.from_numpy(glm.coef_), "intercept": torch.from_numpy(glm.intercept_)}
    raw = parts.test.X.double() @ coefficients["coef"].T + coefficients["intercept"]
    history: JsonObject = {"iterations": int(glm.n_iter_), "gradient_norm": float(glm.gradient_norm_)}
    history["warnings"] = [str(warning.message) for warning in caught]
    return Trained({"raw": raw.unsqueeze(1).float()}, coefficients, history)


def _train(run: Run, parts: ExperimentRows, folder: Path, device: str) -> Trained:
    """Train all networks of a run, in groups of `at_once` networks, and predict with them.

    `parts` has the rows of the experiment. `device` is "auto" (a GPU if there is one), or a torch device such as "cpu".

    Trained networks are saved in `folder` until the run is done, so that an interrupted run can resume.
    """
    settings = run.training
    shared = ("batch_size", "lr", "weight_decay", "warmup", "precision", "accumulate", "score")
    config = TrainingConfig(
        epochs=settings.compute_epochs(len(parts.train)),
        clip=None,
        ema=0.0,
        seeds=tuple(settings.seed + number for number in range(settings.n_networks)),
        **{name: getattr(settings, name) for name in shared},
    )
    runtime, at_once = Runtime(device), settings.at_once or settings.n_networks
    inputs = {"raw": parts.test.X} | ({} if parts.ood is None else {"ood": parts.ood})
    outputs: dict[str, list[Tensor]] = {name: [] for name in inputs}
    weights: dict[str, Tensor] = {}
    snapshots: dict[int | str, dict[str, Tensor]] = {at: {} for at in settings.snapshots}
    chosen: dict[str, list[Tensor]] = {at: [] for at in settings.snapshots if isinstance(at, str)}
    histories = []
    # Predictions of this many rows need no more memory than a training step.
    batch = SCORED_ROWS_PER_TRAINED_ROW * -(-settings.batch_size // settings.accumulate)
    for number, first in enumerate(range(0, settings.n_networks, at_once)):
        group_config = replace(config, seeds=config.seeds[first : first + at_once])
        model, history, states = _train_group(run, parts, group_config, runtime, folder / f"members-{number}")
        histories.append(history)
        prefix = f"{number}/" if at_once < settings.n_networks else ""
        for name, x in inputs.items():
            outputs[name].append(_predict(model, x, runtime, config.precision, batch))
        weights |= {
            f"{prefix}{name}": tensor.float().cpu().clone() for name, tensor in find_trained_tensors(model).items()
        }
        for at, tensors in states.items():
            snapshots[at] |= {f"{prefix}{name}": tensor for name, tensor in tensors.items()}
            if isinstance(at, str):
                model.load_state_dict(tensors, strict=False)
                chosen[at].append(_predict(model, parts.test.X, runtime, config.precision, batch))
    together = histories[0] if len(histories) == 1 else {"groups": histories}
    joined = {name: torch.cat(values, dim=1) for name, values in outputs.items()}
    return Trained(joined, weights, together, snapshots, {at: torch.cat(raws, dim=1) for at, raws in chosen.items()})


def _train_group(
    run: Run, parts: ExperimentRows, config: TrainingConfig, runtime: Runtime, path: Path
) -> tuple[CountModel, JsonObject, dict[int | str, dict[str, Tensor]]]:
    """Train a group of networks together. Return the model, its training history, and the weights of its snapshots.

    `parts` has the rows, and `config` the training settings with one seed for each network of the group.

    The trained group is saved in the file `path` with the suffix .safetensors. If this file exists, it is read instead.
    An interrupted training resumes from a checkpoint next to this file. If Ctrl-C ends the training, a
    `KeyboardInterrupt` is raised, and the checkpoint stays.
    """
    network = make_network(
        run.experiment, parts.train.X.shape[1], config.n_networks, run.training.hidden, parts.classes
    )
    model = CountModel(network.tail if parts.cached else network, run.head, config.n_networks, run.projection_inputs)
    done, state = path.with_suffix(".safetensors"), path.with_suffix(".state")
    names = run.training.snapshots
    if not (done.exists() or state.exists()) and runtime.is_main:
        for leftover in path.parent.glob(f"{path.name}-*"):
            leftover.unlink()
    snapshots = SnapshotWriter(path, names, model.to(runtime.device), config, runtime, parts.validation)
    if not done.exists():
        model.reset(config.seeds)
        if run.training.initial_gamma is not None:
            with torch.no_grad():
                model.projection.bias[..., 1] = math.log(run.training.initial_gamma)
        options: dict[str, Any] = {"augment": parts.augment, "runtime": runtime, "checkpoint": state}
        options["after_epoch"] = snapshots if names else None
        history = fit(model, parts.train, parts.validation, config, **options)
        if history.interrupted:
            raise KeyboardInterrupt  # the finished networks and the checkpoint stay
        if runtime.is_main:
            write(done, find_trained_tensors(model), {"history": history.as_dict()})
            state.unlink(missing_ok=True)
        runtime.wait()
    tensors, about = read(done)
    if set(tensors) != set(find_trained_tensors(model)):
        raise InputError(f"{done} does not fit the network: names of tensors differ. Delete it to train again.")
    model.load_state_dict(tensors, strict=False)  # frozen tensors are not in the file
    return model.cpu().eval(), about["history"], snapshots.read()


@torch.no_grad()
def _predict(model: CountModel, x: Tensor, runtime: Runtime, precision: str, batch: int) -> Tensor:
    """Predict the P raw outputs of all M networks for the inputs `x`. Shape: (rows, M, P), in float32 on the CPU.

    The outputs for table rows (`x` is a matrix of floating-point numbers) are computed in float64 on the CPU. Those for
    other inputs, such as images and texts, are computed in batches of `batch` rows, on the device and with the
    `precision` of the training.
    """
    if x.dim() == 2 and x.is_floating_point():
        exact = model.cpu().double()
        raw = torch.cat([exact.raw(part.double()) for part in x.split(16_384)]).float()
        model.float()
        return raw
    model.to(runtime.device)
    with runtime.autocast(precision):
        return torch.cat([model.raw(part.to(runtime.device)).float().cpu() for part in x.split(batch)])
