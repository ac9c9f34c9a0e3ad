"""Images from files: decoded, resized to one size, and changed at random in training."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ddpn.errors import ConfigError, InputError
from ddpn.inputs.augmentation import augmentation_library, make_auto_augment
from ddpn.inputs.image_files import import_pillow, read_image
from ddpn.progress import progress_bar
from ddpn.sample import check_counts
from ddpn.validation import check_choice, check_integer, listed

#: Images that a worker returns at once.
_BATCH = 32


@dataclass(frozen=True)
class UnreadableImages:
    """The files that `Images.check` left out with the reasons, and the rows of the others (`kept`)."""

    files: tuple[str, ...]
    reasons: tuple[str, ...]
    kept: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.files)

    def __str__(self) -> str:
        total = len(self) + len(self.kept)
        if not self.files:
            return f"all {total:,} images can be read"
        return f"{len(self):,} of {total:,} images cannot be read and are left out: {listed(self.files, 5)}"


class Images(Dataset[tuple[Tensor, Tensor]]):
    """A torch dataset of images below `root` with their counts: uint8 (3, size, size) and a float32 number.

    Pillow decodes them; gray, CMYK, palettes and alpha become RGB (alpha is dropped), 16 bits become 8 and 32 are an
    error, a rotation in EXIF is ignored, and a bilinear resize that does not keep the aspect makes them square. They
    are not normalized: a network knows the statistics that it was trained with.

    `augment` changes each image at random by AutoAugment's policy for ImageNet, with the library that
    `augmentation_library` names; `transform` is a function of your own instead. Both draw from torch's generator, which
    a DataLoader seeds in each worker: the same seed and number of workers give the same images.
    An image that cannot be read raises an InputError with its name. With on_error="skip", `check` leaves such images
    out: before training, since rows and batches are fixed in it.
    """

    def __init__(
        self,
        root: str | Path,
        files: Sequence[str] | NDArray[Any],
        y: Sequence[float] | NDArray[Any],
        size: int = 224,
        augment: bool = False,
        on_error: str = "raise",
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        for name, values in (("files", files), ("y", y)):
            if isinstance(values, str) or not hasattr(values, "__len__"):
                raise InputError(f"{name} must be a list with one item per image, got {values!r:.40}.")
        counts = check_counts(y, len(files))
        check_integer("size", size, 1)
        check_choice("on_error", on_error, ("raise", "skip"))
        if augment and transform is not None:
            raise ConfigError("augment must be False with a transform, got both. Augment inside the transform.")
        import_pillow()
        self.files, self.y = [str(file) for file in files], torch.from_numpy(counts).to(torch.float32)
        self.root, self.size, self.on_error, self.transform = Path(root), int(size), on_error, transform
        self.library = augmentation_library() if augment else None
        self._augment: Callable[[Tensor], Tensor] | None = None

    @property
    def identity(self) -> list[int]:
        """Numbers that differ for images with other names, counts or sizes; the files are not read."""
        names, counts = (zlib.crc32(part) for part in ("\n".join(self.files).encode(), self.y.numpy().tobytes()))
        return [names, counts, self.size, int(self.library is not None)]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        try:
            image = self.decode(row)
        except InputError as error:
            hint = " Leave such images out with check()." if self.on_error == "skip" else ""
            raise InputError(f"{error}{hint}") from error
        return self._changed(image), self.y[row]

    def decode(self, row: int) -> Tensor:
        """The image of a row, before any random change. Shape: (3, size, size), uint8."""
        return read_image(self.root / self.files[row], self.size)

    def check(self, workers: int = 0, progress: bool = False) -> tuple["Images", UnreadableImages]:
        """Decode every image once; return those that can be read, and a report on the others.

        With on_error="raise" the first unreadable image is an error.
        """
        reasons: dict[int, str] = {}
        for row, reason in _decode_all(self, False, workers, progress):
            if reason and self.on_error == "raise":
                raise InputError(reason)
            reasons |= {row: reason} if reason else {}
        kept = np.array([row for row in range(len(self)) if row not in reasons], dtype=np.int64)
        if not len(kept):
            raise InputError(f"None of {len(self)} images can be read: {reasons[0]}")
        report = UnreadableImages(tuple(self.files[row] for row in reasons), tuple(reasons.values()), kept)
        return self.rows(kept), report

    def rows(self, index: Sequence[int] | NDArray[Any] | slice) -> "Images":
        """Some of the images, by a mask, a slice or positions."""
        try:
            chosen = np.arange(len(self))[index if isinstance(index, slice) else np.asarray(index)]
        except IndexError:
            chosen = np.arange(0)
        if chosen.ndim != 1 or not len(chosen):
            raise InputError(f"index must select rows of {len(self)} images, got {index!r:.60}.")
        files, y = [self.files[row] for row in chosen], self.y.numpy()[chosen]
        return Images(self.root, files, y, self.size, self.library is not None, self.on_error, self.transform)

    def _changed(self, image: Tensor) -> Tensor:
        if self.library is None:
            return image if self.transform is None else self.transform(image)
        if self._augment is None:
            # Created where it is used: it cannot be sent to a worker that is spawned.
            self._augment = make_auto_augment(self.library)
        return self._augment(image[None])[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_augment": None}


def decode_images(images: Images, workers: int = 0, progress: bool = False) -> tuple[Tensor, Tensor]:
    """Decode all images, unchanged by `augment` or `transform`, and return them with their counts.

    Shape: (N, 3, size, size) uint8 and (N,) float32. An unreadable image is an error: use `check` first.
    """
    pixels = torch.empty(len(images), 3, images.size, images.size, dtype=torch.uint8)
    for row, image in _decode_all(images, True, workers, progress):
        if isinstance(image, str):
            raise InputError(image)
        pixels[row] = image
    return pixels, images.y.clone()


class _Decoded(Dataset[Tensor | str]):
    """Each image, or the message of its error: an error raised in a worker would come with its traceback.

    Without `keep` "" takes the place of an image: it need not be copied between processes.
    """

    def __init__(self, images: Images, keep: bool) -> None:
        self.images, self.keep = images, keep

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> Tensor | str:
        try:
            image = self.images.decode(row)
        except InputError as error:
            return str(error)
        return image if self.keep else ""


def _decode_all(images: Images, keep: bool, workers: int, progress: bool) -> Iterator[tuple[int, Any]]:
    """Rows with their images or messages, in order."""
    check_integer("workers", workers)
    loader = DataLoader(_Decoded(images, keep), batch_size=_BATCH, num_workers=workers, collate_fn=list)
    with progress_bar("Images", len(images), progress) as bar:
        for number, found in enumerate(loader):
            yield from enumerate(found, start=number * _BATCH)
            bar.advance(len(found))
