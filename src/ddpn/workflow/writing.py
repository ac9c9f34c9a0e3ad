"""Write tables to files, whole or not at all."""

import gzip
import io
import sys
from pathlib import Path
from typing import Any

from ddpn.errors import InputError
from ddpn.files import write_bytes
from ddpn.workflow.reading import BINARY, STDIN, TEXT, ending


def check_free(path: Path, overwrite: bool) -> None:
    """Raise an `InputError` if a file cannot be written to `path`; called before the work."""
    if path.exists() and not overwrite:
        raise InputError(f"{path} already exists. Add --overwrite, or choose another name.")
    if path.parent.exists() and not path.parent.is_dir():
        raise InputError(f"{path.parent} is a file, not a folder. Choose another name.")


def check_output(target: str, overwrite: bool) -> None:
    """Raise an `InputError` if a table cannot be written there."""
    if target == STDIN:
        return
    if ending(target, to_write=True) in TEXT and target.lower().endswith(".zst"):
        raise InputError(f"Output cannot be compressed as .zst: {target}. Use .gz or no compression.")
    path = Path(target)
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a file.")
    check_free(path, overwrite)


def write(frame: Any, target: str) -> None:
    """Write a polars frame in the format of the ending; "-" is CSV on standard output."""
    if target == STDIN:
        sys.stdout.write(frame.write_csv())
        return
    content, kind = io.BytesIO(), ending(target, to_write=True)
    if kind in TEXT:
        frame.write_csv(content, separator=TEXT[kind] or ",")
    elif BINARY[kind] == "read_parquet":
        frame.write_parquet(content)
    else:
        frame.write_ipc(content)
    plain = content.getvalue()
    write_bytes(Path(target), gzip.compress(plain) if target.lower().endswith(".gz") else plain)
