"""Tables to files, whole or not at all."""

import gzip
import io
import sys
from pathlib import Path
from typing import Any

from ddpn.errors import InputError
from ddpn.files import write_bytes
from ddpn.workflow.reading import BINARY, STDIN, TEXT, ending


def check_free(path: Path, overwrite: bool, what: str = "output") -> None:
    """Told before the work, not after it."""
    if path.exists() and not overwrite:
        raise InputError(f"{what} must be free, got {path}, which exists. Add --overwrite or name another.")
    if path.parent.exists() and not path.parent.is_dir():
        raise InputError(f"{what} must lie in a folder, got {path.parent}, which is a file. Name another.")


def check_output(target: str, overwrite: bool) -> None:
    """Whether a table can be written there."""
    if target == STDIN:
        return
    if ending(target) in TEXT and target.lower().endswith(".zst"):
        raise InputError(f"an output must be plain or .gz, got {target}. Leave .zst to another program.")
    path = Path(target)
    if path.is_dir():
        raise InputError(f"output must be a file, got {path}, which is a folder. Name a file in it.")
    check_free(path, overwrite)


def write(frame: Any, target: str) -> None:
    """A polars frame, in the format of the ending; "-" is CSV on standard output."""
    if target == STDIN:
        sys.stdout.write(frame.write_csv())
        return
    content, kind = io.BytesIO(), ending(target)
    if kind in TEXT:
        frame.write_csv(content, separator=TEXT[kind] or ",")
    elif BINARY[kind] == "read_parquet":
        frame.write_parquet(content)
    else:
        frame.write_ipc(content)
    plain = content.getvalue()
    write_bytes(Path(target), gzip.compress(plain) if target.lower().endswith(".gz") else plain)
