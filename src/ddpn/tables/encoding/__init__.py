"""Encode a table of numbers, booleans and text as a float32 matrix without missing values, for a network."""

from typing import TYPE_CHECKING

from ddpn.runtime.extras import import_on_use
from ddpn.tables.encoding.encoder import TableEncoder
from ddpn.tables.encoding.storage import encoder_to_bytes, load_encoder

if TYPE_CHECKING:
    from ddpn.tables.encoding.transformer import FeatureEncoder, encoder_from_bytes

# They import scikit-learn, which takes more than half a second.
__getattr__ = import_on_use(
    __name__, dict.fromkeys(("FeatureEncoder", "encoder_from_bytes"), f"{__name__}.transformer")
)

__all__ = ["FeatureEncoder", "TableEncoder", "encoder_from_bytes", "encoder_to_bytes", "load_encoder"]
