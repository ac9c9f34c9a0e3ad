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
from ddpn.tables.encoding.kinds import WITH_NUMBERS
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
        encoder.checked_bins()
        kinds, names = about["kinds"], about["names"]
        columns = [_column(kind, **fields) for kind, fields in zip(kinds, about["columns"], strict=True)]
        encoder.kinds_, encoder.n_features_in_ = kinds, len(kinds)
        if names is not None:
            encoder.feature_names_in_ = np.array(
                [str(name) for name, _ in zip(names, kinds, strict=True)], dtype=object
            )
        encoder.set_columns(columns)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{source} must hold a FeatureEncoder and nothing else, got {error}.") from error
    return encoder


def _column(kind: str, **fields: Any) -> Encoded:
    """The encoding of a column of this kind; an error for fields that do not fit it."""
    if kind in ("number", "flag"):
        fill, center, scale = (float(fields.pop(name)) for name in ("fill", "center", "scale"))
        has_missing = bool(fields.pop("has_missing"))
        arrays = {name: np.array(values, dtype=np.float64) for name, values in fields.items()}
        return NumericColumn(fill, center, scale, has_missing, **arrays)
    if kind not in ("category", WITH_NUMBERS):
        raise ValueError(f"kind {kind!r}")
    effects, levels = fields.pop("effects"), tuple(map(str, fields.pop("levels")))
    if effects is not None:
        values, missing, scale = effects
        known = {level: float(value) for level, value in values.items()}
        effects = LevelEffects(known, float(missing), float(scale))
    return CategoricalColumn(levels, effects=effects, **{name: bool(value) for name, value in fields.items()})
