"""A model folder is whole or not there."""

import errno
import os
from pathlib import Path

import pytest
from ddpn.workflow.boosting import BoostedTrees

from ddpn import CountRegressor
from ddpn.errors import InputError
from ddpn.workflow.model_folder import CHECKPOINT, TASK, check_place, load, save, task_of


def files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}


def test_what_is_saved_is_loaded(fitted, prepared, tmp_path):
    save(fitted.folder, tmp_path / "deep" / "model")
    again = load(tmp_path / "deep" / "model")
    X, exposure = prepared.test.X, prepared.test.exposure
    assert (again.model.predict(X, exposure) == fitted.folder.model.predict(X, exposure)).all()
    for name, baseline in fitted.folder.baselines.items():
        assert (again.baselines[name].law(X, exposure).mean == baseline.law(X, exposure).mean).all()
    assert again.task == fitted.folder.task
    assert again.roles == prepared.roles
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["model"]


def test_it_is_a_saved_regressor_too(fitted, prepared, tmp_path):
    save(fitted.folder, tmp_path / "model")
    model = CountRegressor.load(tmp_path / "model")
    assert model.predict(prepared.test.X, prepared.test.exposure).shape == (len(prepared.test),)


def test_others_may_read_it(fitted, tmp_path):
    (tmp_path / "usual").mkdir()
    save(fitted.folder, tmp_path / "model")
    folders = [tmp_path / "model", *(path for path in (tmp_path / "model").rglob("*") if path.is_dir())]
    assert {path.stat().st_mode for path in folders} == {(tmp_path / "usual").stat().st_mode}


def test_a_model_that_is_there_is_replaced_on_request_only(fitted, tmp_path):
    save(fitted.folder, tmp_path / "model", checkpoint=None)
    (tmp_path / "model" / "mark").touch()
    with pytest.raises(InputError, match=r"output must be free, got .*model, which exists. Add --overwrite or name"):
        save(fitted.folder, tmp_path / "model")
    save(fitted.folder, tmp_path / "model", overwrite=True)
    assert not (tmp_path / "model" / "mark").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_other_folders_and_files_are_never_replaced(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "note").write_text("x")
    for name in ("photos", "note"):
        with pytest.raises(InputError, match="output must hold a model to be overwritten"):
            check_place(tmp_path / name, overwrite=True)
    with pytest.raises(InputError, match=r"output must lie in a folder, got .*note, which is a file"):
        check_place(tmp_path / "note" / "deep" / "model", overwrite=False)


def test_a_full_disk_leaves_nothing_behind_and_the_old_model_alone(fitted, tmp_path, monkeypatch):
    save(fitted.folder, tmp_path / "model")
    before = files(tmp_path)

    def full(self, folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(BoostedTrees, "save", full)
    with pytest.raises(OSError, match="No space left"):
        save(fitted.folder, tmp_path / "model", overwrite=True)
    with pytest.raises(OSError, match="No space left"):
        save(fitted.folder, tmp_path / "other")
    assert files(tmp_path) == before


def test_a_move_that_fails_brings_the_old_model_back(fitted, tmp_path, monkeypatch):
    save(fitted.folder, tmp_path / "model")
    rename, calls = os.rename, []

    def second_fails(source, target):
        calls.append(target)
        if Path(target) == tmp_path / "model" and Path(source).name == "model":
            raise OSError(errno.EIO, "broken")
        rename(source, target)

    monkeypatch.setattr(os, "rename", second_fails)
    with pytest.raises(OSError, match="broken"):
        save(fitted.folder, tmp_path / "model", overwrite=True)
    assert load(tmp_path / "model").task == fitted.folder.task


def test_a_checkpoint_is_kept_with_it(fitted, tmp_path):
    (tmp_path / "state").write_bytes(b"state")
    save(fitted.folder, tmp_path / "model", checkpoint=tmp_path / "state")
    assert (tmp_path / "model" / CHECKPOINT).read_bytes() == b"state"


def test_what_is_no_model_folder(fitted, tmp_path):
    with pytest.raises(InputError, match=r"MODEL must be a folder, got .*none, which is not there"):
        load(tmp_path / "none")
    with pytest.raises(InputError, match=r"MODEL must be a folder that `ddpn fit` wrote, got .* without task\.json"):
        load(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="that `ddpn fit` wrote"):
        task_of(tmp_path / "file")
    save(fitted.folder, tmp_path / "model")
    (tmp_path / "model" / TASK).write_text("{")
    with pytest.raises(InputError, match=r"task\.json must be as it was saved, got a damaged file"):
        load(tmp_path / "model")
