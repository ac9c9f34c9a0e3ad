"""The flavour for MLflow, with MLflow's own tools."""

import numpy as np
import pandas as pd
import pytest

mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")

from ddpn.export import mlflow as flavour  # noqa: E402
from ddpn.runtime.errors import ConfigError, InputError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def model(wards, quick):
    X, y = wards
    return quick(epochs=2).fit(X.assign(kind=X["kind"].astype(str)), y)


@pytest.fixture
def frame(wards) -> pd.DataFrame:
    X, _ = wards
    return X.assign(kind=X["kind"].astype(str))[:6]


@pytest.fixture(autouse=True)
def store(tmp_path):
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")


def test_a_logged_model_predicts_with_its_signature(model, frame, tmp_path):
    flavour.save_model(model, tmp_path / "saved", input_example=frame)
    served = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    names = {each.name: str(each.type) for each in served.metadata.signature.inputs}
    assert names == {"ward": "DataType.string", "kind": "DataType.string", "age": "DataType.double",
                     "urgent": "DataType.boolean"}  # fmt: skip
    found = served.predict(frame)
    np.testing.assert_allclose(found["mean"], model.predict(frame), rtol=1e-12)
    without = served.predict(frame.drop(columns="age"))
    np.testing.assert_allclose(without["mean"], model.predict(frame.assign(age=np.nan)), rtol=1e-12)
    narrow = served.predict(frame, params={"coverage": 0.5})
    wide = (found["upper"] - found["lower"]).sum()
    assert (narrow["upper"] - narrow["lower"]).sum() < wide
    with pytest.raises(mlflow.exceptions.MlflowException, match="urgent"):
        served.predict(frame.assign(urgent="perhaps"))


def test_a_logged_model_is_loaded_as_it_was(model, frame):
    with mlflow.start_run():
        logged = flavour.log_model(model, "visits")
    again = flavour.load_model(logged.model_uri)
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))


def test_other_models_are_refused_in_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="model must be a folder or a fitted estimator of ddpn, got int"):
        flavour.save_model(3, tmp_path / "saved")
    with pytest.raises(InputError, match="Folder not found"):
        flavour.save_model(tmp_path / "nothing", tmp_path / "saved")
