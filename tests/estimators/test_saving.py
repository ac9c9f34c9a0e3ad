"""A saved model is the same model, and a damaged one is refused."""

import json
import os
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ddpn import CountRegressor, InputError
from ddpn.estimators import saving

FILES = {"model.json", "weights.safetensors", "features.skops"}


@pytest.fixture
def saved(fitted, tmp_path) -> Path:
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


def rewritten(folder: Path, change) -> None:
    """Alter the manifest, and sign it anew."""
    manifest = json.loads((folder / "model.json").read_text())
    change(manifest)
    manifest["checksum"] = saving._checksum(manifest)
    (folder / "model.json").write_text(json.dumps(manifest))


def test_predictions_are_equal_bit_for_bit(likelihood, quick, counts, exposures, tmp_path):
    X, y = counts
    model = quick(**likelihood).fit(X, y, exposure=exposures)
    model.save(tmp_path / "model")
    loaded = CountRegressor.load(tmp_path / "model")
    for exposure in (exposures, 2.0 * exposures):
        ours, theirs = (m.predict_distribution(X, exposure).components for m in (model, loaded))
        for name in ours.arg_constraints:
            assert (getattr(ours, name) == getattr(theirs, name)).all()
    assert (model.predict_interval(X, 0.9, exposures) == loaded.predict_interval(X, 0.9, exposures)).all()


@pytest.mark.parametrize("options", [{"hidden": ()}, {"numeric": "steps"}, {"gamma": "shared", "activation": "tanh"}])
def test_every_shape_of_network_comes_back(quick, counts, tmp_path, options):
    model = quick(**options).fit(*counts)
    model.save(tmp_path / "deep" / "model")
    loaded = CountRegressor.load(tmp_path / "deep" / "model")
    assert (loaded.predict(counts[0]) == model.predict(counts[0])).all()
    assert loaded.get_params() == model.get_params()


def test_frames_come_back_with_their_names_and_levels(quick, tmp_path):
    X = pd.DataFrame({"ward": ["A", "B", "A", None] * 10, "age": [30.0, np.nan, 50.0, 61.0] * 10})
    model = quick().fit(X, np.arange(40) % 5)
    model.save(tmp_path / "model")
    loaded = CountRegressor.load(tmp_path / "model")
    new = pd.DataFrame({"age": [np.nan, 44.0], "ward": ["unseen", "B"]})
    assert (loaded.predict(new) == model.predict(new)).all()
    assert loaded.feature_names_in_.tolist() == ["ward", "age"]
    with pytest.raises(InputError, match="got no 'ward'"):
        loaded.predict(new[["age"]])


def test_what_was_learned_about_the_training_comes_back(fitted, saved):
    loaded = CountRegressor.load(saved)
    assert loaded.history_.as_dict() == fitted.history_.as_dict()
    assert (loaded.numeric_, loaded.n_rows_, loaded.trials_) == (fitted.numeric_, fitted.n_rows_, fitted.trials_)
    assert loaded.n_features_in_ == 3


def test_options_of_numpy_come_back(quick, counts, tmp_path):
    options = {"hidden": (np.int64(4),), "lr": np.float32(1e-3), "members": np.int64(2), "beta": np.float64(0.5)}
    quick(**options).fit(*counts).save(tmp_path / "model")
    loaded = CountRegressor.load(tmp_path / "model")
    assert loaded.hidden == (4,)
    assert loaded.fit(*counts).model_.members == 2


def test_options_changed_after_fitting_do_not_change_the_model(quick, counts, tmp_path):
    model = quick().fit(*counts)
    wanted = model.predict(counts[0])
    model.set_params(hidden=(64, 64), members=9, activation="tanh", likelihood="poisson").save(tmp_path / "model")
    assert (CountRegressor.load(tmp_path / "model").predict(counts[0]) == wanted).all()


def test_a_loaded_model_can_be_saved_again(saved, tmp_path):
    CountRegressor.load(saved).save(tmp_path / "again")
    for name in FILES - {"features.skops"}:  # an archive holds the time it was made
        assert (tmp_path / "again" / name).read_bytes()[:200] == (saved / name).read_bytes()[:200]


def test_an_unfitted_model_is_not_saved(quick, tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        quick().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# What is in the files -------------------------------------------------------------------------------------------


def test_nothing_in_the_folder_is_a_pickle(saved):
    assert {path.name for path in saved.iterdir()} == FILES
    json.loads((saved / "model.json").read_text())
    weights = (saved / "weights.safetensors").read_bytes()
    length = int.from_bytes(weights[:8], "little")
    assert all(entry["dtype"] == "F32" for entry in json.loads(weights[8 : 8 + length]).values())
    with zipfile.ZipFile(BytesIO((saved / "features.skops").read_bytes())) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            assert name == "schema.json" or content.startswith(b"\x93NUMPY"), name
            assert b"pickle" not in content.lower()


def test_the_manifest_says_what_is_needed(saved, fitted):
    manifest = json.loads((saved / "model.json").read_text())
    assert manifest["options"]["members"] == 3
    assert manifest["head"]["name"] == "double_poisson"
    assert set(manifest["files"]) == FILES - {"model.json"}
    assert manifest["ddpn"]


# Damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["weights.safetensors", "features.skops"])
@pytest.mark.parametrize("damage", ["truncated", "altered", "empty", "longer"])
def test_a_damaged_file_is_refused(saved, name, damage):
    content = bytearray((saved / name).read_bytes())
    content[-40] ^= 1
    original = (saved / name).read_bytes()
    changed = {"truncated": original[:-7], "altered": bytes(content), "empty": b"", "longer": original + b"\0"}[damage]
    (saved / name).write_bytes(changed)
    with pytest.raises(InputError, match=rf"{name} must be as it was saved, got a truncated or altered file\. Save"):
        CountRegressor.load(saved)


def test_a_missing_file_is_told(saved):
    (saved / "weights.safetensors").unlink()
    with pytest.raises(
        InputError, match=r"weights\.safetensors must be there, got no such file\. Save the model again"
    ):
        CountRegressor.load(saved)


def test_an_altered_manifest_is_refused(saved):
    manifest = (saved / "model.json").read_text()
    (saved / "model.json").write_text(manifest.replace('"members": 3', '"members": 2'))
    with pytest.raises(InputError, match=r"model\.json must be as it was saved, got an altered file\. Save the model"):
        CountRegressor.load(saved)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1, 2]"])
def test_a_manifest_that_is_none_is_refused(saved, content):
    (saved / "model.json").write_bytes(content)
    with pytest.raises(
        InputError, match=r"model\.json must be .*, got (a damaged|an altered) file\. Save the model again"
    ):
        CountRegressor.load(saved)


def test_another_format_is_told_with_its_version(saved):
    rewritten(saved, lambda manifest: manifest.update(format=99, ddpn="9.9"))
    with pytest.raises(InputError, match=r"must have format 1, got 99\. Load it with ddpn 9\.9\."):
        CountRegressor.load(saved)


def test_weights_of_another_network_are_refused(saved):
    rewritten(saved, lambda manifest: manifest.update(hidden=[9]))
    with pytest.raises(InputError, match=r"weights\.safetensors must fit the manifest, got .*Save the model again"):
        CountRegressor.load(saved)


def test_a_folder_without_a_model_is_told(tmp_path):
    for path in (tmp_path, tmp_path / "none", Path(__file__)):
        with pytest.raises(InputError, match=r"path must hold a saved model, got .* without model\.json\. Check"):
            CountRegressor.load(path)


# Overwriting ----------------------------------------------------------------------------------------------------


def test_a_model_is_overwritten_on_request_only(quick, counts, saved, fitted):
    other = quick(random_state=7).fit(*counts)
    with pytest.raises(InputError, match=r"path must be free, got .*, which exists\. Pass overwrite=True or another"):
        other.save(saved)
    assert (CountRegressor.load(saved).predict(counts[0]) == fitted.predict(counts[0])).all()
    other.save(saved, overwrite=True)
    assert (CountRegressor.load(saved).predict(counts[0]) == other.predict(counts[0])).all()
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_what_is_no_model_is_never_overwritten(fitted, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"path must hold a saved model to be overwritten, got .*, which is none\."):
        fitted.save(tmp_path / "notes", overwrite=True)
    assert (tmp_path / "notes" / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("step", ["write", "move"])
def test_a_failed_save_leaves_the_old_model(quick, counts, saved, fitted, monkeypatch, step):
    other = quick(random_state=7).fit(*counts)

    def full_disk(*args, **options):
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        if step == "write":
            patched.setattr(Path, "write_bytes", full_disk)
        else:
            rename = os.rename
            patched.setattr(
                os, "rename", lambda a, b: full_disk() if Path(b) == saved and _is_draft(a) else rename(a, b)
            )
        with pytest.raises(OSError, match="No space left"):
            other.save(saved, overwrite=True)
    assert (CountRegressor.load(saved).predict(counts[0]) == fitted.predict(counts[0])).all()
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def _is_draft(path) -> bool:
    return Path(path).name.startswith(".model.") and ".old." not in Path(path).name and Path(path).name != "model"
