"""Read and write saved models. A model is a folder with a manifest (model.json) that has the hashes of all other files.

This module does not import torch.
"""

import json
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from importlib.metadata import version
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import ParamSpec, TypeAlias, TypeVar

from ddpn.runtime.errors import DDPNError, InputError
from ddpn.storage.contents import JsonObject
from ddpn.storage.files import atomic_folder, check_writable, folder_lock, recover, sha256

#: The version of all files of a model folder.
FORMAT = 7
MANIFEST = "model.json"
#: The file in which `ddpn fit` records how a model was fitted.
TASK = "task.json"
#: The largest size in bytes of a manifest, and of all other files of a model together.
MAX_MANIFEST_BYTES, MAX_MODEL_BYTES = 2**26, 2**33
#: The most attempts to read a folder that another process replaces.
_MAX_READS = 10

Arguments = ParamSpec("Arguments")
Content = TypeVar("Content")
#: Inode, modification time and size of a manifest, which change when a folder is replaced.
FolderVersion: TypeAlias = tuple[int, int, int]


def wrap_load_errors(load: Callable[Arguments, Content]) -> Callable[Arguments, Content]:
    """Decorate a function that loads a model, so that damaged content raises an `InputError` that names the model.

    The path in the message is the first positional argument of `load` that is a path or has an attribute `path`, or
    else the keyword argument `path`. A `DDPNError`, an OSError and an ImportError of `load` pass unchanged.

    Any other exception may be due to damaged content, even a MemoryError, which a forged size can cause. The hashes in
    the manifest do not exclude this, because they protect only against accidents. Users must not see a traceback in
    such a case.
    """

    @wraps(load)
    def load_and_check(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Content:
        try:
            return load(*args, **kwargs)
        except (DDPNError, OSError, ImportError):
            raise
        except Exception as error:
            paths = (getattr(value, "path", value) for value in args)
            path = next((value for value in paths if isinstance(value, str | PathLike)), kwargs.get("path"))
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
            raise InputError(
                f"{path} is not a model that ddpn saved, or it was changed ({reason}). Fit the model again."
            ) from error

    return load_and_check


def check_destination(path: Path, overwrite: bool) -> None:
    """Raise an `InputError` if a model cannot be saved to `path`.

    That is the case if `path` exists and `overwrite` is False, if it exists but is not a saved model, or if it is not
    writable. If a process was killed while it replaced the folder, the replacement is completed first.
    """
    recover(path)
    if path.exists() and not overwrite:
        raise InputError(f"{path} already exists. Choose another name, or replace it with `overwrite=True`.")
    if path.exists() and not (path / MANIFEST).is_file():
        raise InputError(f"{path} exists but is not a saved model, so it is not overwritten. Choose another name.")
    check_writable(path)


def write_model(path: Path, files: Mapping[str, bytes], manifest: JsonObject, overwrite: bool = False) -> None:
    """Write the files and the manifest of a model to the folder `path`, completely or not at all.

    A process that reads the folder at the same time gets either the old or the new model, never a mixture of both.

    Parameters
    ----------
    path : Path
        The folder.
    files : mapping of str to bytes
        The content of each file, by its path inside the folder.
    manifest : dict
        What the manifest says about the model. Hashes and versions are added to it.
    overwrite : bool
        Whether to replace an existing model.
    """
    check_destination(path, overwrite)
    document = {"format": FORMAT, "ddpn": version("ddpn"), **manifest}
    document["files"] = {name: sha256(content) for name, content in files.items()}
    document["checksum"] = _checksum(document)
    with folder_lock(path):
        check_destination(path, overwrite)  # again: another process may have written it meanwhile
        if (path / TASK).exists() and TASK not in files:
            problem = f"{path} was written by `ddpn fit`, and its {TASK} would be lost"
            raise InputError(f"{problem}. Choose another name, or delete the folder first.")
        with atomic_folder(path) as draft:
            for name, content in {**files, MANIFEST: json.dumps(document, indent=1).encode()}.items():
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                (draft / name).write_bytes(content)


def read_manifest(path: Path) -> JsonObject:
    """Read the manifest of a saved model, and verify its checksum and format. No other file is read.

    An `InputError` is raised if the folder is not a saved model, if the manifest was changed, or if it has the format
    of another version of ddpn.
    """
    if not path.exists():
        recover(path)
    if not (path / MANIFEST).is_file():
        problem = "Folder not found" if not path.exists() else "Not a saved model (no model.json)"
        raise InputError(f"{problem}: {path}")
    _check_size(path / MANIFEST, (path / MANIFEST).stat().st_size, MAX_MANIFEST_BYTES)
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
    except (ValueError, RecursionError):
        raise InputError(f"{path / MANIFEST} is damaged: it is not JSON.") from None
    if not isinstance(manifest, dict) or manifest.get("checksum") != _checksum(manifest):
        raise InputError(f"{path / MANIFEST} was changed or damaged after it was saved.")
    if manifest.get("format") != FORMAT:
        saved = f"format {manifest.get('format')} by ddpn {manifest.get('ddpn', 'unknown')}"
        raise InputError(f"{path} was saved in {saved}; this version reads format {FORMAT}. Fit the model again.")
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(_is_inside(name) for name in files):
        raise InputError(f"{path / MANIFEST} lists files outside its folder. It is not a model that ddpn saved.")
    return manifest


def _is_inside(name: str) -> bool:
    """Return True if a file name is a relative path that stays inside the folder of the model."""
    parts = PurePosixPath(name).parts
    return bool(parts) and ".." not in parts and not name.startswith("/") and not set(name) & set("\\:\0")


def _check_size(path: Path, size: int, limit: int) -> None:
    """Raise an `InputError` if `size`, the size of the file or folder `path` in bytes, is above `limit`."""
    if size > limit:
        raise InputError(f"{path} has {size:,} bytes, but a model that ddpn saved has at most {limit:,}.")


def read_consistently(path: Path, read: Callable[[], Content]) -> Content:
    """Return `read()`, which reads the folder of a model. Call it again if the folder was replaced at the same time.

    Otherwise, the manifest could come from one version of the model and the files from another.
    """
    for _ in range(_MAX_READS):
        before = folder_version(path)
        try:
            content = read()
        except (DDPNError, OSError):
            if folder_version(path) in (before, None):
                raise
            continue
        if folder_version(path) == before:
            return content
    raise InputError(f"{path} was replaced {_MAX_READS} times while it was read. Try again.")


def folder_version(path: Path) -> FolderVersion | None:
    """Return a value that changes when the folder of a model is replaced; None if the folder has no manifest."""
    try:
        status = (path / MANIFEST).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def read_files(path: Path, manifest: JsonObject, folders: Collection[str] | None = None) -> dict[str, bytes]:
    """Read the files that the manifest lists, and verify their hashes.

    Return the contents by the paths of the files inside the folder. With `folders`, only files in these subfolders, and
    files outside all subfolders, are read. A file that is missing or was changed raises an `InputError`.
    """
    digests = {
        name: digest
        for name, digest in manifest["files"].items()
        if folders is None or "/" not in name or name.partition("/")[0] in folders
    }
    for name in digests:
        if not (path / name).is_file():  # also excludes devices and pipes, which never end
            raise InputError(f"File not found: {path / name}. It is part of the saved model.")
    _check_size(path, sum((path / name).stat().st_size for name in digests), MAX_MODEL_BYTES)
    contents = {name: (path / name).read_bytes() for name in digests}
    for name, digest in digests.items():
        if sha256(contents[name]) != digest:
            raise InputError(f"{path / name} was truncated or changed after it was saved.")
    return contents


def _checksum(manifest: JsonObject) -> str:
    """Return the hash of a manifest without its own entry "checksum"."""
    document = {name: value for name, value in manifest.items() if name != "checksum"}
    return sha256(json.dumps(document, sort_keys=True).encode())
