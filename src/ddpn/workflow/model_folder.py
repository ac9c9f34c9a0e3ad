"""A model folder: what `CountRegressor.save` writes, task.json with all that was told, and the baselines."""

import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddpn.calibration.intervals import Levels
from ddpn.errors import InputError
from ddpn.estimators import CountRegressor
from ddpn.estimators.saving import move_folder
from ddpn.workflow.baselines import Baseline, load_baselines
from ddpn.workflow.intervals import load_levels, save_levels
from ddpn.workflow.roles import Roles

TASK, BASELINES, CHECKPOINT = "task.json", "baselines", "checkpoint.safetensors"
#: The manifest of a saved model: a folder with it may be overwritten.
_MANIFEST = "model.json"


@dataclass(frozen=True)
class ModelFolder:
    """A model, its baselines, how it came to be, and the levels of the baselines' intervals."""

    model: CountRegressor
    baselines: dict[str, Baseline]
    task: dict[str, Any]
    levels: dict[str, Levels] = field(default_factory=dict)

    @property
    def roles(self) -> Roles:
        return Roles.from_dict(self.task["roles"])


def check_place(path: Path, overwrite: bool) -> None:
    """Whether a model can be saved there; told before the work."""
    if path.exists() and not overwrite:
        raise InputError(f"output must be free, got {path}, which exists. Add --overwrite or name another.")
    if path.exists() and not (path / _MANIFEST).is_file():
        raise InputError(f"output must hold a model to be overwritten, got {path}, which is none. Name another.")
    above = next((parent for parent in path.absolute().parents if parent.exists()), path)
    if not above.is_dir():
        raise InputError(f"output must lie in a folder, got {above}, which is a file. Name another.")


def save(folder: ModelFolder, path: Path, overwrite: bool = False, checkpoint: Path | None = None) -> None:
    """Write all of it beside its place, then move it there; with a `checkpoint`, a later fit goes on from it."""
    check_place(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        new = draft / "model"
        folder.model.save(new)
        (new / BASELINES).mkdir()
        for baseline in folder.baselines.values():
            baseline.save(new / BASELINES)
        save_levels(folder.levels, new / BASELINES)
        (new / TASK).write_text(json.dumps(folder.task, indent=1), encoding="utf-8")
        if checkpoint is not None and checkpoint.exists():
            shutil.copyfile(checkpoint, new / CHECKPOINT)
        # Drafts are the owner's alone; a model is everyone's who may read beside it.
        for made in (new, *(new / BASELINES).glob("*/")):
            made.chmod((new / BASELINES).stat().st_mode)
        move_folder(new, path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def task_of(path: Path) -> dict[str, Any]:
    """What task.json tells; the model itself is not loaded."""
    if not path.exists():
        raise InputError(f"MODEL must be a folder, got {path}, which is not there. Check the spelling.")
    try:
        task = json.loads((path / TASK).read_text(encoding="utf-8"))
        Roles.from_dict(task["roles"])
        return task
    except (FileNotFoundError, NotADirectoryError):
        got = f"got {path} without {TASK}"
        raise InputError(f"MODEL must be a folder that `ddpn fit` wrote, {got}. Name such a folder.") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{path / TASK} must be as it was saved, got a damaged file. Fit the model again.") from None


def load(path: Path) -> ModelFolder:
    """The model and its baselines again; nothing in the files is executed."""
    task, beside = task_of(path), path / BASELINES
    return ModelFolder(CountRegressor.load(path), load_baselines(beside), task, load_levels(beside))
