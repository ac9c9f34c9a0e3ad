"""Test that a saved model has a manifest with hashes, and that files which do not match it are refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from ddpn.runtime.errors import InputError
from ddpn.storage.model_files import FORMAT, check_destination, read_files, read_manifest, write_model

FILES = {"weights.bin": b"\0" * 100, "glm/arrays.bin": b"12345"}


@pytest.fixture
def model_path(tmp_path) -> Path:
    write_model(tmp_path / "model", FILES, {"rows": 3})
    return tmp_path / "model"


def test_a_model_is_read_as_it_was_written(model_path):
    manifest = read_manifest(model_path)
    assert (manifest["format"], manifest["rows"]) == (FORMAT, 3)
    assert set(manifest["files"]) == set(FILES)
    assert manifest["ddpn"]
    assert read_files(model_path, manifest) == FILES


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("weights.bin", b"", "weights.bin was truncated or changed"),
        ("glm/arrays.bin", b"12345\0", "arrays.bin was truncated or changed"),
        ("weights.bin", None, "File not found: .*weights.bin. It is part of the saved model"),
        ("model.json", b"", "model.json is damaged: it is not JSON"),
        ("model.json", b"\xff\xfe", "model.json is damaged"),
        ("model.json", b"[1, 2]", "model.json was changed or damaged"),
        ("model.json", b"{}", "model.json was changed or damaged"),
    ],
)
def test_a_damaged_file_is_refused(model_path, name, content, words):
    (model_path / name).unlink()
    if content is not None:
        (model_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_files(model_path, read_manifest(model_path))


def test_another_format_is_reported_with_its_version(model_path, rewrite):
    rewrite(model_path, format=1, ddpn="0.1")
    with pytest.raises(InputError, match=r"saved in format 1 by ddpn 0\.1; this version reads"):
        read_manifest(model_path)


@pytest.mark.parametrize(
    ("path", "words"), [("", "Not a saved model"), ("none", "Folder not found"), ("file", "Not a saved model")]
)
def test_a_folder_without_a_model_is_reported(tmp_path, path, words):
    (tmp_path / "file").write_text("text")
    with pytest.raises(InputError, match=words):
        read_manifest(tmp_path / path)


def test_a_model_is_overwritten_on_request_only(model_path):
    with pytest.raises(InputError, match="already exists"):
        write_model(model_path, {}, {})
    assert read_manifest(model_path)["rows"] == 3
    write_model(model_path, {}, {"rows": 9}, overwrite=True)
    assert read_manifest(model_path)["rows"] == 9
    assert [path.name for path in model_path.iterdir()] == ["model.json"]
    assert [path.name for path in model_path.parent.iterdir()] == ["model"]


def test_other_folders_are_never_overwritten(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is not a saved model, so it is not overwritten"):
        write_model(tmp_path / "notes", FILES, {}, overwrite=True)
    assert (tmp_path / "notes" / "thesis.tex").read_text() == "years of work"
    with pytest.raises(InputError, match=r"thesis.tex is a file, not a folder"):
        check_destination(tmp_path / "notes" / "thesis.tex" / "model", overwrite=False)


def test_every_changed_byte_is_found(model_path):
    """Flip one bit of a byte of any file: the model is refused in one sentence."""
    rng = np.random.default_rng(0)
    for file in [path for path in model_path.rglob("*") if path.is_file()]:
        content = file.read_bytes()
        for position in range(0, len(content), 3 if file.name == "model.json" else 9):
            damaged = bytearray(content)
            damaged[position] ^= 1 << int(rng.integers(8))
            file.write_bytes(damaged)
            with pytest.raises(InputError, match=f"{file.name} (is damaged|was truncated|was changed)") as error:
                read_files(model_path, read_manifest(model_path))
            assert "\n" not in str(error.value)
        file.write_bytes(content)
    assert read_files(model_path, read_manifest(model_path)) == FILES


def test_a_model_under_a_hidden_name_is_found_again(model_path):
    scratch = model_path.parent / ".model.12345678.draft"
    scratch.mkdir()
    shutil.copytree(model_path, scratch / "new")
    model_path.rename(scratch / "old")
    assert read_manifest(model_path)["rows"] == 3
    assert [path.name for path in model_path.parent.iterdir()] == ["model"]


def test_a_folder_of_ddpn_fit_is_not_overwritten_by_a_model_without_its_task(tmp_path):
    write_model(tmp_path / "model", {**FILES, "task.json": b"{}"}, {"rows": 3})
    with pytest.raises(InputError, match=r"was written by `ddpn fit`, and its task\.json would be lost"):
        write_model(tmp_path / "model", FILES, {"rows": 9}, overwrite=True)
    assert read_manifest(tmp_path / "model")["rows"] == 3
    write_model(tmp_path / "model", {"task.json": b"{}"}, {"rows": 9}, overwrite=True)
    assert read_manifest(tmp_path / "model")["rows"] == 9
