"""Read the description that an exported ONNX file contains. Imports no torch."""

import json
from os import PathLike
from pathlib import Path

from ddpn.runtime.errors import InputError
from ddpn.runtime.extras import import_extra
from ddpn.storage.contents import JsonObject

#: The key of the description in the file's metadata, and the version of the description.
ENTRY, FORMAT = "ddpn", 1
#: The largest file that protobuf, the format of ONNX, can hold.
_MAX_FILE_BYTES = 2**31


def describe_onnx(path: str | PathLike[str]) -> JsonObject:
    """Read the description that an exported file contains: its inputs, outputs and members, and facts about the fit.

    Parameters
    ----------
    path : path
        A file that `export_onnx` or `ddpn export` wrote.

    Returns
    -------
    dict
        A dict that JSON can hold: the inputs with their types and meanings, the outputs, and the members with their
        weights. If the model was fitted by `ddpn fit`, it also has the date, the data and the scores of the fit.

    Raises
    ------
    InputError
        If the file does not exist, is not an ONNX file, or was not exported by a compatible version of ddpn.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{'Not a file' if file.exists() else 'File not found'}: {path}")
    if file.stat().st_size > _MAX_FILE_BYTES:
        raise InputError(f"{path} is not an ONNX file: it has more than {_MAX_FILE_BYTES:,} bytes.")
    onnx, message = import_extra("onnx", "export"), import_extra("google.protobuf.message", "export")
    try:
        model = onnx.load_model_from_string(file.read_bytes())
    except message.DecodeError:
        raise InputError(f"{path} is not an ONNX file, or only a part of one.") from None
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    if ENTRY not in metadata:
        raise InputError(f"{path} is an ONNX model, but ddpn did not export it.")
    try:
        about: JsonObject = json.loads(metadata[ENTRY])
    except (ValueError, RecursionError):
        about = {}
    if not isinstance(about, dict) or "format" not in about:
        raise InputError(f"{path} is damaged: its description cannot be read. Export it again.")
    if about["format"] != FORMAT:
        got = f"has format {about['format']!r}, but this version reads format {FORMAT}"
        raise InputError(f"{path} {got}. Export it again.")
    return about
