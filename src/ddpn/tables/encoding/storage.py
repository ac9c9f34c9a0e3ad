"""Save a fitted encoder as a JSON document, and load it without executing code."""

import json
from dataclasses import asdict

import numpy as np

from ddpn.runtime.errors import InputError
from ddpn.storage.contents import JsonObject
from ddpn.tables.columns import Kind
from ddpn.tables.encoding.categories import CategoryEncoding, LevelEffects
from ddpn.tables.encoding.columns import Encoded
from ddpn.tables.encoding.encoder import TableEncoder
from ddpn.tables.encoding.numbers import NumberEncoding
from ddpn.tables.schema import Schema

_FORMAT = "ddpn features 4"


def encoder_to_bytes(encoder: TableEncoder) -> bytes:
    """Serialise a fitted encoder as the content of a JSON file."""
    document = {
        "format": _FORMAT,
        "options": {"numeric": encoder.numeric, "bins": encoder.bins, "categorical": encoder.categorical},
        "schema": encoder.schema_.as_dict(),
        "columns": [asdict(column) for column in encoder.columns_],
    }
    return json.dumps(document, default=lambda value: value.tolist()).encode()


def load_encoder(content: bytes, source: str) -> TableEncoder:
    """Rebuild an encoder from the result of `encoder_to_bytes`.

    Any other content raises an `InputError`, which calls the file `source`.
    """
    try:
        document = json.loads(content)
        if document["format"] != _FORMAT:
            raise ValueError(f"format {document['format']!r}")
        encoder = TableEncoder(**document["options"])
        encoder.resolve_bins()
        schema = Schema.from_dict(document["schema"])
        columns = [_load_column(kind, fields) for kind, fields in zip(schema.kinds, document["columns"], strict=True)]
        encoder.set_schema(schema)
        encoder.set_columns(columns)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{source} must hold a FeatureEncoder and nothing else, got {error}.") from error
    return encoder


def _load_column(kind: Kind, fields: JsonObject) -> Encoded:
    """Rebuild the encoding of a column from its saved fields; raise an error if they do not fit the column's kind."""
    if not kind.is_category:
        fill, center, scale = (float(fields.pop(name)) for name in ("fill", "center", "scale"))
        has_missing = bool(fields.pop("has_missing"))
        arrays = {name: np.array(values, dtype=np.float64) for name, values in fields.items()}
        return NumberEncoding(fill, center, scale, has_missing, **arrays)
    effects, levels = fields.pop("effects"), tuple(map(str, fields.pop("levels")))
    if effects is not None:
        values, missing, scale = effects
        by_level = {level: float(value) for level, value in values.items()}
        effects = LevelEffects(by_level, float(missing), float(scale))
    return CategoryEncoding(levels, effects=effects, **{name: bool(value) for name, value in fields.items()})
