"""Convert named arrays and JSON documents to and from the bytes of files. Nothing is pickled."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from safetensors.numpy import load, save

#: A JSON object. Its values are checked by the code that reads them.
JsonObject = dict[str, Any]


def arrays_to_bytes(**arrays: np.ndarray) -> bytes:
    """Convert named arrays to the bytes of a safetensors file."""
    return save({name: np.ascontiguousarray(values) for name, values in arrays.items()})


def arrays_from_bytes(content: bytes) -> dict[str, np.ndarray]:
    """Read named arrays from the bytes of a safetensors file, the result of `arrays_to_bytes`."""
    return load(content)


def json_to_bytes(document: Mapping[str, object] | Sequence[object]) -> bytes:
    """Convert a JSON document to the bytes of a JSON file."""
    return json.dumps(document).encode()
