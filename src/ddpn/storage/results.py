"""`ResultStore`: the files of finished jobs in a folder, from which a program that was killed continues. No pickles."""

import json
from collections.abc import Mapping
from importlib.metadata import version
from os import PathLike
from pathlib import Path

from ddpn.runtime.errors import InputError
from ddpn.storage.files import check_writable, sha256, write_bytes


class ResultStore:
    """Keeps the files that jobs returned: each is named by its hash, and a note on each job, written last, lists them.

    What a result depends on, its identity, is a value that JSON can hold; jobs without one are not stored. The folder
    is made when the first result is written.

    Parameters
    ----------
    folder : path
        The folder.
    about : object, optional
        What all results depend on, a value that JSON can hold. Results that depend on other things are not read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = ResultStore(folder)
    ...     store.write({"seed": 3}, {"weights": b"abc"}, "a job")
    ...     print(store.read({"seed": 3}), store.read({"seed": 4}))
    {'weights': b'abc'} None
    """

    def __init__(self, folder: str | PathLike[str], about: object = None) -> None:
        self.folder, self._about = Path(folder), about
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file, not a folder. Choose another name.")
        check_writable(self.folder / "file")

    def path(self, identity: object) -> Path:
        """Return the path of the note on a job. Another version of ddpn has other notes."""
        depends_on = json.dumps([version("ddpn"), self._about, identity], sort_keys=True)
        return self.folder / f"{sha256(depends_on.encode())}.json"

    def write(self, identity: object, files: Mapping[str, bytes], name: str) -> None:
        """Keep the files of a job, and its name for people who look into the folder."""
        if identity is None:
            return
        hashes = {file: sha256(content) for file, content in files.items()}
        for file, content in files.items():
            write_bytes(self.folder / hashes[file], content, tidy=False)
        write_bytes(self.path(identity), json.dumps({"job": name, "files": hashes}).encode(), tidy=False)

    def paths(self, identity: object) -> dict[str, Path]:
        """Return the paths of the files of a job that `read` returned."""
        hashes = json.loads(self.path(identity).read_bytes())["files"]
        return {file: self.folder / digest for file, digest in hashes.items()}

    def read(self, identity: object) -> dict[str, bytes] | None:
        """Return the files of a job; None if there are none, or if one is damaged: the job is then run again."""
        if identity is None:
            return None
        try:
            paths = self.paths(identity)
            files = {file: path.read_bytes() for file, path in paths.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):  # no note, no file, or not what was written
            return None
        return files if all(sha256(files[file]) == path.name for file, path in paths.items()) else None
