"""Encode a table of numbers, booleans and text as a float32 matrix without missing values, for a network."""

from ddpn.tables.encoding.encoder import FeatureEncoder
from ddpn.tables.encoding.storage import encoder_from_bytes, encoder_to_bytes

__all__ = ["FeatureEncoder", "encoder_from_bytes", "encoder_to_bytes"]
