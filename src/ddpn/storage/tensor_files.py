"""Write and read files of named tensors, in the safetensors format with a checksum and a description in JSON."""

import json
import zlib
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ddpn.runtime.errors import InputError
from ddpn.storage.contents import JsonObject
from ddpn.storage.files import write_bytes


def write(path: Path, tensors: dict[str, Tensor], info: JsonObject) -> None:
    """Write named tensors to a file, completely or not at all.

    `info` is a description of the tensors, which JSON can hold.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    description = json.dumps(info)
    write_bytes(path, save(plain, metadata={"info": description, "checksum": _checksum(description, plain)}))


def read(path: Path) -> tuple[dict[str, Tensor], JsonObject]:
    """Read the tensors and the description that `write` wrote.

    A damaged file raises an `InputError`. No code from the file is executed.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if metadata["checksum"] != _checksum(metadata["info"], tensors):
            raise SafetensorError("its checksum does not match")
        return tensors, json.loads(metadata["info"])
    except FileNotFoundError:
        raise InputError(f"File not found: {path}") from None
    except KeyError:
        raise InputError(f"{path} was not written by ddpn.") from None
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is damaged ({error}). Restore or delete it.") from None


def fingerprint(tensor: Tensor, start: int = 0) -> int:
    """Return a CRC-32 checksum of a tensor's values.

    To compute one checksum of several tensors, pass the checksum of the preceding tensors as `start`.
    """
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    return zlib.crc32(plain.view(torch.uint8).numpy().data if plain.numel() else b"", start)


def is_complete(path: Path) -> bool:
    """Return True if a file is as long as its header says. This is fast, because the content is not verified."""
    try:
        with safe_open(path, framework="pt") as file:
            return bool(file.metadata())
    except (SafetensorError, OSError):
        return False


def _checksum(description: str, tensors: dict[str, Tensor]) -> str:
    """Return the checksum of the description and of all tensors, in the order of their names."""
    total = zlib.crc32(description.encode())
    for name in sorted(tensors):
        total = fingerprint(tensors[name], total)
    return str(total)
