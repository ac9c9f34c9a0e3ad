"""From texts to numbers of tokens, once: in blocks, and kept in a file for the next time."""

import json
import os
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from itertools import chain
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ddpn.datasets.checks import whole
from ddpn.datasets.progress import bar
from ddpn.errors import ConfigError, InputError

_LOG = getLogger(__name__)
#: Texts given to the tokenizer at once: it works on them in parallel, and their lists of ints are all that is held.
_BLOCK = 1024
#: A tokenizer inside an installed package: "package:NAME/FOLDER".
_PACKAGE = "package:"


def tokenised(
    texts: Sequence[str] | NDArray[Any] | Any,
    tokenizer: Any,
    *,
    max_length: int = 128,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Tensor:
    """Numbers of the tokens of each text, cut at `max_length` and padded behind with the tokenizer's pad id.

    `texts` is a list, a tuple, an array or a column of a frame. `tokenizer` is one of transformers, or the name or
    folder of one; "package:NAME/FOLDER" is a folder in an installed package. An empty text gives the special tokens
    alone and stays a row; how many there are is told to the log of this module at level INFO.
    `cache` is a folder: there the numbers are kept in a file whose name is the sha256 of the texts, the tokenizer and
    `max_length`. A file that is damaged, or of another content than its name says, is made anew.
    Shape: (texts, the longest text's tokens, max_length at the most), int32.
    """
    texts, made = _listed(texts), _made(tokenizer)
    max_length = _checked_length(made, max_length)
    if cache is None:
        found, empty = _numbers(texts, made, max_length, progress)
    else:
        found, empty = _kept(Path(cache), texts, made, max_length, progress)
    if empty:
        _LOG.info("%d of %d texts are empty: they hold special tokens alone", empty, len(texts))
    return found


def _listed(texts: Any) -> Sequence[str] | NDArray[Any]:
    """Texts that can be counted and cut; a frame, whose items are its columns, is none."""
    if len(getattr(texts, "shape", ())) == 1:
        texts = np.asarray(texts, dtype=object)
    elif isinstance(texts, bytes) or not isinstance(texts, Sequence):
        raise InputError(
            f"texts must be a list of texts, got {type(texts).__name__}. "
            f'Use a list, one column such as X["text"], or joined(X).'
        )
    if isinstance(texts, str) or len(texts) == 0:
        raise InputError(f"texts must be a list of one text or more, got {texts!r:.40}. Put them in a list.")
    return texts


def _made(tokenizer: Any) -> Any:
    if not isinstance(tokenizer, str | os.PathLike):
        return tokenizer
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise ConfigError(
            'transformers must be installed to load a tokenizer by name, got none. Run: pip install "ddpn[text]"'
        ) from None
    where = _located(tokenizer)
    try:
        return AutoTokenizer.from_pretrained(where)
    except (OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"tokenizer must be a name on the hub or a folder with its files, got {str(tokenizer)!r} ({why}). "
            f"Look for the folder, or load the tokenizer yourself."
        ) from error


def _located(tokenizer: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """A hub name or a folder as it is; the folder of "package:NAME/FOLDER", which backbones know too."""
    if not isinstance(tokenizer, str) or not tokenizer.startswith(_PACKAGE):
        return tokenizer
    package, _, folder = tokenizer.removeprefix(_PACKAGE).partition("/")
    try:
        return str(files(package) / folder)
    except (ModuleNotFoundError, ValueError):
        install = f"Run: pip install {package.replace('_', '-') or 'NAME'}"
        raise ConfigError(f'tokenizer must name an installed package, got "{tokenizer}". {install}') from None


def _checked_length(tokenizer: Any, max_length: Any) -> int:
    """The length as an int, where it and the tokenizer can be used."""
    name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
    if not callable(tokenizer) or not hasattr(tokenizer, "pad_token_id"):
        raise ConfigError(f"tokenizer must be one of transformers, its name or its folder, got {name}. Wrap it.")
    if tokenizer.pad_token_id is None:
        raise ConfigError(
            f"tokenizer must have a pad token, got none in {name}. Set one: tokenizer.pad_token = tokenizer.eos_token."
        )
    max_length = whole("max_length", max_length, 1, "Use 128, say.", ConfigError)
    least, most = tokenizer.num_special_tokens_to_add() + 1, tokenizer.model_max_length
    if not least <= max_length <= most:
        raise ConfigError(
            f"max_length must lie between {least} and the {most} that {name} can take, got {max_length}. "
            f"Choose one in between."
        )
    return max_length


def _numbers(
    texts: Sequence[str] | NDArray[Any], tokenizer: Any, max_length: int, progress: bool
) -> tuple[Tensor, int]:
    """The padded numbers, and how many texts are empty."""
    blocks: list[tuple[NDArray[np.int32], NDArray[np.int64]]] = []
    empty = 0
    with bar("Tokens", len(texts), progress) as move:
        for first in range(0, len(texts), _BLOCK):
            block = _texts(texts[first : first + _BLOCK], first)
            empty += sum(not text.strip() for text in block)
            blocks.append(_encoded(block, tokenizer, max_length))
            move(len(block))
    # At least one column: a tokenizer without special tokens may find none in texts that are all empty.
    width = max(1, *(int(lengths.max()) for _, lengths in blocks))
    out = np.full((len(texts), width), tokenizer.pad_token_id, dtype=np.int32)
    row = len(texts)
    while blocks:
        # From the last block back, each let go as soon as it is in: the numbers are never held twice.
        flat, lengths = blocks.pop()
        row -= len(lengths)
        out[row : row + len(lengths)][np.arange(width) < lengths[:, None]] = flat
    return torch.from_numpy(out), empty


def _texts(block: Sequence[str] | NDArray[Any], first: int) -> list[str]:
    for i, text in enumerate(block):
        if not isinstance(text, str):
            raise InputError(f'texts must be str, got {text!r:.40} in row {first + i}. Use "" where there is none.')
    # Half a surrogate pair is no text that a tokenizer takes.
    return [text.encode(errors="replace").decode() for text in block]


def _encoded(block: list[str], tokenizer: Any, max_length: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """All numbers of a block one behind the other, and how many each text has."""
    rows = tokenizer(
        block, truncation=True, max_length=max_length, return_attention_mask=False, return_token_type_ids=False
    )["input_ids"]
    if len(rows) != len(block):
        raise ConfigError(
            f"tokenizer must give one list of numbers a text, got {len(rows)} of {len(block)} texts. "
            f"Use one of transformers."
        )
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    return np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum())), lengths


def _kept(
    folder: Path, texts: Sequence[str] | NDArray[Any], tokenizer: Any, max_length: int, progress: bool
) -> tuple[Tensor, int]:
    """The numbers from the file that is there, or made and written."""
    key = _key(texts, tokenizer, max_length)
    path = folder / f"tokens-{key}.safetensors"
    if (there := _stored(path, key, len(texts))) is not None:
        return there
    found, empty = _numbers(texts, tokenizer, max_length, progress)
    _write(path, found, {"key": key, "empty": str(empty), "sha256": _digest(found)})
    return found, empty


def _write(path: Path, tokens: Tensor, about: dict[str, str]) -> None:
    """Whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            save_file({"tokens": tokens}, part, metadata=about)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"cache must be a folder that can be written, got {path.parent} ({error}). Name another."
        ) from error


def _stored(path: Path, key: str, rows: int) -> tuple[Tensor, int] | None:
    """What the file holds, if it is whole and of these texts."""
    try:
        with safe_open(path, "pt") as file:
            about, tokens = file.metadata() or {}, file.get_tensor("tokens")
        whole = about["key"] == key and tokens.shape[0] == rows and about["sha256"] == _digest(tokens)
        return (tokens, int(about["empty"])) if whole else None
    except (OSError, SafetensorError, KeyError, IndexError, ValueError):
        return None


def _digest(tokens: Tensor) -> str:
    return sha256(tokens.numpy().ravel().data).hexdigest()


def _key(texts: Sequence[str] | NDArray[Any], tokenizer: Any, max_length: int) -> str:
    digest = sha256(json.dumps([_identity(tokenizer), max_length]).encode())
    for row, text in enumerate(texts):
        # The length before each text: no two lists of texts are one stream of bytes.
        data = _texts([text], row)[0].encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _identity(tokenizer: Any) -> list[Any]:
    """All that the numbers depend on: name, class, words, and how text is cut into them."""
    rules: dict[str, Any] = {}
    if hasattr(tokenizer, "backend_tokenizer"):
        rules = json.loads(tokenizer.backend_tokenizer.to_str())
        # How the last call cut and padded: no part of what the tokenizer is.
        rules = {name: rule for name, rule in rules.items() if name not in ("truncation", "padding")}
    words = sha256(json.dumps([sorted(tokenizer.get_vocab().items()), rules], sort_keys=True).encode()).hexdigest()
    sides = [getattr(tokenizer, "truncation_side", "right"), tokenizer.pad_token_id]
    return [str(tokenizer.name_or_path), type(tokenizer).__name__, words, *sides]
