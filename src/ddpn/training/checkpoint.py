"""Files that are whole or not there: tensors and their description in one safetensors file, written atomically."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ddpn.errors import InputError


def write_bytes(path: Path, content: bytes) -> None:
    """All of `content` under `path`, or nothing: a full disk leaves the old file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write(path: Path, tensors: dict[str, Tensor], info: dict[str, Any]) -> None:
    """Tensors, and what JSON can say about them."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(path, save(plain, metadata={"info": json.dumps(info)}))


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write` wrote. No code in the file is run; a damaged one is refused."""
    try:
        with safe_open(path, framework="pt") as file:
            info = json.loads((file.metadata() or {})["info"])
            return {name: file.get_tensor(name).clone() for name in file.keys()}, info  # noqa: SIM118
    except FileNotFoundError:
        raise InputError(f"path must name a file, got {path}, which is not there. Check the spelling.") from None
    except (SafetensorError, KeyError, json.JSONDecodeError, OSError) as error:
        raise InputError(
            f"{path} must be a whole file written by ddpn, got a damaged or foreign one ({error}). "
            "Restore it or delete it."
        ) from None


def generator_states(streams: list[torch.Generator]) -> Tensor:
    """Shape: (M, bytes)."""
    return torch.stack([stream.get_state() for stream in streams])
