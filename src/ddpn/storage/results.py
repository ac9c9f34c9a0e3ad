"""`ResultStore`: a folder with a file per finished job, from which a program that was killed continues. No pickles."""

import json
from collections.abc import Mapping
from importlib.metadata import version
from os import PathLike
from pathlib import Path

import numpy as np
import torch

from ddpn.runtime.errors import InputError
from ddpn.storage import tensor_files
from ddpn.storage.files import check_writable, sha256

_ENDING = ".result"


class ResultStore:
    """Keeps the files that jobs returned, each result in a file of its own that is written whole or not at all.

    What a result depends on, its identity, is a value that JSON can hold; jobs without one are not stored. The folder
    is made when the first result is written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = ResultStore(folder)
    ...     store.write({"seed": 3}, {"weights": b"abc"}, "a job")
    ...     print(store.read({"seed": 3}), store.read({"seed": 4}))
    {'weights': b'abc'} None
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file, not a folder. Choose another name.")
        check_writable(self.folder / "file")

    def path(self, identity: object) -> Path:
        """The file of a job. Another version of ddpn has other files."""
        known = json.dumps([version("ddpn"), identity], sort_keys=True)
        return self.folder / f"{sha256(known.encode())}{_ENDING}"

    def write(self, identity: object, files: Mapping[str, bytes], name: str) -> None:
        """Keep the files of a job, and its name for people who look into the file."""
        if identity is None:
            return
        tensors = {name: torch.tensor(np.frombuffer(content, np.uint8)) for name, content in files.items()}
        tensor_files.write(self.path(identity), tensors, {"job": name})

    def read(self, identity: object) -> dict[str, bytes] | None:
        """The files of a job; None if there are none, or if their file is damaged: the job is then run again."""
        if identity is None or not (path := self.path(identity)).is_file():
            return None
        try:
            tensors, _ = tensor_files.read(path)
        except InputError:
            return None
        return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
