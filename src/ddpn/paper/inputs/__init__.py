"""Raw inputs as tensors: tokens, images and point clouds, from files of your own."""

from ddpn.paper.inputs.images import auto_augment, decode_images
from ddpn.paper.inputs.point_clouds import Beam, pack, unpack
from ddpn.paper.inputs.tokens import join_texts, tokenize

__all__ = ["Beam", "auto_augment", "decode_images", "join_texts", "pack", "tokenize", "unpack"]
