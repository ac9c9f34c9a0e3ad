"""A long output in parts: each is written whole, and a manifest says which are done, so that a killed run continues."""

import gzip
import io
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ddpn.storage.files import atomic_path, folder_lock, sha256, sha256_of_file, write_bytes
from ddpn.tables.reading import BINARY, TEXT, ending, polars

_MANIFEST = "manifest.json"
#: The manifest has every part up to so many; of n parts beyond, it is written again after n / _MANY more: written each
#: time, those of a billion rows would take hours. A run that is killed then repeats 1% of its parts at most.
_MANY = 100


def part_content(frame: Any, target: str) -> bytes:
    """Rows as a part of the file `target`: text without a header, or Parquet."""
    content, kind = io.BytesIO(), ending(target, to_write=True)
    if kind in TEXT:
        frame.write_csv(content, include_header=False, separator=TEXT[kind] or ",")
    else:
        frame.write_parquet(content)
    return content.getvalue()


class OutputParts:
    """Parts of the file `target`, in a folder beside it that is removed when they are joined.

    `identity` says what is predicted by which model from which files: parts of another identity are dropped. The
    manifest has an entry for each part with its rows, its hash and further facts.
    """

    def __init__(self, target: Path, identity: dict[str, Any]) -> None:
        self.target, self.identity = target, identity
        self.folder = target.with_name(f"{target.name}.parts")
        self.done: list[dict[str, Any]] = []
        self._saved = 0
        self._kind = ending(str(target), to_write=True)

    @contextmanager
    def opened(self) -> Iterator["OutputParts"]:
        """Hold the folder, with the parts that an earlier run has finished."""
        with folder_lock(self.folder):
            self._resume()
            yield self

    def _resume(self) -> None:
        try:
            known = json.loads((self.folder / _MANIFEST).read_text())
        except (OSError, ValueError):
            known = {}
        if known.get("identity") == json.loads(json.dumps(self.identity)):
            for each in known["parts"]:
                path = self.folder / each["file"]
                if not path.is_file() or sha256_of_file(path) != each["sha256"]:
                    break
                self.done.append(each)
            self._saved = len(self.done)
            for draft in self.folder.glob(".*"):  # left by a run that was killed: this one holds the folder
                draft.unlink(missing_ok=True)
        else:
            self.discard()
        self.folder.mkdir(parents=True, exist_ok=True)

    def add(self, content: bytes, rows: int, columns: Sequence[str], **facts: Any) -> None:
        """Write one more part, which `part_content` made, then the manifest that has it."""
        name = f"part-{len(self.done):06d}"
        write_bytes(self.folder / name, content, tidy=False)
        entry = {"file": name, "rows": rows, "columns": list(columns), "sha256": sha256(content), **facts}
        self.done.append(entry)
        if len(self.done) - self._saved > len(self.done) // _MANY:
            self._save()

    def _save(self) -> None:
        manifest = {"identity": self.identity, "parts": self.done}
        write_bytes(self.folder / _MANIFEST, json.dumps(manifest).encode(), tidy=False)
        self._saved = len(self.done)

    def join(self) -> int:
        """Write the target, whole or not at all, and remove the parts; returns the number of rows."""
        files = [self.folder / each["file"] for each in self.done]
        with atomic_path(self.target) as draft:
            if self._kind in TEXT:
                self._join_text(files, draft)
            else:
                table = polars().scan_parquet(files, glob=False)
                is_parquet = BINARY[self._kind] == "read_parquet"
                (table.sink_parquet if is_parquet else table.sink_ipc)(draft, maintain_order=True)
        self.discard()
        return sum(each["rows"] for each in self.done)

    def _join_text(self, files: list[Path], draft: Path) -> None:
        header = polars().DataFrame(schema=dict.fromkeys(self.done[0]["columns"], polars().String))
        with open(draft, "wb") as plain:
            # No time in it: the same predictions are the same file.
            compressed = self.target.name.lower().endswith(".gz")
            out: Any = gzip.GzipFile("", "wb", fileobj=plain, mtime=0) if compressed else plain
            out.write(header.write_csv(separator=TEXT[self._kind] or ",").encode())
            for path in files:
                with open(path, "rb") as part:
                    shutil.copyfileobj(part, out, 2**20)
            if compressed:
                out.close()

    def discard(self) -> None:
        """Remove all parts."""
        shutil.rmtree(self.folder, ignore_errors=True)
