"""Test that a model folder is written whole or not at all, and that a damaged one is refused."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ddpn import DDPNRegressor
from ddpn.members.constant import Constant
from ddpn.prediction.spec import PredictionSpec
from ddpn.runtime.errors import InputError
from ddpn.serving.model import ServedModel
from ddpn.storage.model_files import write_model
from ddpn.workflow.model_folder import TASK, SavedModel, load
from ddpn.workflow.prediction import predict
from ddpn.workflow.streaming import predict_files


@pytest.fixture
def model_path(patients_fit, tmp_path) -> Path:
    patients_fit.folder.save(tmp_path / "model")
    return tmp_path / "model"


def cast_to_text(table: pl.DataFrame) -> pd.DataFrame:
    """Return the table as pandas reads a file whose cells all stay text."""
    return table.with_columns(pl.all().cast(pl.String)).with_columns(pl.col("age").fill_null("NA")).to_pandas()


FRAMES = {
    "polars": lambda table: table,
    "pandas": lambda table: table.to_pandas(),
    "pandas with dates as objects": lambda table: table.to_pandas(date_as_object=True),
    "text": cast_to_text,
    "without the target": lambda table: table.drop("visits", "patient"),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_model_of_the_command_line_takes_the_columns_of_the_file_in_python(patients_fit, model_path, table, kind):
    expected = predict(patients_fit.folder, table, PredictionSpec(ood=0.05))
    model, X, days = DDPNRegressor.load(model_path), FRAMES[kind](table), table["days"].to_numpy()
    np.testing.assert_allclose(model.predict(X, days), expected["mean"], rtol=1e-12)
    assert (model.predict_interval(X, 0.9, days)[:, 1] == expected["upper"].to_numpy()).all()
    np.testing.assert_allclose(model.ood_pvalue(X), expected["ood_pvalue"])
    assert model.crps(X, table["visits"].to_numpy(), exposure=days) > 0.0
    with pytest.raises(InputError, match="admitted"):
        model.predict(X[[name for name in X.columns if name != "admitted"]], days)


def test_reasons_of_a_loaded_model_name_dates(model_path, table):
    later = table.head(1).with_columns(admitted=pl.date(2031, 1, 2))
    ((reason,),) = DDPNRegressor.load(model_path).ood_reasons(later)
    assert "2031-01-02" in reason


def test_a_loaded_model_that_is_fitted_again_takes_its_new_columns(model_path):
    again = DDPNRegressor.load(model_path).fit(pl.DataFrame({"severity": [0.0, 1.0] * 20}), [1, 2, 2, 1] * 10)
    assert again.predict(pl.DataFrame({"severity": [0.5]})).shape == (1,)


def test_a_saved_folder_predicts_as_the_fit_did(patients_fit, patients, tmp_path):
    patients_fit.folder.save(tmp_path / "deep" / "model")
    again = load(tmp_path / "deep" / "model")
    X, exposure = patients.test.X, patients.test.exposure
    assert (again.model.predict(X, exposure) == patients_fit.folder.model.predict(X, exposure)).all()
    old, new = patients_fit.folder.model.predictor_, again.model.predictor_
    assert (new.weights, new.seconds) == (old.weights, old.seconds)
    for name in old.members:
        mean = old.distribution(X, exposure, member=name).mean
        assert (new.distribution(X, exposure, member=name).mean == mean).all(), name
        assert new.calibration.interval_level(0.9, member=name) == old.calibration.interval_level(0.9, member=name)
    assert (new.calibration.ood_pvalue(X) == old.calibration.ood_pvalue(X)).all()
    assert again.task == patients_fit.folder.task
    assert (again.seen.hashes == patients_fit.folder.seen.hashes).all()
    assert len(again.seen.hashes) == 240
    assert again.roles == patients.roles
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["model"]
    names = (tmp_path / "deep").rglob("*.*")
    assert {path.suffix for path in names} == {".json", ".safetensors"}, "no pickles"


def test_for_predictions_the_mixed_members_are_enough(patients_fit, patients, model_path):
    again = load(model_path, mixed_only=True)
    mixed = patients_fit.folder.model.predictor_.active_members
    assert list(again.model.predictor_.members) == list(mixed)
    assert not {"constant", "poisson_glm"} & set(mixed)
    X, exposure = patients.test.X, patients.test.exposure
    assert (again.model.predict(X, exposure) == patients_fit.folder.model.predict(X, exposure)).all()


def test_a_description_needs_no_model(model_path, patients_fit):
    description = SavedModel(model_path).describe()
    assert (description["ddpn"], description["task"]) == (
        patients_fit.folder.task["versions"]["ddpn"],
        patients_fit.folder.task,
    )
    networks = description["members"]["networks"]["facts"]
    assert (networks["likelihood"], networks["networks"], networks["hidden"]) == ("poisson", 2, [8])
    assert description["members"]["constant"]["weight"] == 0.0


# What is no model folder ---------------------------------------------------------------------------------------------


def test_a_task_that_cannot_be_read_is_refused(model_path, patients_fit, rewrite):
    rewrite(model_path, {TASK: json.dumps(patients_fit.folder.task).encode()[:-1]})
    for function in (lambda path: SavedModel(path).task, lambda path: SavedModel(path).describe(), load):
        with pytest.raises(InputError, match="is not a model that ddpn saved, or it was changed"):
            function(model_path)


def test_a_predictor_alone_is_no_model_folder(tmp_path, patients):
    manifest = {"members": {"constant": Constant.fit(patients.train, None, 0).get_facts()}}
    write_model(tmp_path / "other", {}, manifest)
    with pytest.raises(InputError, match="contains a Predictor, without column names"):
        _ = SavedModel(tmp_path / "other").task


@pytest.mark.parametrize("use", ["predict", "serve", "load"])
def test_every_file_of_a_model_is_read_once(model_path, table, tmp_path, monkeypatch, use):
    real, reads = Path.read_bytes, Counter()

    def count(path: Path) -> bytes:
        reads[str(path.relative_to(model_path)) if path.is_relative_to(model_path) else "other"] += 1
        return real(path)

    table.head(5).write_csv(tmp_path / "new.csv")
    monkeypatch.setattr(Path, "read_bytes", count)
    if use == "predict":
        predict_files(model_path, tmp_path / "new.csv", tmp_path / "out.csv")
    elif use == "serve":
        ServedModel("patients", model_path)
    else:
        load(model_path)
    del reads["other"]
    assert reads["model.json"] == reads["task.json"] == 1
    assert set(reads.values()) == {1}
