"""Encode a table of numbers, booleans and text as a finite float32 matrix for a network."""

from ddpn.tables.encoding.encoder import FeatureEncoder
from ddpn.tables.encoding.storage import encoder_from_bytes, encoder_to_bytes

__all__ = ["FeatureEncoder", "encoder_from_bytes", "encoder_to_bytes"]
