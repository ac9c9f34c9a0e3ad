"""Files that are whole or not there: tensors and their description in one safetensors file, written atomically."""

import json
import os
import zlib
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ddpn.errors import InputError


def write_bytes(path: Path, content: bytes) -> None:
    """All of `content` under `path`, or nothing: a full disk leaves the old file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write(path: Path, tensors: dict[str, Tensor], info: dict[str, Any]) -> None:
    """Tensors, and what JSON can say about them."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    described = json.dumps(info)
    write_bytes(path, save(plain, metadata={"info": described, "checksum": _checksum(described, plain)}))


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write` wrote. No code in the file is run; a damaged one is refused."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if metadata["checksum"] != _checksum(metadata["info"], tensors):
            raise SafetensorError("its checksum does not match")
        return tensors, json.loads(metadata["info"])
    except FileNotFoundError:
        raise InputError(f"path must name a file, got {path}, which is not there. Check the spelling.") from None
    except KeyError:
        raise InputError(f"{path} must be written by ddpn, got a foreign file. Name another one.") from None
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"{path} must be a whole file, got a damaged one ({error}). Restore it or delete it."
        ) from None


def fingerprint(tensor: Tensor, start: int = 0) -> int:
    """A number that another tensor is unlikely to have."""
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    return zlib.crc32(plain.view(torch.uint8).numpy().data if plain.numel() else b"", start)


def is_complete(path: Path) -> bool:
    """Whether a file has the length that its heading says, which costs nothing to see; `read` looks at all of it."""
    try:
        with safe_open(path, framework="pt") as file:
            return bool(file.metadata())
    except (SafetensorError, OSError):
        return False


def _checksum(described: str, tensors: dict[str, Tensor]) -> str:
    total = zlib.crc32(described.encode())
    for name in sorted(tensors):
        total = fingerprint(tensors[name], total)
    return str(total)
