"""Token ids of texts, in blocks."""

from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddpn.networks.backbones.pretrained import tokenizer_of
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.progress import progress_bar
from ddpn.runtime.validation import check_integer

#: Texts given to the tokenizer at once: it works on them in parallel, and memory holds only their lists of ids.
_BLOCK = 1024
_ONLY_IDS = {"return_attention_mask": False, "return_token_type_ids": False}


def tokenize(texts: Any, tokenizer: Any, *, max_length: int = 128, progress: bool = False) -> Tensor:
    """Turn texts into token ids, cut at `max_length` and padded on the right with the tokenizer's pad id.

    An empty text has only the special tokens.

    Parameters
    ----------
    texts : sequence of str
        A list, a tuple, an array or a column of a data frame.
    tokenizer : tokenizer of transformers or str
        Or the name or folder of one; "package:NAME/FOLDER" is a folder in an installed package.
    max_length : int
        Tokens of a text at most.
    progress : bool
        Show progress.

    Returns
    -------
    Tensor of int32, shape (texts, tokens of the longest text)
    """
    texts = _check_texts(texts)
    tokenizer = tokenizer if hasattr(tokenizer, "pad_token_id") else tokenizer_of(tokenizer)[0]
    _check_length(tokenizer, max_length)
    padded = np.full((len(texts), max_length), tokenizer.pad_token_id, dtype=np.int32)
    # At least one column: without special tokens, texts that are all empty have no token.
    width = 1
    with progress_bar("Tokens", len(texts), progress) as bar:
        for first in range(0, len(texts), _BLOCK):
            # Tokenizers do not accept half a surrogate pair.
            block = [text.encode(errors="replace").decode() for text in texts[first : first + _BLOCK]]
            ids = tokenizer(block, truncation=True, max_length=max_length, **_ONLY_IDS)["input_ids"]
            for row, known in enumerate(ids, start=first):
                padded[row, : len(known)] = known
                width = max(width, len(known))
            bar.advance(len(block))
    return torch.from_numpy(padded[:, :width].copy())


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


def _check_texts(texts: Any) -> list[str]:
    """Texts as a list; a data frame, whose items are columns, is an error."""
    is_column = len(getattr(texts, "shape", ())) == 1
    if isinstance(texts, str | bytes) or not (is_column or isinstance(texts, Sequence)) or not len(texts):
        remedy = 'Use one column, X["text"], or join_texts(X).'
        got = f"{texts!r:.40}" if isinstance(texts, Sequence) else type(texts).__name__
        raise InputError(argument="texts", must="be a list of at least one text", got=got, remedy=remedy)
    found = list(texts)
    if bad := [row for row, text in enumerate(found) if not isinstance(text, str)]:
        got = f"{found[bad[0]]!r:.40}"
        raise InputError(argument="texts", must="be strings", got=got, rows=bad, remedy='Use "" for a missing text.')
    return found


def _check_length(tokenizer: Any, max_length: int) -> None:
    name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
    if tokenizer.pad_token_id is None:
        remedy = "Set tokenizer.pad_token = tokenizer.eos_token."
        raise ConfigError(argument="tokenizer", must="have a pad token", got=f"none in {name}", remedy=remedy)
    check_integer("max_length", max_length, 1)
    least, most = tokenizer.num_special_tokens_to_add() + 1, tokenizer.model_max_length
    if not least <= max_length <= most:
        must = f"be between {least} and {most} for {name}"
        raise ConfigError(argument="max_length", must=must, got=str(max_length))
