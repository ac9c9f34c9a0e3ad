"""`ResultStore`: a folder with the results of finished jobs, so that a program that was killed can continue."""

import json
from collections.abc import Mapping
from importlib.metadata import version
from os import PathLike
from pathlib import Path

from ddpn.runtime.errors import InputError
from ddpn.storage.files import check_writable, sha256, write_bytes


class ResultStore:
    """A folder with the results of finished jobs, so that `ddpn.runtime.jobs.run` need not run them again.

    The result of a job is a set of files, each stored under its hash. A JSON file per job lists the files of the job.
    It is written last, so that a job counts as finished only if all of its files exist. A job is found by its identity:
    a JSON value with everything that the result depends on. Results of jobs whose identity is None are not stored.
    Nothing is pickled. The folder is created when the first result is written.

    Parameters
    ----------
    folder : path
        The folder.
    about : object, optional
        A value that JSON can hold, on which all results depend. Results stored with another value are ignored.

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
        """Return the path of the JSON file that lists the files of the job with this identity, a JSON value.

        Its name is a hash of the job's identity and the version of ddpn. So other versions of ddpn do not find the
        result.
        """
        depends_on = json.dumps([version("ddpn"), self._about, identity], sort_keys=True)
        return self.folder / f"{sha256(depends_on.encode())}.json"

    def write(self, identity: object, files: Mapping[str, bytes], name: str) -> None:
        """Store the files that a job returned. A job whose `identity` is None is not stored.

        `identity` is a JSON value with everything that the result depends on. `files` maps file names to contents.
        `name` describes the job for people who look into the folder.
        """
        if identity is None:
            return
        hashes = {file: sha256(content) for file, content in files.items()}
        for file, content in files.items():
            write_bytes(self.folder / hashes[file], content, tidy=False)
        write_bytes(self.path(identity), json.dumps({"job": name, "files": hashes}).encode(), tidy=False)

    def paths(self, identity: object) -> dict[str, Path]:
        """Return the paths of the files of a stored job, by file name.

        `identity` is the JSON value under which the job was stored. If it is not stored, an `OSError` is raised; `read`
        says whether it is.
        """
        hashes = json.loads(self.path(identity).read_bytes())["files"]
        return {file: self.folder / digest for file, digest in hashes.items()}

    def read(self, identity: object) -> dict[str, bytes] | None:
        """Return the contents of the files of a stored job, by file name.

        `identity` is the JSON value under which the job was stored. Return None if no job is stored under it, if one of
        the files is missing or damaged, or if `identity` is None.
        """
        if identity is None:
            return None
        try:
            paths = self.paths(identity)
            files = {file: path.read_bytes() for file, path in paths.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):  # no note, no file, or damaged content
            return None
        return files if all(sha256(files[file]) == path.name for file, path in paths.items()) else None
