"""Contents of the files of a model: named arrays as safetensors, and JSON documents. No pickles."""

import json
from typing import Any

import numpy as np
from safetensors.numpy import load, save


def arrays_to_bytes(**arrays: np.ndarray) -> bytes:
    """Return named arrays as the content of a safetensors file."""
    return save({name: np.ascontiguousarray(values) for name, values in arrays.items()})


def arrays_from_bytes(content: bytes) -> dict[str, np.ndarray]:
    """Return the arrays that `arrays_to_bytes` wrote."""
    return load(content)


def json_to_bytes(document: Any) -> bytes:
    """Return a JSON document as the content of a file."""
    return json.dumps(document).encode()
