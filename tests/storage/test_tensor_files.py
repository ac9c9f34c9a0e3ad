"""A file is written whole or not at all, and nothing in it is run."""

import errno
import os
import pickle
import stat

import pytest
import torch
from safetensors.torch import save_file

from ddpn.runtime.errors import InputError
from ddpn.storage import tensor_files

TENSORS = {
    "float": torch.linspace(0, 1, 50).view(5, 10),
    "whole": torch.arange(4),
    "bytes": torch.arange(7, dtype=torch.uint8),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "scalar": torch.tensor(3.0),
    "empty": torch.zeros(0, 3),
}
INFO = {"epoch": 3, "best": [0.1 + 0.2, float("inf")], "words": "µ = 3"}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "new folder" / "state.safetensors"
    tensor_files.write(path, TENSORS, INFO)
    return path


def test_what_is_written_is_read(file):
    tensors, info = tensor_files.read(file)
    assert info == INFO
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_views_are_written_as_they_look(tmp_path):
    whole = torch.arange(12.0).view(3, 4)
    tensor_files.write(tmp_path / "file", {"turned": whole.T, "part": whole[1:, ::2]}, {})
    tensors, _ = tensor_files.read(tmp_path / "file")
    assert torch.equal(tensors["turned"], whole.T)
    assert torch.equal(tensors["part"], whole[1:, ::2])


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_a_truncated_file_is_refused(file, kept):
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(InputError, match=r"state\.safetensors is damaged \("):
        tensor_files.read(file)


@pytest.mark.parametrize("where", [b"[0.30", b"\x00\x00\x80?"], ids=["its description", "a tensor"])
def test_an_altered_file_is_refused(file, where):
    content = file.read_bytes()
    at = content.index(where)
    file.write_bytes(content[: at + 3] + bytes([content[at + 3] ^ 1]) + content[at + 4 :])
    with pytest.raises(InputError, match="is damaged"):
        tensor_files.read(file)


def test_a_foreign_file_is_refused(tmp_path):
    save_file({"x": torch.zeros(2)}, tmp_path / "theirs")
    with pytest.raises(InputError, match="was not written by ddpn"):
        tensor_files.read(tmp_path / "theirs")


class Bomb:
    def __reduce__(self):
        return os.abort, ()


def test_a_pickle_is_refused_and_not_run(tmp_path):
    (tmp_path / "bomb").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError, match="is damaged"):
        tensor_files.read(tmp_path / "bomb")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"File not found: .*nowhere"):
        tensor_files.read(tmp_path / "nowhere")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_no_litter(file, monkeypatch, step):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(OSError, match="No space left"):
            tensor_files.write(file, {"float": torch.zeros(3)}, {})
    assert tensor_files.read(file)[1] == INFO
    assert os.listdir(file.parent) == [file.name]


def test_an_interrupted_write_leaves_the_old_file(file, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tensor_files.write(file, {"float": torch.zeros(3)}, {})
    assert tensor_files.read(file)[1] == INFO
    assert os.listdir(file.parent) == [file.name]


def test_others_may_read_it_where_the_umask_allows(tmp_path):
    old = os.umask(0o027)
    try:
        tensor_files.write(tmp_path / "file", {}, {})
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_fingerprint_tells_tensors_apart():
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    changed = x.clone()
    changed[4, 2] += 1e-6
    assert tensor_files.fingerprint(x) == tensor_files.fingerprint(x.T.contiguous().T)
    assert tensor_files.fingerprint(x) != tensor_files.fingerprint(changed)
    assert tensor_files.fingerprint(x) != tensor_files.fingerprint(x[:4])


def test_a_tensor_of_nothing_has_a_fingerprint():
    assert tensor_files.fingerprint(torch.zeros(0, 3), 7) == 7
