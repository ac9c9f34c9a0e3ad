"""Model folders, ONNX files, tables and requests of strangers: read, or refused in one sentence."""

import os

import pytest

from ddpn.runtime.errors import InputError
from ddpn.storage.model_files import read_manifest


@pytest.fixture
def watch(tmp_path, monkeypatch):
    """Watches cases in this process: writes outside the folder, processes and pickles."""
    from benchmarks.prove.sandbox import Watch

    monkeypatch.setattr(Watch, "limit", lambda self: None)
    return Watch(tmp_path)


def test_known_attacks_are_refused(place, watch):
    from benchmarks.prove.fuzz_models import attacks, known_attacks

    attacks(watch, str(place.model))
    assert watch.wrong == []
    assert watch.ends == {"refused": len(known_attacks())}


def test_damaged_folders_are_refused_or_read(place, watch):
    from benchmarks.prove.fuzz_models import folders

    folders(watch, str(place.model), cases=25, number=1)
    assert watch.wrong == []
    assert watch.ends["refused"] >= 10


def test_damaged_tables_and_requests_are_refused_or_read(place, watch):
    from benchmarks.prove.fuzz_readers import requests, table_files

    table_files(watch, cases=40, number=1)
    requests(watch, str(place.model), cases=25, number=1)
    assert watch.wrong == []
    assert min(watch.ends["refused"], watch.ends["accepted"]) >= 10


def test_damaged_onnx_files_are_refused_or_read(place, watch, tmp_path):
    import onnx
    from benchmarks.prove.fuzz_readers import onnx_files

    from ddpn.export.description import ENTRY

    about = '{"format": 1, "ddpn": "0.2", "inputs": [{"name": "[/a]", "type": "float64", "meaning": "a number"}], '
    about += '"outputs": {"mean": "mean"}, "coverage": 0.9, "pmf_up_to": 20, "target": "y", "members": {}, "fit": {}}'
    model = onnx.ModelProto()
    onnx.helper.set_model_props(model, {ENTRY: about})
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    onnx_files(watch, str(tmp_path / "m.onnx"), cases=40, number=1)
    assert watch.wrong == []
    assert min(watch.ends["refused"], watch.ends["accepted"]) >= 5


def test_the_watch_notices(watch, tmp_path):
    """Each of these would be a fault of the package."""
    watch.case("write outside", lambda: os.close(os.open("/tmp", os.O_TMPFILE | os.O_RDWR)))
    watch.case("process", lambda: os.system("true"))
    watch.case("another error", lambda: {}["x"])
    watch.case("write inside", lambda: (tmp_path / "x").write_text(""))
    assert [words.partition(":")[0] for words in watch.wrong] == ["write outside", "process", "another error"]


def test_a_manifest_may_not_lead_out_of_its_folder(place, tmp_path):
    import shutil

    from benchmarks.prove.fuzz_models import known_attacks

    shutil.copytree(place.model, tmp_path / "m")
    known_attacks()["path upwards"](tmp_path / "m")
    with pytest.raises(InputError, match=r"model\.json must list files of its folder"):
        read_manifest(tmp_path / "m")
