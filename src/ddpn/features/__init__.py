"""Any table of numbers, booleans and text as a finite float32 matrix for a network."""

from ddpn.features.encoder import FeatureEncoder
from ddpn.features.saving import dump, encoder_bytes, encoder_from_bytes, load

__all__ = ["FeatureEncoder", "dump", "encoder_bytes", "encoder_from_bytes", "load"]
