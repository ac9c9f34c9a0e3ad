"""What an exported file says about itself. Imports no torch."""

import json
from os import PathLike
from pathlib import Path

from ddpn.runtime.errors import InputError
from ddpn.runtime.extras import import_extra
from ddpn.storage.contents import JsonObject

#: The entry of the file's metadata that holds the description, and its version.
ENTRY, FORMAT = "ddpn", 1
#: The largest file that protobuf, the format of ONNX, can hold.
_MAX_FILE_BYTES = 2**31


def describe_onnx(path: str | PathLike[str]) -> JsonObject:
    """Describe the inputs, outputs and members of an exported file, and how the model was fitted.

    Parameters
    ----------
    path : path
        A file that `export_onnx` or `ddpn export` wrote.

    Returns
    -------
    dict
        Ready for JSON: the inputs with their types and meanings, the outputs, the members and their weights, and for a
        model of `ddpn fit` the date, the data and the scores.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{'Not a file' if file.exists() else 'File not found'}: {path}")
    if file.stat().st_size > _MAX_FILE_BYTES:
        raise InputError(
            f"{path} must be an ONNX file, which has at most {_MAX_FILE_BYTES:,} bytes, got a larger file."
        )
    onnx, message = import_extra("onnx", "export"), import_extra("google.protobuf.message", "export")
    try:
        model = onnx.load_model_from_string(file.read_bytes())
    except message.DecodeError:
        raise InputError(f"{path} must be an ONNX file, got something else, or a part of one.") from None
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    if ENTRY not in metadata:
        raise InputError(f"{path} must be a file that ddpn has exported, got another ONNX model.")
    try:
        about: JsonObject = json.loads(metadata[ENTRY])
    except (ValueError, RecursionError):
        about = {}
    if not isinstance(about, dict) or "format" not in about:
        raise InputError(f"{path} must be a file that ddpn has exported, got a damaged description.")
    if about["format"] != FORMAT:
        got = f"got format {about['format']!r}, this version reads {FORMAT}"
        raise InputError(f"{path} must be of a known format, {got}. Export it again.")
    return about
