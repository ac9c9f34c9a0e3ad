"""Test that tensors come back as they were, damaged files are refused, and nothing in a file is run."""

import os
import pickle

import pytest
import torch
from safetensors.torch import save

from ddpn.runtime.errors import InputError
from ddpn.storage import tensor_files

TENSORS = {
    "float": torch.linspace(0, 1, 50).view(5, 10),
    "whole": torch.arange(4),
    "bytes": torch.arange(7, dtype=torch.uint8),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "scalar": torch.tensor(3.0),
    "empty": torch.zeros(0, 3),
    "turned": torch.arange(12.0).view(3, 4).T,
    "part": torch.arange(12.0).view(3, 4)[1:, ::2],
}
INFO = {"epoch": 3, "best": [0.1 + 0.2, float("inf")], "words": "µ = 3"}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "new folder" / "state.safetensors"
    tensor_files.write(path, TENSORS, INFO)
    return path


def test_written_tensors_are_read(file):
    tensors, info = tensor_files.read(file)
    assert info == INFO
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


class AbortOnLoad:
    def __reduce__(self):
        return os.abort, ()


def flip_bit(content: bytes, after: bytes) -> bytes:
    at = content.index(after) + 3
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        *((lambda content, kept=kept: content[:kept], "is damaged") for kept in (0, 4, 100, -1)),
        (lambda content: flip_bit(content, b"[0.30"), "is damaged"),  # in the description
        (lambda content: flip_bit(content, b"\x00\x00\x80?"), "is damaged"),  # in a tensor
        (lambda content: pickle.dumps(AbortOnLoad()), "is damaged"),
        (lambda content: save({"x": torch.zeros(2)}), "was not written by ddpn"),
    ],
)
def test_damaged_and_foreign_files_are_refused_and_not_run(file, damaged, words):
    file.write_bytes(damaged(file.read_bytes()))
    with pytest.raises(InputError, match=rf"state\.safetensors {words}"):
        tensor_files.read(file)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"File not found: .*nowhere"):
        tensor_files.read(tmp_path / "nowhere")


def test_a_fingerprint_tells_tensors_apart():
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    changed = x.clone()
    changed[4, 2] += 1e-6
    assert tensor_files.fingerprint(x) == tensor_files.fingerprint(x.T.contiguous().T)
    assert tensor_files.fingerprint(x) != tensor_files.fingerprint(changed)
    assert tensor_files.fingerprint(x) != tensor_files.fingerprint(x[:4])
