"""Test the endpoints: what they answer, and that no request of a client ends in an error of the server."""

import json
import sys
import threading
from dataclasses import replace
from importlib import import_module

import numpy as np
import polars as pl
import pytest
from starlette.testclient import TestClient

from ddpn.prediction.spec import PredictionSpec
from ddpn.runtime.errors import ConfigError
from ddpn.serving import Limits, create_app
from ddpn.serving.model import DEFAULT_SPEC
from ddpn.serving.schemas import DEFAULT_OUTPUTS, RequestError
from ddpn.workflow.prediction import predict as predict_table


def get_first_model(app):
    """Return the first model of a server."""
    return next(iter(app.app.models.values()))


def list_json_rows(table: pl.DataFrame) -> list[dict]:
    return json.loads(table.with_columns(pl.col("admitted").dt.to_string()).write_json())


def test_predictions_are_those_of_the_command(client, folder, table):
    some = table.head(120)
    expected = predict_table(folder, some, PredictionSpec(coverage=0.8, quantiles=(0.1, 0.99), pmf=4, ood=0.05))
    more = {"outputs": [*DEFAULT_OUTPUTS], "coverage": 0.8, "quantiles": [0.1, 0.99], "pmf": 4}
    answer = client.post("/predict", json={"rows": list_json_rows(some), **more}).json()
    assert answer["model"] == "patients"
    for name in [*DEFAULT_OUTPUTS, "q0.1", "q0.99"]:
        predictions = np.array([row[name] for row in answer["predictions"]], dtype=float)
        np.testing.assert_allclose(predictions, expected[name].cast(pl.Float64), rtol=1e-9, err_msg=name)
    pmf = np.array([row["pmf"] for row in answer["predictions"]])
    np.testing.assert_allclose(pmf, expected.select(f"p{k}" for k in range(5)).to_numpy(), rtol=1e-7, atol=1e-12)


def test_outputs_are_those_asked_for(predict):
    (row,) = predict(more={"outputs": ["mean", "members", "distribution"]}).json()["predictions"]
    assert list(row) == ["mean", "distribution", "members"]
    assert sum(row["distribution"]["pmf"]) == pytest.approx(1.0, abs=2e-4)
    assert sum(member["weight"] for member in row["members"]) == pytest.approx(1.0)
    assert row["mean"] == pytest.approx(sum(member["weight"] * member["mean"] for member in row["members"]))


def test_unusual_rows_are_flagged_with_reasons(predict):
    names = ["ood", "ood_pvalue", "ood_reasons"]
    (row,) = predict(more={"outputs": names}, severity=40.0, ward="Z").json()["predictions"]
    assert row["ood"]
    assert any("'severity' above the training range" in reason for reason in row["ood_reasons"])
    assert predict(more={"outputs": names}).json()["predictions"][0]["ood_reasons"] == []
    (row,) = predict(more={"outputs": names}, admitted="2031-01-02").json()["predictions"]
    assert row["ood_reasons"] == ["'admitted day' above the training range: 2031-01-02 > 2025-02-03"]


@pytest.mark.parametrize(
    ("column", "cell", "condition"),
    [
        ("severity", "high", "finite number"), ("severity", True, "finite number"), ("severity", [1], "finite number"),
        ("severity", 10**400, "finite number"), ("severity", float("nan"), "finite number"),
        ("smokes", 1, "true or false"), ("smokes", "yes", "true or false"), ("ward", {"a": 1}, "text"),
        ("ward", 10**400, "text"), ("admitted", "yesterday", "date"), ("admitted", "2023-02-30", "date"),
        ("admitted", 1.7e9, "date"), ("admitted", "1700000000", "date"), ("days", -1.0, "above 0"),
        ("days", 0, "above 0"), ("days", None, "above 0"), ("wardd", 1, "'ward'"), ("x" * 999, 1, "unknown"),
    ],
)  # fmt: skip
def test_a_bad_cell_is_named(predict, column, cell, condition):
    response = predict(**{column: cell})
    (problem,) = response.json()["problems"]
    assert response.status_code == 422
    assert (problem["row"], problem["column"]) == (0, column[:60])
    assert condition in problem["message"]
    assert len(problem["message"]) < 250


def test_a_missing_column_is_named_with_its_row(client, row):
    short = {name: value for name, value in row.items() if name != "age"}
    answer = client.post("/predict", json={"rows": [row, short]}).json()
    assert answer["problems"] == [
        {"message": "rows[1] has no column 'age'. Send null if the value is missing.", "row": 1, "column": "age"}
    ]


@pytest.mark.parametrize(
    "cells", [{"age": None}, {"ward": None}, {"ward": 7}, {"severity": -1e308}, {"severity": 1e308}, {"zip": 1234},
              {"ward": "\ud800"}, {"admitted": "0001-01-01"}, {"admitted": "9999-12-31T23:59:59-12:00"},
              {"admitted": None}, {"patient": "p1", "visits": 3}, {"smokes": None}],
)  # fmt: skip
def test_unusual_cells_are_predicted(predict, cells):
    response = predict(**cells)
    assert response.status_code == 200
    assert np.isfinite(list(response.json()["predictions"][0].values())).all()


@pytest.mark.parametrize("days", [1e16, 1.7e308])
def test_a_prediction_that_is_too_large_is_refused(predict, days):
    response = predict(days=days)
    assert response.status_code == 422
    assert response.json()["problems"][0]["row"] == 0


BODIES = {
    b"": "object", b"{": "JSON", b"[]": "object", b"null": "object", b"\xff\xfe": "JSON", b"\x80": "UTF-8",
    b'{"rows": []}': "list of 1", b'{"rows": {}}': "list of 1", b'{"rows": [1]}': "rows[0] must be an object",
    b'{"rows": [{"age": NaN}]}': "'severity'", b"[" * 100_000: "nested", b"{}": "'rows'",
    b'{"rows": [{"age": ' + b"9" * 5000 + b"}]}": "digits", b'{"rows": [{}], "cover": 1}': "'severity'",
    b'{"rows": [{}], "model": 3}': "'severity'",
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:24].decode(errors="replace"))
def test_a_bad_body_is_refused(client, body):
    response = client.post("/predict", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert BODIES[body] in response.json()["message"]


@pytest.mark.parametrize(
    "more",
    [{"coverage": 0}, {"coverage": 1}, {"coverage": "0.9"}, {"coverage": None}, {"coverage": 10**400},
     {"outputs": []}, {"outputs": "mean"}, {"outputs": ["median", "x"]}, {"outputs": [[]]}, {"quantiles": [0]},
     {"quantiles": 0.5}, {"quantiles": [0.5] * 100}, {"pmf": -1}, {"pmf": 1.5}, {"pmf": 10**9}, {"pmf": True}],
)  # fmt: skip
def test_bad_options_are_refused(predict, more):
    response = predict(more=more)
    assert response.status_code == 422
    assert next(iter(more)) in response.json()["message"]


def test_other_types_methods_and_paths_are_refused(client):
    assert client.post("/predict", content="rows=1").status_code in (415, 422)
    assert client.post("/predict", content="x", headers={"content-type": "text/plain"}).status_code == 415
    assert client.get("/predict").status_code == 405
    assert client.get("/nothing").status_code == 404
    assert client.get("/models/other").status_code == 404
    assert client.post("/models/other/predict", json={"rows": [{}]}).status_code == 404


def test_a_server_of_two_models_answers_for_each_by_name(client, predict):
    assert [model["name"] for model in client.get("/models").json()["models"]] == ["patients", "again"]
    assert client.get("/model").json()["name"] == "patients"
    assert client.get("/models/again").json()["name"] == "again"
    assert predict("/models/again/predict").json()["model"] == "again"
    assert predict(more={"model": "again"}).json()["message"] == "The body has an unknown field 'model'. Leave it out."


def test_requests_beyond_the_limits_are_refused(model_path, row):
    with TestClient(
        create_app({"m": model_path}, limits=Limits(max_rows=2, max_bytes=600), reload_every=0.0)
    ) as client:
        response = client.post("/predict", json={"rows": [row] * 3})
        assert (response.status_code, "1 to 2 rows" in response.json()["message"]) == (422, True)
        assert client.post("/predict", json={"rows": [row] * 9}).status_code == 413
        parts = iter([b"{" * 400] * 3)
        assert client.post("/predict", content=parts, headers={"content-type": "application/json"}).status_code == 413


def test_an_answer_that_takes_too_long_is_503(model_path, row):
    app = create_app({"m": model_path}, limits=Limits(timeout=0.2), reload_every=0.0)
    model, go = get_first_model(app), threading.Event()
    answered, model.predict = model.predict, lambda requests: go.wait(5) and answered(requests)
    with TestClient(app) as client:
        response = client.post("/predict", json={"rows": [row]})
        go.set()
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert client.post("/predict", json={"rows": [row]}).status_code == 200


def test_one_bad_request_of_a_batch_does_not_fail_the_others(app, row):
    model = get_first_model(app)
    good, huge = ([model.Row.model_validate({**row, "days": days})] for days in (1.0, 1e300))
    first, second, third = model.predict(
        [(good, DEFAULT_SPEC), (huge, DEFAULT_SPEC), (good, replace(DEFAULT_SPEC, coverage=0.5))]
    )
    assert isinstance(second, RequestError)
    assert first[0]["mean"] == third[0]["mean"]
    assert first[0]["upper"] > third[0]["upper"]


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "ddpn.serving")
    with pytest.raises(ConfigError, match=r"ddpn\[serve\]"):
        import_module("ddpn.serving")


def test_probes_and_metrics_are_answered(client, predict):
    predict(severity=50.0)
    assert client.get("/livez").json() == {"status": "alive"}
    assert client.head("/livez").status_code == client.head("/").status_code == 200
    assert client.head("/predict").status_code == 405
    assert client.get("/readyz").json()["status"] == "ready"
    text = client.get("/metrics").text
    assert 'ddpn_requests_total{method="POST",path="/predict",status="200"}' in text
    assert 'ddpn_ood_rows_total{model="patients"}' in text
    assert "ddpn_model_info" in text


def test_a_token_is_required_where_there_is_one(model_path, row):
    with TestClient(create_app({"m": model_path}, token="s3cret-token", reload_every=0.0)) as client:
        for headers in ({}, {"Authorization": "Bearer wrong-token"}, {"Authorization": "s3cret-token"}):
            response = client.post("/predict", json={"rows": [row]}, headers=headers)
            assert response.status_code == 401
            assert "s3cret" not in response.text
        assert client.get("/metrics").status_code == client.get("/openapi.json").status_code == 401
        assert client.get("/livez").status_code == client.get("/").status_code == 200
        good = {"Authorization": "Bearer s3cret-token"}
        assert client.post("/predict", json={"rows": [row]}, headers=good).status_code == 200
