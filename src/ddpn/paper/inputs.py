"""Convert your own texts, images and point clouds to tensors.

A beam is one slot of a shelf, seen by a depth camera. `ddpn.networks.backbones.countnet3d` describes packed beams.
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
    """Convert texts to token ids, cut off at `max_length` and padded on the right with the tokenizer's pad id.

    An empty text has only the special tokens.

    Parameters
    ----------
    texts : sequence of str
        A list, a tuple, an array or a column of a data frame.
    tokenizer : tokenizer of transformers or str
        A tokenizer, or its name or folder. "package:NAME/FOLDER" is a folder in an installed package.
    max_length : int
        The most tokens of a text.

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
    """Join the texts of several columns into one text per row; skip empty and missing texts.

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
    texts_by_column = [[_text(name, row, value) for row, value in enumerate(table[name])] for name in names]
    return [" ".join(part for part in row if part) for row in zip(*texts_by_column, strict=True)]


def _text(column: str, row: int, value: object) -> str:
    """Return the text of a cell; "" if it is None or NaN. Messages name the cell by its column and row."""
    if value is None or (isinstance(value, float) and isnan(value)):
        return ""
    if not isinstance(value, str):
        raise InputError(f"Column {column} must hold text, got {value!r:.40} at row {row}.")
    return value


def _check_texts(texts: Sequence[str]) -> list[str]:
    """Return texts as a list; raise an `InputError` for a data frame, whose items are columns."""
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
    """Decode image files into one tensor.

    Pillow decodes them. Grey, CMYK, palette and alpha images become RGB (alpha is dropped), rotation by EXIF is
    ignored, and images are resized to squares bilinearly without keeping the aspect ratio. They are not normalised,
    because that depends on the network. If a file cannot be read, the error names it.

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
    """Read an image; errors name its file. Shape: (3, size, size), uint8."""
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
    """Augment images at random on their device; groups of images share a policy.

    The policies are AutoAugment's for ImageNet (Cubuk et al., 2018), implemented by kornia and drawn from torch's
    generator.

    Parameters
    ----------
    images : Tensor of uint8, shape (N, 3, height, width)
        The result has the same shape and dtype.
    group_size : int
        The number of randomly chosen images that share a policy. The paper's code draws a policy for each image (1).
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
    """Pack point clouds into one tensor. Shape: (B, 2 + max_points, 4).

    A cloud without points has only padding.

    Parameters
    ----------
    clouds : iterable of array-like, each (n, 3)
        The points of each beam: arrays, tensors or lists.
    geometry : sequence of int
        The number of the geometry class of each cloud.
    max_points : int
        The most points per beam. If there are more, a random subset is kept, which depends on the seed and on the
        position of the beam.
    seed : int
        Seed of the subsets.

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
        x[:, 0, 0] = check_counts(_array(geometry), len(arrays), name="geometry")
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
    """Convert an array, a list or a tensor to finite points (n, 3). There may be none."""
    array = _array(points)
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


def _array(values: ArrayLike) -> np.ndarray:
    """Convert values to an array. If that fails, return an array with one object, which later checks refuse."""
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    try:
        return np.asarray(values)
    except ValueError:
        return np.asarray(None)
