"""A fitted encoder as a JSON document. Nothing in such a file is executed."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ddpn.runtime.errors import InputError
from ddpn.tables.encoding.categorical import CategoricalColumn, LevelEffects
from ddpn.tables.encoding.column_plan import Encoded
from ddpn.tables.encoding.encoder import FeatureEncoder
from ddpn.tables.encoding.numeric import NumericColumn

_FORMAT = "ddpn features 3"


def encoder_bytes(encoder: FeatureEncoder) -> bytes:
    """The content of a file that holds a fitted encoder."""
    check_is_fitted(encoder)
    about = {
        "format": _FORMAT,
        "options": encoder.get_params(),
        "names": getattr(encoder, "feature_names_in_", None),
        "kinds": encoder.kinds_,
        "columns": [asdict(column) for column in encoder.columns_],
    }
    return json.dumps(about, default=lambda value: value.tolist()).encode()


def encoder_from_bytes(content: bytes, source: str = "the content") -> FeatureEncoder:
    """The encoder in the content of a file; `source` names it in errors."""
    try:
        about = json.loads(content)
        if about["format"] != _FORMAT:
            raise ValueError(f"format {about['format']!r}")
        encoder = FeatureEncoder(**about["options"])
        encoder.kinds_, encoder.n_features_in_ = about["kinds"], len(about["kinds"])
        if about["names"] is not None:
            encoder.feature_names_in_ = np.array(about["names"], dtype=object)
        encoder.set_columns([_column(**column) for column in about["columns"]])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{source} must hold a FeatureEncoder and nothing else, got {error}.") from error
    return encoder


def _column(**fields: Any) -> Encoded:
    if "levels" not in fields:
        arrays: dict[str, Any] = {name: np.array(values) for name, values in fields.items() if isinstance(values, list)}
        return NumericColumn(**fields | arrays)
    effects = fields.pop("effects")
    levels = tuple(fields.pop("levels"))
    return CategoricalColumn(levels, effects=None if effects is None else LevelEffects(*effects), **fields)
