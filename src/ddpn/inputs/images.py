"""Pictures from files: decoded, brought to one size, changed at random while training."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from ddpn.datasets.checks import is_count, whole
from ddpn.datasets.dataset import Dataset, as_counts
from ddpn.datasets.progress import bar
from ddpn.errors import ConfigError, InputError
from ddpn.inputs.augmentation import augmenter, auto_augment
from ddpn.inputs.image_files import imaging, read_picture

#: Pictures a worker hands over at once.
_BATCH = 32


@dataclass(frozen=True)
class Unreadable:
    """What `Pictures.checked` left out: the files and why, and the rows of those that stayed."""

    files: tuple[str, ...]
    reasons: tuple[str, ...]
    kept: NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.files)

    def __str__(self) -> str:
        total = self.count + len(self.kept)
        if not self.count:
            return f"all {total:,} pictures can be read"
        named = ", ".join(self.files[:5]) + (", ..." if self.count > 5 else "")
        return f"{self.count:,} of {total:,} pictures cannot be read and are left out: {named}"


class Pictures(TorchDataset[tuple[Tensor, Tensor]]):
    """Pictures below `root` with their counts: items of uint8 (3, size, size) and a float32 number.

    Pillow decodes them; grey, CMYK, palettes and alpha become RGB (alpha is dropped), 16 bits become 8 and 32 cannot be
    read, a turn noted in EXIF is ignored, and a bilinear resize that does not keep the aspect makes them square.
    Nothing is normalised here: a network knows the statistics it was trained with.
    `augment` changes each item at random by AutoAugment's policy for ImageNet, with the library that `augmenter` names;
    `transform` is a function of your own in its place. Both draw from torch's generator, which a DataLoader seeds in
    each of its workers: one seed and one number of workers give the same pictures again.
    A picture that cannot be read is an InputError that names it. With on_error="skip", `checked` leaves such pictures
    out, before a training and not in it, where rows and batches are fixed.
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
        self.files, self.y = _paired(files, y)
        size = whole("size", size, 1, "The networks of the paper take 224.", ConfigError)
        if on_error not in ("raise", "skip"):
            raise ConfigError(f'on_error must be "raise" or "skip", got {on_error!r}. Choose one of the two.')
        if augment and transform is not None:
            raise ConfigError("augment must be False with a transform, got both. Augment inside the transform.")
        imaging()
        self.root, self.size, self.on_error, self.transform = Path(root), size, on_error, transform
        self.augmenter = augmenter() if augment else None
        self._change: Callable[[Tensor], Tensor] | None = None

    @classmethod
    def of(cls, data: Dataset, part: str, **options: Any) -> "Pictures":
        """The pictures of "train", "validation" or "test" of a data set with a root and a column "file"."""
        if data.root is None:
            raise InputError(f"data must know the folder of its pictures as root, got none in {data.name}. Set it.")
        X, y = data.part(part)
        return cls(data.root, X["file"], y, **options)

    @property
    def identity(self) -> list[int]:
        """Numbers that pictures of other names, counts or sizes would not have; what the files hold is not read."""
        named, counted = (zlib.crc32(given) for given in ("\n".join(self.files).encode(), self.y.numpy().tobytes()))
        return [named, counted, self.size, int(self.augmenter is not None)]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        try:
            picture = self.decoded(row)
        except InputError as error:
            hint = " Leave such pictures out with checked()." if self.on_error == "skip" else ""
            raise InputError(f"{error}{hint}") from error
        return self._changed(picture), self.y[row]

    def decoded(self, row: int) -> Tensor:
        """The picture of a row as it is, before any change at random. Shape: (3, size, size), uint8."""
        return read_picture(self.root / self.files[row], self.size)

    def checked(self, workers: int = 0, progress: bool = False) -> tuple["Pictures", Unreadable]:
        """Decode every picture once: those that can be read, and a report of those that cannot.

        With on_error="raise" the first that cannot is an error.
        """
        faults: dict[int, str] = {}
        for first, found in _in_order(_Faults(self), workers, "Pictures checked", progress):
            faults |= {first + i: fault for i, fault in enumerate(found) if fault}
            if faults and self.on_error == "raise":
                raise InputError(next(iter(faults.values())))
        kept = np.array([row for row in range(len(self)) if row not in faults], dtype=np.int64)
        if not len(kept):
            raise InputError(f"pictures must be readable, got none of {len(self)}: {next(iter(faults.values()))}")
        report = Unreadable(tuple(self.files[row] for row in faults), tuple(faults.values()), kept)
        return self.rows(kept), report

    def rows(self, index: Sequence[int] | NDArray[Any] | slice) -> "Pictures":
        """The pictures of these rows, in their order, or of a mask."""
        chosen = _chosen(index, len(self))
        files, y = [self.files[row] for row in chosen], self.y[torch.from_numpy(chosen)]
        augment = self.augmenter is not None
        return Pictures(self.root, files, y.numpy(), self.size, augment, self.on_error, self.transform)

    def _changed(self, picture: Tensor) -> Tensor:
        if self.augmenter is None:
            return picture if self.transform is None else self.transform(picture)
        if self._change is None:
            # Made where it is used: a worker started afresh cannot be sent one.
            self._change = auto_augment(self.augmenter)
        return self._change(picture[None])[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_change": None}


def _paired(files: Any, y: Any) -> tuple[list[str], Tensor]:
    """Names and as many counts."""
    for name, values in (("files", files), ("y", y)):
        if isinstance(values, str) or not hasattr(values, "__len__"):
            raise InputError(f"{name} must be a list, got {values!r:.40}. Give one a picture.")
    if len(files) != len(y) or len(files) == 0:
        raise InputError(f"files and y must be as many, one or more, got {len(files)} and {len(y)}. Pair them.")
    values = np.asarray(y)
    remedy = "Recode or drop those rows."
    if values.dtype.kind not in "fiu":
        for row, value in enumerate(values.tolist()):
            if not is_count(value):
                raise InputError(f"y must hold non-negative integers, got {value!r:.40} in row {row + 1}. {remedy}")
    if values.ndim != 1:
        raise InputError(f"y must be one count a picture, got shape {values.shape}. Take one column.")
    counts = as_counts(values.astype(np.float64), "y", remedy)
    return [str(file) for file in files], torch.from_numpy(counts).to(torch.float32)


def _chosen(index: Any, n: int) -> NDArray[np.int64]:
    try:
        chosen = np.arange(n)[index if isinstance(index, slice) else np.asarray(index)]
    except IndexError:
        chosen = np.arange(0)
    if chosen.ndim != 1 or not len(chosen):
        raise InputError(f"index must be rows of {n} pictures, one or more, got {index!r:.60}. Count them from 0.")
    return chosen


def in_memory(pictures: Pictures, workers: int = 0, progress: bool = False) -> tuple[Tensor, Tensor]:
    """All pictures decoded, unchanged by `augment` or `transform`, and their counts.

    Shape: (N, 3, size, size) uint8 and (N,) float32. One that cannot be read is an error: use `checked` before.
    """
    out = torch.empty(len(pictures), 3, pictures.size, pictures.size, dtype=torch.uint8)
    for first, found in _in_order(_Decoded(pictures), workers, "Pictures read", progress):
        for i, picture in enumerate(found):
            if isinstance(picture, str):
                raise InputError(picture)
            out[first + i] = picture
    return out, pictures.y.clone()


class _Decoded(TorchDataset[Tensor | str]):
    """Each picture, or the sentence that says why not: an error raised in a worker comes with its traceback."""

    def __init__(self, pictures: Pictures) -> None:
        self.pictures = pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, row: int) -> Tensor | str:
        try:
            return self.pictures.decoded(row)
        except InputError as error:
            return str(error)


class _Faults(_Decoded):
    """The sentence alone, "" where there is none: pictures need not travel."""

    def __getitem__(self, row: int) -> str:
        found = super().__getitem__(row)
        return found if isinstance(found, str) else ""


def _in_order(of: _Decoded, workers: int, name: str, progress: bool) -> Iterator[tuple[int, list[Any]]]:
    """Items in lists, with the row of the first."""
    workers = whole("workers", workers, 0, "Use 0 to read them in this process.", ConfigError)
    loader = DataLoader(of, batch_size=_BATCH, num_workers=workers, collate_fn=list)
    with bar(name, len(of), progress) as move:
        for number, found in enumerate(loader):
            yield number * _BATCH, found
            move(len(found))
