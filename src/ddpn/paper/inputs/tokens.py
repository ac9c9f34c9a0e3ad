"""Token ids of texts, computed once: in blocks, and cached in a file."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from logging import getLogger
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.extras import import_extra, locate
from ddpn.runtime.progress import progress_bar
from ddpn.runtime.validation import check_integer
from ddpn.storage import tensor_files

_LOG = getLogger(__name__)
#: Texts given to the tokenizer at once: it works on them in parallel, and memory holds only their lists of ids.
_BLOCK = 1024
_ONLY_IDS = {"return_attention_mask": False, "return_token_type_ids": False}
Texts = Sequence[str] | NDArray[Any]


def tokenize(
    texts: Texts | Any,
    tokenizer: Any,
    *,
    max_length: int = 128,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Tensor:
    """Turn texts into token ids, cut at `max_length` and padded on the right with the tokenizer's pad id.

    An empty text has only the special tokens; the number of empty texts is logged by this module at level INFO.

    Parameters
    ----------
    texts : sequence of str
        A list, a tuple, an array or a column of a data frame.
    tokenizer : tokenizer of transformers or str
        Or the name or folder of one; "package:NAME/FOLDER" is a folder in an installed package.
    max_length : int
        Tokens of a text at most.
    cache : path, optional
        A folder in which the ids are kept, in a file whose name is the SHA-256 of the texts, the tokenizer and
        `max_length`. A damaged cache file is written again.
    progress : bool
        Show progress.

    Returns
    -------
    Tensor of int32, shape (texts, tokens of the longest text)
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

    Parameters
    ----------
    table : data frame
        The table.
    columns : str or sequence of str
        Columns to join.
    sep : str
        What goes between two texts.

    Examples
    --------
    >>> join_texts({"title": ["Nice", ""], "text": ["It fits.", "Too small."]})
    ['Nice It fits.', 'Too small.']
    """
    names = [columns] if isinstance(columns, str) else columns
    found = [[_text(name, row, value) for row, value in enumerate(table[name])] for name in names]
    return [sep.join(part for part in row if part) for row in zip(*found, strict=True)]


def _text(column: str, row: int, value: Any) -> str:
    """The text of a cell, "" if a data frame has None or NaN there."""
    if value is None or (isinstance(value, float) and isnan(value)):
        return ""
    if not isinstance(value, str):
        raise InputError(f"Column {column} must hold text, got {value!r:.40} at row {row}.")
    return value


def _check_texts(texts: Any) -> Texts:
    """Texts as a sequence with a length; a data frame, whose items are columns, is an error."""
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
    transformers, folder = import_extra("transformers", "text"), locate(tokenizer, "tokenizer")
    try:
        return transformers.AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"tokenizer must be a name on the hub or a folder with its files, got {str(tokenizer)!r} ({reason})."
        ) from error


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
    padded = np.full((len(texts), max_length), tokenizer.pad_token_id, dtype=np.int32)
    # At least one column: without special tokens, texts that are all empty have no token.
    width, empty = 1, 0
    with progress_bar("Tokens", len(texts), progress) as bar:
        for first in range(0, len(texts), _BLOCK):
            block = _strings(texts[first : first + _BLOCK], first)
            empty += sum(not text.strip() for text in block)
            ids = tokenizer(block, truncation=True, max_length=max_length, **_ONLY_IDS)["input_ids"]
            if len(ids) != len(block):
                raise ConfigError(
                    f"tokenizer must return a list of ids per text, got {len(ids)} for {len(block)} texts."
                )
            for row, known in enumerate(ids, start=first):
                padded[row, : len(known)] = known
                width = max(width, len(known))
            bar.advance(len(block))
    return torch.from_numpy(padded[:, :width].copy()), empty


def _strings(block: Texts, first: int) -> list[str]:
    for i, text in enumerate(block):
        if not isinstance(text, str):
            raise InputError(f'texts must be strings, got {text!r:.40} at row {first + i}. Use "" for a missing text.')
    # Tokenizers do not accept half a surrogate pair.
    return [text.encode(errors="replace").decode() for text in block]


# Cache ---------------------------------------------------------------------------------------------------------------


def _cached(folder: Path, texts: Texts, tokenizer: Any, max_length: int, progress: bool) -> tuple[Tensor, int]:
    """The ids from their cache file, or computed and written there."""
    key = _key(texts, tokenizer, max_length)
    path = folder / f"tokens-{key}.safetensors"
    # A missing, damaged or foreign file is written again.
    with suppress(InputError, KeyError):
        tensors, info = tensor_files.read(path)
        if info["key"] == key:
            return tensors["tokens"], info["empty"]
    ids, empty = _compute(texts, tokenizer, max_length, progress)
    try:
        tensor_files.write(path, {"tokens": ids}, {"key": key, "empty": empty})
    except OSError as error:
        raise InputError(f"cache must be a folder that can be written to, got {folder} ({error}).") from error
    return ids, empty


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
