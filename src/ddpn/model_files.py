"""A saved model: a folder with files and a manifest (model.json) that has the hash of each. Imports no torch."""

import hashlib
import json
from collections.abc import Collection, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ddpn.errors import InputError
from ddpn.files import atomic_folder, check_writable, folder_lock, recover, sha256

FORMAT = 2
MANIFEST = "model.json"
#: The file of `ddpn fit` about how a model was fitted.
TASK = "task.json"


def check_destination(path: Path, overwrite: bool) -> None:
    """Raise an `InputError` if a model cannot be saved to `path`."""
    recover(path)
    if path.exists() and not overwrite:
        raise InputError(f"{path} already exists. Choose another name, or overwrite it.")
    if path.exists() and not (path / MANIFEST).is_file():
        raise InputError(f"{path} exists and is not a saved model, so it is not overwritten. Choose another name.")
    check_writable(path)


def write_model(path: Path, files: Mapping[str, bytes], manifest: Mapping[str, Any], overwrite: bool = False) -> None:
    """Write all files and the manifest, or nothing: a reader finds the old model or the new one, never a mixture."""
    check_destination(path, overwrite)
    known = {"format": FORMAT, "ddpn": version("ddpn"), **manifest}
    known["files"] = {name: sha256(content) for name, content in files.items()}
    known["checksum"] = _checksum(known)
    with folder_lock(path):
        check_destination(path, overwrite)  # again: another process may have written it meanwhile
        if (path / TASK).exists() and TASK not in files:
            reason = f"it was written by `ddpn fit`, and its {TASK} would be lost"
            raise InputError(f"{path} is not overwritten: {reason}. Choose another name, or delete the folder first.")
        with atomic_folder(path) as draft:
            for name, content in {**files, MANIFEST: json.dumps(known, indent=1).encode()}.items():
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                (draft / name).write_bytes(content)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a saved model, verified by its own checksum; no other file is read."""
    if not path.exists():
        recover(path)
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        found = "Folder not found" if not path.exists() else "Not a saved model (no model.json)"
        raise InputError(f"{found}: {path}") from None
    except ValueError:
        raise InputError(f"{path / MANIFEST} is damaged: it is not JSON.") from None
    if not isinstance(manifest, dict) or manifest.get("checksum") != _checksum(manifest):
        raise InputError(f"{path / MANIFEST} was changed or damaged after it was saved.")
    if manifest["format"] != FORMAT:
        saved = f"format {manifest['format']} by ddpn {manifest.get('ddpn', 'unknown')}"
        raise InputError(f"{path} was saved in {saved}; this version reads format {FORMAT}. Fit the model again.")
    return manifest


def read_files(path: Path, manifest: Mapping[str, Any], folders: Collection[str] | None = None) -> dict[str, bytes]:
    """The content of the files that the manifest lists, verified by their hashes: all, or those in some folders."""
    wanted = {
        name: digest
        for name, digest in manifest["files"].items()
        if folders is None or "/" not in name or name.partition("/")[0] in folders
    }
    return {name: _verified(path / name, digest) for name, digest in wanted.items()}


def _verified(path: Path, digest: str) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"File not found: {path}, which is part of the saved model.") from None
    if sha256(content) != digest:
        raise InputError(f"{path} was truncated or changed after it was saved.")
    return content


def _checksum(manifest: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in manifest.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
