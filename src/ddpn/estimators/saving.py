"""A fitted model as a folder: its files and a manifest (JSON) that vouches for them.

An estimator says what it keeps by `_saved()`, files by name and words for the manifest, and takes both back by
`_restore(files, manifest, path)`.
"""

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator

from ddpn.errors import InputError
from ddpn.heads import make_head

FORMAT = 1
MANIFEST, WEIGHTS, ENCODER = "model.json", "weights.safetensors", "features.skops"


def save(model: Any, path: Path, overwrite: bool = False) -> None:
    """Write the folder beside its place, then move it there: a reader finds the old model or the new one."""
    if path.exists() and not overwrite:
        raise InputError(f"path must be free, got {path}, which exists. Pass overwrite=True or another name.")
    if path.exists() and not (path / MANIFEST).is_file():
        raise InputError(f"path must hold a saved model to be overwritten, got {path}, which is none. Name another.")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        files = _files(model)
        for name, content in files.items():
            (draft / name).write_bytes(content)
        move_folder(draft, path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def move_folder(draft: Path, path: Path) -> None:
    """Put a folder that is whole in the place of another, if there is one: a reader finds the old or the new."""
    if not path.exists():
        os.rename(draft, path)
        return
    old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.old."))
    os.rename(path, old / "old")
    try:
        os.rename(draft, path)
    except OSError:
        os.rename(old / "old", path)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _files(model: Any) -> dict[str, bytes]:
    files, about = model._saved()
    ood_files, ood = model._saved_ood()
    files |= ood_files | model._saved_intervals()
    manifest = {
        "format": FORMAT,
        "estimator": model._kind,
        "ddpn": _version(),
        "torch": torch.__version__,
        "options": _plain_options(model),
        "head": {"name": model.head_.name, "options": model.head_.options},
        "features": list(map(str, getattr(model, "feature_names_in_", []))) or None,
        "n_features": int(model.n_features_in_),
        "needs_exposure": model.needs_exposure_,
        "exposure_unit": model.exposure_unit_,
        **about,
        **ood,
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    manifest["checksum"] = _checksum(manifest)
    return files | {MANIFEST: json.dumps(manifest, indent=1).encode()}


def _version() -> str:
    from importlib.metadata import version

    return version("ddpn")


def _plain_options(model: BaseEstimator) -> dict[str, Any]:
    """Constructor arguments that JSON can hold; a random stream or a path cannot be kept."""
    options = {}
    for name, value in model.get_params(deep=False).items():
        plain = np.asarray(value).tolist() if isinstance(value, np.generic | np.ndarray | tuple | list) else value
        if plain is None or isinstance(plain, str | int | float | bool | list):
            options[name] = plain
    return options


def _checksum(manifest: dict[str, Any]) -> str:
    rest = {name: value for name, value in manifest.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def load(cls: Any, path: Path) -> Any:
    """The model again. Its files are data: nothing in them is executed."""
    manifest = _manifest(path)
    if manifest["estimator"] != cls._kind:
        raise InputError(
            f"path must hold a saved {cls._kind}, got {path} with a {manifest['estimator']}. "
            f"Use {manifest['estimator']}.load."
        )
    files = {name: _checked(path / name, digest) for name, digest in manifest["files"].items()}
    options = {name: tuple(v) if isinstance(v, list) else v for name, v in manifest["options"].items()}
    model = cls(**options)
    model.head_ = make_head(manifest["head"]["name"], **manifest["head"]["options"])
    model.needs_exposure_, model.exposure_unit_ = manifest["needs_exposure"], manifest["exposure_unit"]
    model._restore(files, manifest, path)
    model._restore_ood(files, manifest, path)
    model._restore_intervals(files, path)
    return model


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"path must hold a saved model, got {path} without {MANIFEST}. Check the spelling.") from None
    except ValueError:
        raise InputError(f"{path / MANIFEST} must be JSON, got a damaged file. Save the model again.") from None
    if not isinstance(manifest, dict) or manifest.get("checksum") != _checksum(manifest):
        raise InputError(f"{path / MANIFEST} must be as it was saved, got an altered file. Save the model again.")
    if manifest["format"] != FORMAT:
        raise InputError(
            f"{path / MANIFEST} must have format {FORMAT}, got {manifest['format']}. "
            f"Load it with ddpn {manifest['ddpn']}."
        )
    return manifest


def _checked(path: Path, digest: str) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} must be there, got no such file. Save the model again.") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise InputError(f"{path} must be as it was saved, got a truncated or altered file. Save the model again.")
    return content
