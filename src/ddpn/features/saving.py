"""A fitted encoder as a file: a skops archive behind a line with its checksum. Nothing is ever unpickled.

The line in front leaves the archive readable by any zip program and by skops itself. skops takes seconds to import, so
it is imported when an encoder is saved or loaded.
"""

from zipfile import BadZipFile

from ddpn.errors import InputError
from ddpn.features.encoder import FeatureEncoder
from ddpn.files import sha256

_MARK = b"ddpn features 1 "
#: Every type such a file may hold besides numbers, text and plain containers.
TRUSTED = [
    "ddpn.features.categorical.CategoricalColumn",
    "ddpn.features.encoder.FeatureEncoder",
    "ddpn.features.numeric.NumericColumn",
]


def encoder_bytes(encoder: FeatureEncoder) -> bytes:
    """The content of a file that holds the encoder."""
    from skops.io import dumps

    archive = dumps(encoder)
    return _MARK + sha256(archive).encode() + b"\n" + archive


def encoder_from_bytes(content: bytes, source: str = "the content") -> FeatureEncoder:
    """The encoder in the content of a file; `source` names it in errors."""
    from skops.io import loads

    header, _, archive = content.partition(b"\n")
    if not header.startswith(_MARK):
        raise InputError(f"{source} must be a saved FeatureEncoder, got something else.")
    if header != _MARK + sha256(archive).encode():
        raise InputError(f"{source} must be as it was saved, got a wrong checksum: it was cut off or altered.")
    try:
        encoder = loads(archive, trusted=TRUSTED)
    except (BadZipFile, AttributeError, ImportError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{source} must hold a FeatureEncoder and nothing else, got {error}.") from error
    if not isinstance(encoder, FeatureEncoder):
        raise InputError(f"{source} must hold a FeatureEncoder, got {type(encoder).__name__}.")
    return encoder
