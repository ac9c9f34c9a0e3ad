"""Test the store of results: nothing is lost, damage is found, and no file can run code."""

import pickle

import pytest

from ddpn.runtime.errors import InputError
from ddpn.storage.results import ResultStore

FILES = {"weights": bytes(range(256)), "empty": b"", "facts.json": b"{}"}


@pytest.fixture
def store(tmp_path):
    store = ResultStore(tmp_path / "results")
    store.write({"seed": 1, "of": [2]}, FILES, "a job")
    return store


def test_files_come_back_as_they_were(store):
    assert store.read({"of": [2], "seed": 1}) == FILES
    assert store.read({"seed": 2}) is None
    assert store.read(None) is None


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:-2] + b"??", lambda b: b"", pickle.dumps])
def test_a_damaged_file_counts_as_missing(store, damage):
    identity = {"seed": 1, "of": [2]}
    for path in (store.path(identity), store.paths(identity)["weights"]):
        content = path.read_bytes()
        path.write_bytes(damage(content))
        assert store.read(identity) is None
        path.write_bytes(content)
        assert store.read(identity) == FILES


def test_a_missing_file_or_a_note_of_other_content_counts_as_missing(store):
    identity = {"seed": 1, "of": [2]}
    note = store.path(identity).read_bytes()
    for content in (b"[]", b"{}", b'{"files": [1]}', b'{"files": {"weights": 3}}', b'{"files": {"weights": "../x"}}'):
        store.path(identity).write_bytes(content)
        assert store.read(identity) is None
    store.path(identity).write_bytes(note)
    store.paths(identity)["empty"].unlink()
    assert store.read(identity) is None


def test_another_version_has_other_results(store, monkeypatch):
    monkeypatch.setattr("ddpn.storage.results.version", lambda name: "99")
    assert store.read({"seed": 1, "of": [2]}) is None


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file, not a folder"):
        ResultStore(tmp_path / "file")
