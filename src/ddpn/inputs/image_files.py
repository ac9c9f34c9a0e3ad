"""One image from a file: decoded by Pillow, as RGB of one size."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddpn.errors import InputError
from ddpn.extras import import_extra

#: Formats whose 16-bit gray values Pillow returns in mode I, as integers up to 65,535.
_SIXTEEN_BITS = ("PNG", "PPM")


def import_pillow() -> Any:
    """Pillow's module `Image`."""
    return import_extra("PIL.Image", "images")


def read_image(path: Path, size: int) -> Tensor:
    """Read one image; an error names its file. Shape: (3, size, size), uint8."""
    pillow = import_pillow()
    try:
        with pillow.open(path) as image:
            _check_depth(path, image)
            rgb = _rgb(pillow, image).resize((size, size), pillow.Resampling.BILINEAR)
    except (InputError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise InputError(f"File not found: {path}") from error
    except Exception as error:
        # Each of Pillow's formats raises its own errors on damaged bytes, RuntimeError and CalledProcessError included.
        raise InputError(f"{path} must be an image, got: {str(error) or type(error).__name__}.") from error
    return torch.from_numpy(np.array(rgb)).permute(2, 0, 1).contiguous()


def _check_depth(path: Path, image: Any) -> None:
    """Reject 32 bits per channel: the values of black and white are unknown, and Pillow clips at 255."""
    if image.mode == "F" or (image.mode == "I" and image.format not in _SIXTEEN_BITS):
        kind = "floats" if image.mode == "F" else "integers"
        raise InputError(f"{path} must have 8 or 16 bits per channel, got 32-bit {kind}. Scale them to 0..255.")


def _rgb(pillow: Any, image: Any) -> Any:
    if image.mode.startswith("I"):
        # 16 bits of gray, which Pillow would clip at 255.
        image = pillow.fromarray((np.asarray(image).astype(np.int64).clip(0, 65_535) >> 8).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        # Pillow warns about a direct conversion to RGB.
        image = image.convert("RGBA")
    return image.convert("RGB")
