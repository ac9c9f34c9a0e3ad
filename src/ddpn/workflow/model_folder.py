"""A model folder: what `CountRegressor.save` writes, and task.json about how it was fitted.

Reading a task or a description imports no torch.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpn.errors import InputError
from ddpn.model_files import read_files, read_manifest, write_model
from ddpn.workflow.roles import Roles

if TYPE_CHECKING:
    from ddpn.estimators import CountRegressor
    from ddpn.workflow.seen_rows import SeenRows

TASK, CHECKPOINT = "task.json", "checkpoint.safetensors"
#: In a folder of its own, as predictions do not read it.
SEEN_ROWS = "fit/rows.safetensors"


@dataclass(frozen=True)
class ModelFolder:
    """A fitted model, how it was fitted, and to which rows (unknown where it was loaded for predictions only)."""

    model: "CountRegressor"
    task: dict[str, Any]
    seen: "SeenRows | None" = None

    @property
    def roles(self) -> Roles:
        return Roles.from_dict(self.task["roles"])

    def save(self, path: Path, overwrite: bool = False, checkpoint: Path | None = None) -> None:
        """Write all of it, or nothing; with a `checkpoint`, a later fit continues from it."""
        files, manifest = self.model.saved_state()
        files[TASK] = json.dumps(self.task, indent=1).encode()
        if self.seen is not None:
            files[SEEN_ROWS] = self.seen.to_bytes()
        if checkpoint is not None and checkpoint.exists():
            files[CHECKPOINT] = checkpoint.read_bytes()
        write_model(path, files, manifest, overwrite)


def read_task(path: Path) -> dict[str, Any]:
    """How a model was fitted; the model itself is not loaded."""
    return _task(path, read_manifest(path))


def _task(path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    digest = manifest["files"].get(TASK)
    if digest is None:
        raise InputError(f"{path} was not written by `ddpn fit`: it has no {TASK}.")
    return json.loads(read_files(path, {"files": {TASK: digest}})[TASK])


def load(path: Path, mixed_only: bool = False) -> ModelFolder:
    """The model again, for predictions without what it is compared with; nothing in the files is executed."""
    manifest = read_manifest(path)
    task = _task(path, manifest)
    from ddpn.estimators import CountRegressor
    from ddpn.workflow.seen_rows import SeenRows

    model = CountRegressor.load(path, mixed_only)
    if mixed_only or SEEN_ROWS not in manifest["files"]:
        return ModelFolder(model, task)
    content = read_files(path, {"files": {SEEN_ROWS: manifest["files"][SEEN_ROWS]}})[SEEN_ROWS]
    return ModelFolder(model, task, SeenRows.from_bytes(content))


def describe(path: Path) -> dict[str, Any]:
    """What a saved model is and how it was fitted, ready for JSON."""
    manifest = read_manifest(path)
    return {"ddpn": manifest["ddpn"], "members": manifest["members"], "task": _task(path, manifest)}
