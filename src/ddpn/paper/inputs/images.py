"""Images from files: decoded, resized to one size, and changed at random in training."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.progress import progress_bar
from ddpn.runtime.validation import check_integer
from ddpn.sample import check_counts

#: Images that a worker returns at once.
_BATCH = 32
#: Formats whose 16-bit gray values Pillow returns in mode I, as integers up to 65,535.
_SIXTEEN_BITS = ("PNG", "PPM")
#: Images that AutoAugment changes in the same way; which ones they are is random.
_GROUP = 8


class Images(Dataset[tuple[Tensor, Tensor]]):
    """A torch dataset of images with their counts: uint8 (3, size, size) and a float32 number.

    Pillow decodes them; gray, CMYK, palettes and alpha become RGB (alpha is dropped), 16 bits become 8 and 32 are an
    error, a rotation in EXIF is ignored, and a bilinear resize that does not keep the aspect makes them square. They
    are not normalized: a network knows the statistics that it was trained with. An image that cannot be read raises an
    InputError with its name. `check` leaves such images out: before training, since rows and batches are fixed in it.

    Parameters
    ----------
    root : path
        The folder of the files.
    files : sequence of str
        Their names below `root`.
    y : array-like
        The counts.
    size : int
        Height and width of the images in pixels.
    augment : bool
        Change each image at random by AutoAugment's policy for ImageNet. It draws from torch's generator, which a
        DataLoader seeds in each worker: the same seed and number of workers give the same images.
    transform : callable, optional
        A function of your own instead of `augment`.
    """

    def __init__(
        self,
        root: str | Path,
        files: Sequence[str] | NDArray[Any],
        y: Sequence[float] | NDArray[Any],
        size: int = 224,
        augment: bool = False,
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        for name, values in (("files", files), ("y", y)):
            if isinstance(values, str) or not hasattr(values, "__len__"):
                raise InputError(f"{name} must be a list with one item per image, got {values!r:.40}.")
        counts = check_counts(y, len(files))
        check_integer("size", size, 1)
        if augment and transform is not None:
            raise ConfigError("augment must be False with a transform, got both. Augment inside the transform.")
        import_extra("PIL.Image", "images")
        self.files, self.y = [str(file) for file in files], torch.from_numpy(counts).to(torch.float32)
        self.root, self.size, self.transform = Path(root), int(size), transform
        self.augment = augment
        self._change: Callable[[Tensor], Tensor] | None = None

    @property
    def identity(self) -> list[int]:
        """Numbers that differ for images with other names, counts or sizes; the files are not read."""
        names, counts = (zlib.crc32(part) for part in ("\n".join(self.files).encode(), self.y.numpy().tobytes()))
        return [names, counts, self.size, int(self.augment)]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return self._changed(self.decode(row)), self.y[row]

    def decode(self, row: int) -> Tensor:
        """The image of a row, before any random change. Shape: (3, size, size), uint8.

        Parameters
        ----------
        row : int
            The position of the image.
        """
        return read_image(self.root / self.files[row], self.size)

    def check(self, workers: int = 0, progress: bool = False) -> tuple["Images", dict[int, str]]:
        """Decode every image once; return those that can be read, and for each other row the reason.

        Parameters
        ----------
        workers : int
            Processes that decode.
        progress : bool
            Show progress.

        Returns
        -------
        readable : Images
        reasons : dict of str
            By row.
        """
        reasons = {row: reason for row, reason in _decode_all(self, False, workers, progress) if reason}
        if len(reasons) == len(self):
            raise InputError(f"None of {len(self)} images can be read: {reasons[0]}")
        return self.rows([row for row in range(len(self)) if row not in reasons]), reasons

    def rows(self, index: Sequence[int] | NDArray[Any] | slice) -> "Images":
        """Some of the images.

        Parameters
        ----------
        index : array or slice
            A mask, or positions.
        """
        try:
            chosen = np.arange(len(self))[index if isinstance(index, slice) else np.asarray(index)]
        except IndexError:
            chosen = np.arange(0)
        if chosen.ndim != 1 or not len(chosen):
            raise InputError(f"index must select rows of {len(self)} images, got {index!r:.60}.")
        files, y = [self.files[row] for row in chosen], self.y.numpy()[chosen]
        return Images(self.root, files, y, self.size, self.augment, self.transform)

    def _changed(self, image: Tensor) -> Tensor:
        if not self.augment:
            return image if self.transform is None else self.transform(image)
        if self._change is None:
            # Created where it is used: it cannot be sent to a worker that is spawned.
            self._change = make_auto_augment()
        return self._change(image[None])[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_change": None}


def decode_images(images: Images, workers: int = 0, progress: bool = False) -> tuple[Tensor, Tensor]:
    """Decode all images, unchanged by `augment` or `transform`, and return them with their counts.

    An unreadable image is an error: use `Images.check` first.

    Parameters
    ----------
    images : Images
        The images.
    workers : int
        Processes that decode.
    progress : bool
        Show progress.

    Returns
    -------
    pixels : Tensor of uint8, shape (N, 3, size, size)
    y : Tensor of float32, shape (N,)
    """
    pixels = torch.empty(len(images), 3, images.size, images.size, dtype=torch.uint8)
    for row, image in _decode_all(images, True, workers, progress):
        if isinstance(image, str):
            raise InputError(image)
        pixels[row] = image
    return pixels, images.y.clone()


def _decode_all(images: Images, keep: bool, workers: int, progress: bool) -> Iterator[tuple[int, Any]]:
    """Rows with their images or the messages of their errors, in order."""
    check_integer("workers", workers)
    decode = partial(_decode_rows, images, keep)
    loader: Any = DataLoader(range(len(images)), batch_size=_BATCH, num_workers=workers, collate_fn=decode)  # type: ignore
    with progress_bar("Images", len(images), progress) as bar:
        for number, found in enumerate(loader):
            yield from enumerate(found, start=number * _BATCH)
            bar.advance(len(found))


def _decode_rows(images: Images, keep: bool, rows: list[int]) -> list[Tensor | str]:
    """Each image, or the message of its error: an error raised in a worker would come with its traceback.

    Without `keep` "" takes the place of an image: it need not be copied between processes.
    """
    found: list[Tensor | str] = []
    for row in rows:
        try:
            image = images.decode(row)
            found.append(image if keep else "")
        except InputError as error:
            found.append(str(error))
    return found


def read_image(path: Path, size: int) -> Tensor:
    """Read one image; an error names its file. Shape: (3, size, size), uint8."""
    pillow = import_extra("PIL.Image", "images")
    try:
        with pillow.open(path) as image:
            rgb = _rgb(path, pillow, image).resize((size, size), pillow.Resampling.BILINEAR)
    except (InputError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise InputError(f"File not found: {path}") from error
    except Exception as error:
        # Each of Pillow's formats raises its own errors on damaged bytes, RuntimeError and CalledProcessError included.
        raise InputError(f"{path} must be an image, got: {str(error) or type(error).__name__}.") from error
    return torch.from_numpy(np.array(rgb)).permute(2, 0, 1).contiguous()


def _rgb(path: Path, pillow: Any, image: Any) -> Any:
    """An RGB image; 32 bits per channel are an error: the values of black and white are unknown."""
    if image.mode == "F" or (image.mode == "I" and image.format not in _SIXTEEN_BITS):
        kind = "floats" if image.mode == "F" else "integers"
        raise InputError(f"{path} must have 8 or 16 bits per channel, got 32-bit {kind}. Scale them to 0..255.")
    if image.mode.startswith("I"):
        # 16 bits of gray, which Pillow would clip at 255.
        image = pillow.fromarray((np.asarray(image).astype(np.int64).clip(0, 65_535) >> 8).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        # Pillow warns about a direct conversion to RGB.
        image = image.convert("RGBA")
    return image.convert("RGB")


def make_auto_augment() -> Callable[[Tensor], Tensor]:
    """AutoAugment's policy for ImageNet (Cubuk et al., 2018) by kornia: the same change for all images of a call.

    It is drawn from torch's generator. Shape: (N, 3, height, width), uint8, in and out.
    """
    change = import_extra("kornia.augmentation.auto", "images").AutoAugment(policy="imagenet")
    # kornia works on floats between 0 and 1.
    return lambda images: (change(images.to(torch.float32) / 255) * 255).round().clamp(0, 255).to(torch.uint8)


def auto_augment(images: Tensor) -> Tensor:
    """Change images at random by AutoAugment on their device, eight at a time by the same policy.

    Parameters
    ----------
    images : Tensor of uint8, shape (N, 3, height, width)
        The result has the same shape and dtype.
    """
    is_tensor = isinstance(images, Tensor)
    if not is_tensor or images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        found = f"{images.dtype} of shape {tuple(images.shape)}" if is_tensor else type(images).__name__
        raise InputError(f"images must be a uint8 tensor (N, 3, height, width), got {found}. Use decode_images.")
    change, changed = make_auto_augment(), torch.empty_like(images)
    for index in torch.randperm(len(images)).split(_GROUP):
        index = index.to(images.device)
        changed[index] = change(images[index])
    return changed
