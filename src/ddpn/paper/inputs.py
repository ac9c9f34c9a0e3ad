"""Convert your own texts, images and point clouds to the tensors that networks take as inputs.

A beam is the point cloud of one slot of a shelf, seen by a depth camera. `ddpn.networks.backbones.countnet3d` describes
the format of packed beams.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ddpn.networks.backbones.pretrained import load_tokenizer
from ddpn.rows.checks import check_counts
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.progress import progress_bar
from ddpn.runtime.threads import count_cores
from ddpn.runtime.validation import check_integer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Texts ----------------------------------------------------------------------------------------------------------------


#: The number of texts that are tokenized together, in parallel. A larger number would need more memory.
_BLOCK_TEXTS = 1024
_ONLY_IDS = {"return_attention_mask": False, "return_token_type_ids": False}


def tokenize(
    texts: Sequence[str], tokenizer: "PreTrainedTokenizerBase | str | Path", *, max_length: int = 128
) -> Tensor:
    """Convert texts to token ids, truncated at `max_length` and padded on the right.

    The padding is the tokenizer's pad id. An empty text becomes special tokens only.

    Parameters
    ----------
    texts : sequence of str
        A list, a tuple, an array or a column of a data frame.
    tokenizer : tokenizer of transformers or str
        A tokenizer, or its name or folder. "package:NAME/FOLDER" is a folder in an installed package.
    max_length : int
        The largest number of tokens of a text.

    Returns
    -------
    Tensor of int32, shape (texts, tokens of the longest text)
    """
    texts = _check_texts(texts)
    chosen = load_tokenizer(tokenizer)[0] if isinstance(tokenizer, str | Path) else tokenizer
    _check_length(chosen, max_length)
    padded = np.full((len(texts), max_length), chosen.pad_token_id, dtype=np.int32)
    # At least one column, because empty texts have no tokens if there are no special tokens.
    width = 1
    with progress_bar("Tokens", len(texts)) as bar:
        for first in range(0, len(texts), _BLOCK_TEXTS):
            # Tokenizers do not accept half a surrogate pair.
            block = [text.encode(errors="replace").decode() for text in texts[first : first + _BLOCK_TEXTS]]
            ids = chosen(block, truncation=True, max_length=max_length, **_ONLY_IDS)["input_ids"]
            for row, token_ids in enumerate(ids, start=first):
                padded[row, : len(token_ids)] = token_ids
                width = max(width, len(token_ids))
            bar.advance(len(block))
    return torch.from_numpy(padded[:, :width].copy())


def join_texts(table: Mapping[str, Sequence[object]], columns: str | Sequence[str] = ("title", "text")) -> list[str]:
    """Join the text columns of a table into one text per row, skipping empty and missing texts.

    Parameters
    ----------
    table : data frame
        The table.
    columns : str or sequence of str
        The columns to join.

    Examples
    --------
    >>> join_texts({"title": ["Nice", ""], "text": ["It fits.", "Too small."]})
    ['Nice It fits.', 'Too small.']
    """
    names = [columns] if isinstance(columns, str) else columns
    texts_by_column = [[_read_cell(name, row, value) for row, value in enumerate(table[name])] for name in names]
    return [" ".join(part for part in row if part) for row in zip(*texts_by_column, strict=True)]


def _read_cell(column: str, row: int, value: object) -> str:
    """Return the text of a cell, or "" if it is missing (None or NaN); raise an `InputError` if it has another type.

    The error message names the cell by `column` and `row`.
    """
    if value is None or (isinstance(value, float) and isnan(value)):
        return ""
    if not isinstance(value, str):
        raise InputError(f"Column {column} must hold text, got {value!r:.40} at row {row}.")
    return value


def _check_texts(texts: Sequence[str]) -> list[str]:
    """Return texts as a list, or raise an `InputError`.

    A data frame is invalid, because iterating over it yields columns.
    """
    is_column = len(getattr(texts, "shape", ())) == 1
    if isinstance(texts, str | bytes) or not (is_column or isinstance(texts, Sequence)) or not len(texts):
        remedy = 'Use one column, X["text"], or join_texts(X).'
        got = f"{texts!r:.40}" if isinstance(texts, Sequence) else type(texts).__name__
        raise InputError(argument="texts", must="be a list of at least one text", got=got, remedy=remedy)
    checked = list(texts)
    if bad := [row for row, text in enumerate(checked) if not isinstance(text, str)]:
        got = f"{checked[bad[0]]!r:.40}"
        raise InputError(argument="texts", must="be strings", got=got, rows=bad, remedy='Use "" for a missing text.')
    return checked


def _check_length(tokenizer: "PreTrainedTokenizerBase", max_length: int) -> None:
    name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
    if tokenizer.pad_token_id is None:
        remedy = "Set tokenizer.pad_token = tokenizer.eos_token."
        raise ConfigError(argument="tokenizer", must="have a pad token", got=f"none in {name}", remedy=remedy)
    check_integer("max_length", max_length, 1)
    least, most = tokenizer.num_special_tokens_to_add() + 1, tokenizer.model_max_length
    if not least <= max_length <= most:
        must = f"be between {least} and {most} for {name}"
        raise ConfigError(argument="max_length", must=must, got=str(max_length))


# Images ---------------------------------------------------------------------------------------------------------------


def decode_images(files: Sequence[str | Path], size: int = 224) -> Tensor:
    """Decode image files into one tensor of RGB pixels.

    Images are resized bilinearly to squares, without keeping the aspect ratio. Grey, CMYK and palette images become
    RGB, alpha is dropped, and EXIF rotation is ignored. Pixels are not normalised, because that depends on the network.
    If a file cannot be read, the error names it.

    Parameters
    ----------
    files : sequence of path
        The files.
    size : int
        The height and the width in pixels.

    Returns
    -------
    Tensor of uint8, shape (files, 3, size, size)
    """
    check_integer("size", size, 1)
    if isinstance(files, str | Path) or not len(files):
        raise InputError(argument="files", must="be a list of at least one file", got=f"{files!r:.40}")
    import_extra("PIL.Image", "images")
    pixels = torch.empty(len(files), 3, size, size, dtype=torch.uint8)
    # Threads run in parallel, because Pillow releases Python's lock.
    with progress_bar("Images", len(files)) as bar, ThreadPoolExecutor(count_cores()) as pool:
        for number, image in enumerate(pool.map(lambda file: read_image(Path(file), size), files)):
            pixels[number] = image
            bar.advance(1)
    return pixels


def read_image(path: Path, size: int) -> Tensor:
    """Read an image file as a uint8 tensor with shape (3, size, size). Errors name the file."""
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


def auto_augment(images: Tensor, group_size: int = 8) -> Tensor:
    """Augment images at random with AutoAugment's policies for ImageNet (Cubuk et al., 2018).

    kornia implements the policies, on the device of the images and with torch's random generator.

    Parameters
    ----------
    images : Tensor of uint8, shape (N, 3, height, width)
        The result has the same shape and dtype.
    group_size : int
        The number of randomly chosen images that share a policy. The paper's code uses 1: a policy for each image.
    """
    is_tensor = isinstance(images, Tensor)
    if not is_tensor or images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        got = f"{images.dtype} of shape {tuple(images.shape)}" if is_tensor else type(images).__name__
        must = "be a uint8 tensor (N, 3, height, width)"
        raise InputError(argument="images", must=must, got=got, remedy="Use decode_images.")
    change = import_extra("kornia.augmentation.auto", "images").AutoAugment(policy="imagenet")
    changed = torch.empty_like(images)
    for index in torch.randperm(len(images)).split(check_integer("group_size", group_size, 1)):
        index = index.to(images.device)
        # kornia works on floats between 0 and 1.
        group = change(images[index].to(torch.float32) / 255)
        changed[index] = (group * 255).round().clamp(0, 255).to(torch.uint8)
    return changed


# Point clouds ---------------------------------------------------------------------------------------------------------


#: The most points per beam.
MAX_POINTS = 256


def pack(
    clouds: Iterable[ArrayLike],
    geometry: Sequence[int] | NDArray[np.int64] | Tensor,
    *,
    max_points: int = MAX_POINTS,
    seed: int = 1998,
) -> Tensor:
    """Pack point clouds into one tensor with shape (clouds, 2 + max_points, 4), which CountNet3D takes as input.

    Each cloud becomes 2 + max_points vectors with four elements. The first vector has the geometry class, and the
    centre (x, y, z) of the bounding box. The second has 0, and the size of the box. The others are (1, x, y, z) for
    each point, followed by zeros as padding. A cloud may have no points.

    Parameters
    ----------
    clouds : iterable of array-like, each (n, 3)
        The points of each cloud, as arrays, tensors or lists.
    geometry : sequence of int
        The number of the geometry class of each cloud.
    max_points : int
        The largest number of points per cloud. If there are more, a random subset is kept, which depends on the seed
        and on the position of the cloud.
    seed : int
        Seed of the random subsets.

    Examples
    --------
    >>> x = pack([np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 4.0]])], np.array([3]), max_points=3)
    >>> x[0].tolist()
    [[3.0, 1.0, 1.0, 3.0], [0.0, 2.0, 0.0, 2.0], [1.0, 0.0, 1.0, 2.0], [1.0, 2.0, 1.0, 4.0], [0.0, 0.0, 0.0, 0.0]]
    """
    check_integer("max_points", max_points, 1, InputError)
    check_integer("seed", seed, 0, InputError)
    if not isinstance(clouds, Iterable):
        raise InputError(f"clouds must be a list of points (n, 3), got {type(clouds).__name__}.")
    arrays = [as_points(points, f"cloud {i}") for i, points in enumerate(clouds)]
    x = np.zeros((len(arrays), 2 + max_points, 4), dtype=np.float32)
    if arrays:
        x[:, 0, 0] = check_counts(_to_array(geometry), len(arrays), name="geometry")
    for i, points in enumerate(arrays):
        if len(points):
            low, high = points.min(0), points.max(0)
            x[i, 0, 1:], x[i, 1, 1:] = (low + high) / 2, high - low
        if len(points) > max_points:
            rng = np.random.default_rng([seed, i])
            points = points[np.sort(rng.choice(len(points), max_points, replace=False))]
        x[i, 2 : 2 + len(points), 0] = 1.0
        x[i, 2 : 2 + len(points), 1:] = points
    return torch.from_numpy(x)


def as_points(points: ArrayLike, name: str) -> np.ndarray:
    """Convert an array, a list or a tensor to an array of points with shape (n, 3), where n may be 0.

    Other shapes and values that are not finite raise an `InputError`, in which the points are called `name`.
    """
    array = _to_array(points)
    if array.shape == (0,):
        array = array.reshape(0, 3)
    if array.dtype.kind not in "fiu" or array.shape[1:] != (3,):
        got = f"{array.dtype} of shape {array.shape}" if array.dtype.kind != "O" else type(points).__name__
        raise InputError(f"{name} must be points (n, 3), got {got}.")
    with np.errstate(over="ignore"):
        is_finite = np.isfinite(array.astype(np.float32)).all(1)
    if len(bad := np.flatnonzero(~is_finite)):
        raise InputError(f"{name} must hold finite coordinates, got {array[bad[0]].tolist()} at point {bad[0] + 1}.")
    return array


def _to_array(values: ArrayLike) -> np.ndarray:
    """Convert values to an array. If that fails, return an array of one None, which later checks reject."""
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    try:
        return np.asarray(values)
    except ValueError:
        return np.asarray(None)
