"""A fitted encoder as a safetensors file: one array per field of all columns, and a JSON description with a checksum.

Thousands of columns are a few arrays, so that saving takes milliseconds. Nothing in such a file is executed.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from sklearn.utils.validation import check_is_fitted

from ddpn.runtime.errors import InputError
from ddpn.storage.files import sha256
from ddpn.tables.encoding.categorical import CategoricalColumn
from ddpn.tables.encoding.encoder import FeatureEncoder
from ddpn.tables.encoding.fitting import Encoded
from ddpn.tables.encoding.level_effects import LevelEffects
from ddpn.tables.encoding.numeric import NumericColumn

_FORMAT = "ddpn features 2"
_DESCRIPTION, _CHECKSUM = "description", "sha256"
_NUMBERS, _LISTS = ("fill", "center", "scale", "has_missing"), ("edges", "steps", "codes")
_LEVELS = ("levels", "has_other", "has_missing")


def encoder_bytes(encoder: FeatureEncoder) -> bytes:
    """The content of a file that holds a fitted encoder."""
    check_is_fitted(encoder)
    names = getattr(encoder, "feature_names_in_", None)
    categories = {j: own for j, own in enumerate(encoder.columns_) if isinstance(own, CategoricalColumn)}
    about = {
        "format": _FORMAT,
        "options": {name: _plain(value) for name, value in encoder.get_params().items()},
        "names": None if names is None else names.tolist(),
        "kinds": encoder.kinds_,
        "categories": {j: [getattr(own, name) for name in _LEVELS] for j, own in categories.items()},
        "effects": {j: own.effects for j, own in categories.items() if own.effects is not None},
    }
    arrays = _arrays_of([own for own in encoder.columns_ if isinstance(own, NumericColumn)])
    arrays[_DESCRIPTION] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    return save_arrays(arrays | {_CHECKSUM: _checksum(arrays)})


def encoder_from_bytes(content: bytes, source: str = "the content") -> FeatureEncoder:
    """The encoder in the content of a file; `source` names it in errors."""
    try:
        arrays = load_arrays(content)
        found = arrays.pop(_CHECKSUM)
        description = arrays[_DESCRIPTION].tobytes()
    except (SafetensorError, KeyError, ValueError, OverflowError):
        raise InputError(f"{source} must be a saved FeatureEncoder, got something else.") from None
    if not np.array_equal(found, _checksum(arrays)):
        raise InputError(f"{source} must be as it was saved, got a wrong checksum: it was cut off or altered.")
    try:
        about = json.loads(description)
        if about["format"] != _FORMAT:
            raise ValueError(f"format {about['format']!r}")
        return _encoder_of(about, arrays)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"{source} must hold a FeatureEncoder and nothing else, got {error}.") from error


def _arrays_of(columns: list[NumericColumn]) -> dict[str, np.ndarray]:
    arrays = {name: np.array([getattr(own, name) for own in columns], dtype=np.float64) for name in _NUMBERS}
    for name in _LISTS:
        each = [getattr(own, name) for own in columns]
        arrays[name] = np.concatenate([np.empty(0), *each])
        arrays[f"{name}.lengths"] = np.array([len(own) for own in each], dtype=np.int64)
    return arrays


def _encoder_of(about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> FeatureEncoder:
    encoder = FeatureEncoder(**about["options"])
    encoder.kinds_, encoder.n_features_in_ = about["kinds"], len(about["kinds"])
    if about["names"] is not None:
        encoder.feature_names_in_ = np.array(about["names"], dtype=object)
    numbers = iter(_columns_of(arrays))
    columns: list[Encoded] = []
    for j in range(encoder.n_features_in_):
        if str(j) in about["categories"]:
            levels, has_other, has_missing = about["categories"][str(j)]
            effects = about.get("effects", {}).get(str(j))  # files of earlier versions have none
            own = None if effects is None else _effects_of(*effects)
            columns.append(CategoricalColumn(tuple(levels), has_other, has_missing, own))
        else:
            columns.append(next(numbers))
    encoder.set_columns(columns)
    return encoder


def _effects_of(values: Mapping[str, float], missing: float, scale: float) -> LevelEffects:
    return LevelEffects({level: float(value) for level, value in values.items()}, float(missing), float(scale))


def _columns_of(arrays: Mapping[str, np.ndarray]) -> list[NumericColumn]:
    plain = [arrays[name].tolist() for name in _NUMBERS[:-1]] + [arrays["has_missing"].astype(bool).tolist()]
    lists = [np.split(arrays[name], np.cumsum(arrays[f"{name}.lengths"])[:-1]) for name in _LISTS]
    return [NumericColumn(*fields) for fields in zip(*plain, *lists, strict=False)]


def _checksum(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """SHA-256 of names, types, shapes and values."""
    parts = [
        f"{name} {arrays[name].dtype} {arrays[name].shape}".encode() + arrays[name].tobytes() for name in sorted(arrays)
    ]
    return np.frombuffer(bytes.fromhex(sha256(b"\n".join(parts))), dtype=np.uint8)


def _plain(value: Any) -> Any:
    """A number of numpy's as Python's."""
    return value.item() if isinstance(value, np.generic) else value
