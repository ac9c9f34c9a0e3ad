"""Write tables to files, whole or not at all."""

import gzip
import io
import sys
from pathlib import Path
from typing import Any

from ddpn.runtime.errors import InputError
from ddpn.storage.files import check_writable, write_bytes
from ddpn.tables.reading import BINARY, STDIN, TEXT, ending


def check_free(path: Path, overwrite: bool, source: str = STDIN) -> None:
    """Raise an `InputError` if a file cannot be written to `path`, or is the table `source`; called before the work."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a file.")
    if source != STDIN and path.exists() and Path(source).exists() and path.samefile(source):
        raise InputError(f"{path} is the table {source} itself, which is not overwritten. Choose another name.")
    if path.exists() and not overwrite:
        raise InputError(f"{path} already exists. Choose another name, or replace it with `overwrite=True`.")
    check_writable(path)


def check_output(target: str, overwrite: bool, source: str = STDIN) -> None:
    """Raise an `InputError` if predictions for the table `source` cannot be written to `target`."""
    if target == STDIN:
        return
    if ending(target, to_write=True) in TEXT and target.lower().endswith(".zst"):
        raise InputError(f"Output cannot be compressed as .zst: {target}. Use .gz or no compression.")
    check_free(Path(target), overwrite, source)


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
