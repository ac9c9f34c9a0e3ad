"""Test columns with roles: upper bounds per row that are features, groups of intervals, dates in another order."""

import numpy as np
import polars as pl
import pytest
from starlette.testclient import TestClient

from ddpn.prediction.spec import PredictionSpec
from ddpn.serving import create_app
from ddpn.workflow.config import FitConfig
from ddpn.workflow.fitting import fit
from ddpn.workflow.prediction import predict
from ddpn.workflow.preparing import prepare


@pytest.fixture(scope="module")
def wards() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    beds, days, hours = rng.integers(3, 30, 400), rng.integers(1, 28, 400), rng.integers(0, 24, 400)
    text = {"when": [f"{day:02d}.03.2023 {hour:02d}:30" for day, hour in zip(days, hours, strict=True)]}
    numbers = {"x": rng.normal(size=400), "code": rng.choice(["1", "2.0", "x"], 400), "beds": beds}
    return pl.DataFrame({**numbers, "ward": rng.choice(["A", "B"], 400), **text, "taken": rng.binomial(beds, 0.4)})


@pytest.fixture(scope="module")
def wards_folder(wards):
    """The folder of a model of beds that are taken, with intervals that are calibrated by ward."""
    model = {"n_networks": 1, "hidden": (8,), "numeric": "standard", "epochs": 3, "device": "cpu", "mix_with": ("glm",)}
    model["likelihood"] = "poisson"
    plan = FitConfig(target="taken", upper_column="beds", interval_groups="ward", compare_with=("constant",), **model)
    return fit(prepare(wards, plan), {"data": "wards.csv", "command": "ddpn fit"}).folder


@pytest.fixture(scope="module")
def server(wards_folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("roles") / "wards.model"
    wards_folder.save(path)
    with TestClient(create_app({"wards": path}, reload_every=0.0)) as client:
        yield client


def format_iso(text: str) -> str:
    day, month, year_and_clock = text.split(".")
    year, clock = year_and_clock.split(" ")
    return f"{year}-{month}-{day}T{clock}"


def test_predictions_are_those_of_the_command(server, wards_folder, wards):
    some = wards.head(60)
    expected = predict(wards_folder, some, PredictionSpec())
    rows = [{**row, "when": format_iso(row["when"])} for row in some.to_dicts()]
    predictions = server.post("/predict", json={"rows": rows}).json()["predictions"]
    for name in ("mean", "median", "lower", "upper", "ood_pvalue"):
        np.testing.assert_allclose([row[name] for row in predictions], expected[name], rtol=1e-9, err_msg=name)
    assert all(row["upper"] <= beds for row, beds in zip(predictions, some["beds"].to_list(), strict=True))


def test_the_example_of_the_model_is_predicted(server):
    example = server.get("/model").json()["example"]
    (prediction,) = server.post("/predict", json={"rows": [example]}).json()["predictions"]
    assert prediction["upper"] <= example["beds"]


def test_a_bound_is_shown_with_the_range_and_the_median_of_the_training_rows(server, wards):
    (column,) = [candidate for candidate in server.get("/model").json()["columns"] if candidate["kind"] == "upper"]
    low, high = column["range"]
    assert wards["beds"].min() <= low < column["typical"] < high <= wards["beds"].max()
    assert abs(column["typical"] - wards["beds"].median()) <= 0.1 * (high - low)


def test_the_example_has_a_typical_exposure(model_path, table):
    with TestClient(create_app({"visits": model_path}, reload_every=0.0)) as client:
        about = client.get("/models/visits").json()
    days = table["days"]
    assert days.quantile(0.4) < about["example"]["days"] < days.quantile(0.6)
    (column,) = [candidate for candidate in about["columns"] if candidate["name"] == "days"]
    assert days.min() <= column["range"][0] < column["range"][1] <= days.max()


def test_the_example_of_a_model_without_exposures_starts_from_1(wards_folder, tmp_path):
    wards_folder.save(tmp_path / "wards.model")
    with TestClient(create_app({"wards": tmp_path / "wards.model"}, reload_every=0.0, exposure="weeks")) as client:
        about = client.get("/models/wards").json()
    (column,) = [candidate for candidate in about["columns"] if candidate["name"] == "weeks"]
    assert column == {"name": "weeks", "kind": "exposure", "typical": 1.0}
    assert about["example"]["weeks"] == 1.0


@pytest.mark.parametrize(("beds", "words"), [(-1, "at least 0"), (2.5, "an integer"), (None, "an integer")])
def test_a_bad_bound_is_named(server, beds, words):
    example = server.get("/model").json()["example"]
    response = server.post("/predict", json={"rows": [{**example, "beds": beds}]})
    assert response.status_code == 422
    assert words in response.json()["message"]


@pytest.mark.parametrize("drop", [(), ("urgent",)], ids=["a feature too", "a group only"])
def test_groups_that_are_booleans_are_those_of_the_command(tmp_path, drop):
    rng = np.random.default_rng(2)
    urgent, x = rng.random(240) < 0.5, rng.normal(size=240)
    table = pl.DataFrame({"x": x, "urgent": urgent, "calls": rng.poisson(np.where(urgent, rng.gamma(1, 9, 240), 9))})
    plan = FitConfig(target="calls", interval_groups="urgent", drop=drop, only="glm", compare_with=("constant",))
    folder = fit(prepare(table, plan), {"data": "calls.csv", "command": "ddpn fit"}).folder
    folder.save(tmp_path / "calls.model")
    expected = predict(folder, table.head(40), PredictionSpec())
    with TestClient(create_app({"calls": tmp_path / "calls.model"}, reload_every=0.0)) as client:
        predictions = client.post("/predict", json={"rows": table.head(40).drop("calls").to_dicts()}).json()[
            "predictions"
        ]
        if not drop:
            wrong = client.post("/predict", json={"rows": [{"x": 1.0, "urgent": "abc"}]})
            assert (wrong.status_code, "urgent" in wrong.json()["message"]) == (422, True)
    assert [row["upper"] for row in predictions] == expected["upper"].to_list()
