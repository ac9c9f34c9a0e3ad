"""Test new versions of a model folder while requests are answered, and names of models."""

import shutil
import time

import pytest
from starlette.testclient import TestClient

from ddpn.runtime.errors import ConfigError
from ddpn.serving import create_app
from ddpn.serving.server import name_models


@pytest.fixture
def model_copy(model_path, tmp_path):
    """A copy of the model folder, to be replaced."""
    shutil.copytree(model_path, tmp_path / "m.model")
    return tmp_path / "m.model"


def wait_for_version(client, before: str, seconds: float = 10.0) -> str:
    """Return the version once it has changed; every request until then must succeed."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        response = client.post("/predict", json={"rows": [client.row]})
        assert response.status_code == 200
        if response.json()["version"] != before:
            return response.json()["version"]
    return before


def test_a_new_version_is_loaded_without_a_failed_request(model_copy, folder, row):
    with TestClient(create_app({"m": model_copy}, reload_every=0.05)) as client:
        client.row = row
        first = client.post("/predict", json={"rows": [row]}).json()
        changed = folder.__class__(folder.model, {**folder.task, "date": "later"})
        changed.save(model_copy, overwrite=True)
        assert wait_for_version(client, first["version"]) != first["version"]
        assert client.get("/model").json()["fitted"] == "later"
        assert client.post("/predict", json={"rows": [row]}).json()["predictions"] == first["predictions"]
        assert 'ddpn_reloads_total{model="m",result="loaded"} 1.0' in client.get("/metrics").text


def test_a_damaged_version_leaves_the_old_one_in_place(model_copy, row, rewrite):
    with TestClient(create_app({"m": model_copy}, reload_every=0.05)) as client:
        before = client.get("/readyz").json()["models"]["m"]
        (model_copy / "task.json").write_bytes(b"{}")
        manifest = model_copy / "model.json"
        manifest.write_text(manifest.read_text() + " ")
        until = time.monotonic() + 10
        while 'result="failed"' not in client.get("/metrics").text and time.monotonic() < until:
            time.sleep(0.02)
        assert 'ddpn_reloads_total{model="m",result="failed"} 1.0' in client.get("/metrics").text
        assert client.post("/predict", json={"rows": [row]}).json()["version"] == before


def test_models_are_named_by_folder_or_as_asked():
    assert list(name_models(["a/x.model", "y=b/x.model"])) == ["x", "y"]
    with pytest.raises(ConfigError, match="Two models are called 'x'"):
        name_models(["a/x.model", "b/x"])
    with pytest.raises(ConfigError, match="letters, digits"):
        name_models(["a b=c"])
