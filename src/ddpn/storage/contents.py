"""Contents of the files of a model: named arrays as safetensors, and JSON documents. No pickles."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from safetensors.numpy import load, save

#: A JSON object, whose values are checked where they are read.
JsonObject = dict[str, Any]


def arrays_to_bytes(**arrays: np.ndarray) -> bytes:
    """Return named arrays as the content of a safetensors file."""
    return save({name: np.ascontiguousarray(values) for name, values in arrays.items()})


def arrays_from_bytes(content: bytes) -> dict[str, np.ndarray]:
    """Return the arrays that `arrays_to_bytes` wrote."""
    return load(content)


def json_to_bytes(document: Mapping[str, object] | Sequence[object]) -> bytes:
    """Return a JSON document as the content of a file."""
    return json.dumps(document).encode()
