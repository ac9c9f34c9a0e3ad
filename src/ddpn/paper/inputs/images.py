"""Images from files: decoded once, resized to one size, and changed at random in training."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ddpn.runtime.errors import InputError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.progress import progress_bar
from ddpn.runtime.validation import check_integer

#: Images that a worker returns at once.
_BATCH = 32
#: Images that AutoAugment changes in the same way; which ones they are is random.
_GROUP = 8


def decode_images(files: Sequence[str | Path], size: int = 224, workers: int = 0, progress: bool = False) -> Tensor:
    """Decode image files into one tensor.

    Pillow decodes them; gray, CMYK, palettes and alpha become RGB (alpha is dropped), a rotation in EXIF is ignored,
    and a bilinear resize that does not keep the aspect makes them square. They are not normalized: a network knows the
    statistics that it was trained with. A file that cannot be read is an error that names it.

    Parameters
    ----------
    files : sequence of path
        The files.
    size : int
        Height and width of the images in pixels.
    workers : int
        Processes that decode.
    progress : bool
        Show progress.

    Returns
    -------
    Tensor of uint8, shape (files, 3, size, size)
    """
    check_integer("size", size, 1)
    check_integer("workers", workers)
    if isinstance(files, str | Path) or not len(files):
        raise InputError(argument="files", must="be a list of at least one file", got=f"{files!r:.40}")
    import_extra("PIL.Image", "images")
    pixels = torch.empty(len(files), 3, size, size, dtype=torch.uint8)
    read = partial(_read_batch, size=size)
    loader: Any = DataLoader(list(files), batch_size=_BATCH, num_workers=workers, collate_fn=read)  # type: ignore
    with progress_bar("Images", len(files), progress) as bar:
        for number, found in enumerate(loader):
            if isinstance(found, str):
                raise InputError(found)
            pixels[number * _BATCH : number * _BATCH + len(found)] = found
            bar.advance(len(found))
    return pixels


def _read_batch(files: list[str | Path], size: int) -> Tensor | str:
    """The images, or the message of the first error: one that is raised in a worker comes with its traceback."""
    try:
        return torch.stack([read_image(Path(file), size) for file in files])
    except InputError as error:
        return str(error)


def read_image(path: Path, size: int) -> Tensor:
    """Read one image; an error names its file. Shape: (3, size, size), uint8."""
    pillow = import_extra("PIL.Image", "images")
    try:
        with pillow.open(path) as image:
            if image.mode.startswith(("I", "F")):
                raise InputError(f"{path} must have 8 bits per channel, got {image.mode}. Scale its values to 0..255.")
            rgb = image.convert("RGB").resize((size, size), pillow.Resampling.BILINEAR)
    except (InputError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise InputError(f"File not found: {path}") from error
    except Exception as error:
        # Each of Pillow's formats raises its own errors on damaged bytes, RuntimeError and CalledProcessError included.
        raise InputError(f"{path} must be an image, got: {str(error) or type(error).__name__}.") from error
    return torch.from_numpy(np.array(rgb)).permute(2, 0, 1).contiguous()


def auto_augment(images: Tensor) -> Tensor:
    """Change images at random on their device, eight at a time by the same policy, as in the paper.

    The policy is AutoAugment's for ImageNet (Cubuk et al., 2018) by kornia, drawn from torch's generator.

    Parameters
    ----------
    images : Tensor of uint8, shape (N, 3, height, width)
        The result has the same shape and dtype.
    """
    is_tensor = isinstance(images, Tensor)
    if not is_tensor or images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        got = f"{images.dtype} of shape {tuple(images.shape)}" if is_tensor else type(images).__name__
        must = "be a uint8 tensor (N, 3, height, width)"
        raise InputError(argument="images", must=must, got=got, remedy="Use decode_images.")
    change = import_extra("kornia.augmentation.auto", "images").AutoAugment(policy="imagenet")
    changed = torch.empty_like(images)
    for index in torch.randperm(len(images)).split(_GROUP):
        index = index.to(images.device)
        # kornia works on floats between 0 and 1.
        found = change(images[index].to(torch.float32) / 255)
        changed[index] = (found * 255).round().clamp(0, 255).to(torch.uint8)
    return changed
