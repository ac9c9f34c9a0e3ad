"""A picture from a file: decoded by Pillow, as RGB of one size."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddpn.errors import ConfigError, InputError

#: Formats whose 16 bits of grey Pillow gives as mode I, as whole numbers up to 65,535.
_SIXTEEN = ("PNG", "PPM")


def read_picture(path: Path, size: int) -> Tensor:
    """One picture, or an InputError that names its file. Shape: (3, size, size), uint8."""
    pillow: Any = imaging()
    try:
        with pillow.open(path) as image:
            _check_depth(path, image)
            rgb = _rgb(pillow, image).resize((size, size), pillow.Resampling.BILINEAR)
    except (InputError, MemoryError):
        raise
    except Exception as error:
        # Each of Pillow's formats raises its own on damaged bytes, RuntimeError and CalledProcessError among them.
        why = "no such file" if isinstance(error, FileNotFoundError) else str(error) or type(error).__name__
        raise InputError(f"{path} must be a picture, got one that cannot be read ({why}). Mend it.") from error
    return torch.from_numpy(np.array(rgb)).permute(2, 0, 1).contiguous()


def imaging() -> ModuleType:
    """Pillow's module of pictures."""
    try:
        from PIL import Image
    except ImportError:
        raise ConfigError(
            'pillow must be installed to read pictures, got none. Run: pip install "ddpn[images]"'
        ) from None
    return Image


def _check_depth(path: Path, image: Any) -> None:
    """Refuse 32 bits a pixel: which numbers are black and white in them is not told, and Pillow cuts at 255."""
    if image.mode == "F" or (image.mode == "I" and image.format not in _SIXTEEN):
        kind = "floats" if image.mode == "F" else "whole numbers"
        raise InputError(
            f"{path} must have 8 or 16 bits a channel, got 32-bit {kind}. Scale them to 0..255 and save it as png."
        )


def _rgb(pillow: Any, image: Any) -> Any:
    if image.mode.startswith("I"):
        # 16 bits of grey, which Pillow would cut at 255.
        image = pillow.fromarray((np.asarray(image).astype(np.int64).clip(0, 65_535) >> 8).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        # Straight to RGB it warns that this should go by RGBA.
        image = image.convert("RGBA")
    return image.convert("RGB")
