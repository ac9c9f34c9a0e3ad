"""A fitted encoder as a file: a skops archive behind a line with its checksum. Nothing is ever unpickled.

The line in front leaves the archive readable by any zip program and by skops itself.
"""

import hashlib
import os
from pathlib import Path
from zipfile import BadZipFile

from ddpn.errors import InputError
from ddpn.features.encoder import FeatureEncoder

_MARK = b"ddpn features 1 "
#: Every type such a file may hold besides numbers, text and plain containers.
TRUSTED = [
    "ddpn.features.categorical.CategoricalColumn",
    "ddpn.features.encoder.FeatureEncoder",
    "ddpn.features.numeric.NumericColumn",
]
_HEADER_BYTES = len(_MARK) + 64 + 1


def encoder_bytes(encoder: FeatureEncoder) -> bytes:
    """The content of the file `dump` writes."""
    import skops.io  # its import takes over a second

    archive = skops.io.dumps(encoder)
    return _MARK + hashlib.sha256(archive).hexdigest().encode() + b"\n" + archive


def encoder_from_bytes(content: bytes, source: str = "the content") -> FeatureEncoder:
    """The encoder again; `source` names it in errors."""
    if not content.startswith(_MARK):
        raise InputError(f"{source} must be a saved FeatureEncoder, got something else. Write it with dump.")
    archive = content[_HEADER_BYTES:]
    if hashlib.sha256(archive).hexdigest().encode() + b"\n" != content[len(_MARK) : _HEADER_BYTES]:
        raise InputError(f"{source} must be as it was saved, got a wrong checksum: cut off or altered. Save it again.")
    import skops.io

    try:
        encoder = skops.io.loads(archive, trusted=TRUSTED)
    except (BadZipFile, AttributeError, ImportError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{source} must hold a FeatureEncoder and nothing else, got {error}. Save it again with this version."
        ) from error
    if not isinstance(encoder, FeatureEncoder):
        raise InputError(f"{source} must hold a FeatureEncoder, got {type(encoder).__name__}. Write it with dump.")
    return encoder


def dump(encoder: FeatureEncoder, path: str | os.PathLike[str]) -> None:
    """Write the encoder to a file, whole or not at all."""
    target = Path(path)
    draft = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        draft.write_bytes(encoder_bytes(encoder))
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> FeatureEncoder:
    """The encoder that `dump` wrote."""
    return encoder_from_bytes(Path(path).read_bytes(), str(path))
