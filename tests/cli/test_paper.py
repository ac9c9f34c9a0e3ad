"""Test ddpn reproduce and ddpn data."""

import json
import re

import pytest
import requests

from ddpn.paper.experiments import catalogue

TINY = {
    "title": "A test",
    "paper": "nowhere",
    "simulation": {"name": "poisson"},
    "methods": ["poisson", "gaussian", "poisson_glm"],
    "minutes": 1.5,
    "training": {
        "epochs": 10, "batch_size": 400, "lr": 1e-2, "weight_decay": 0.0, "hidden": [4], "n_networks": 2
    },
}  # fmt: skip


@pytest.fixture
def tiny_catalogue(monkeypatch):
    """A catalogue of one small experiment."""
    real = catalogue.read_toml
    monkeypatch.setattr(catalogue, "read_toml", lambda name: TINY if name == "tiny" else real(name))
    monkeypatch.setattr(catalogue, "list_names", lambda: ["tiny"])
    monkeypatch.setattr("ddpn.paper.experiments.rows.TEST_ROWS", 100)


def reproduce_on_cpu(ddpn, *arguments):
    return ddpn("reproduce", *arguments, "--device", "cpu", "--jobs", "1")


def test_an_experiment_is_run_once_and_repeated_when_changed_or_damaged(tiny_catalogue, run_ddpn, tmp_path):
    first = reproduce_on_cpu(run_ddpn, "tiny")
    assert first.exit_code == 0, first.output
    for name in TINY["methods"]:
        line = rf"^tiny: {name} is done in \d+ s, MAE \d+\.\d{{3}}, CRPS \d+\.\d{{3}}$"
        assert re.search(line, first.output, re.MULTILINE)
    folder = tmp_path / "results" / "tiny"
    assert (folder / "table_paper.md").read_text() in first.output
    assert {path.suffix for path in folder.glob("table_*")} == {".md"}
    second = reproduce_on_cpu(run_ddpn, "tiny")
    assert "nothing to run, all 3 runs are done" in second.output
    assert "A test (by one rule for all methods)" in second.output
    (tmp_path / "results" / "tiny" / "poisson_glm" / "run.json").write_text("{")
    again = reproduce_on_cpu(run_ddpn, "tiny", "--networks", "1", "--only", "poisson, poisson_glm")
    assert "poisson was done, but its settings or rows have changed; it is run again." in again.output
    assert "poisson_glm was done, but its files are damaged; it is run again." in again.output
    assert "tiny gaussian" not in again.output
    assert "1 of 3 runs are not finished and not shown." in again.output
    config = json.loads((tmp_path / "results" / "tiny" / "poisson" / "config.json").read_text())
    assert config["settings"]["n_networks"] == 1


def test_quick_and_seed_reach_the_runs(tiny_catalogue, run_ddpn, tmp_path):
    result = reproduce_on_cpu(run_ddpn, "tiny", "--quick", "--seed", "3", "--out", "here", "--only", "poisson")
    assert result.exit_code == 0, result.output
    config = json.loads((tmp_path / "here" / "tiny-quick" / "poisson" / "config.json").read_text())
    assert (config["settings"]["epochs"], config["settings"]["seed"]) == (1, 3)


def test_missing_data_is_reported_with_code_1(run_ddpn, monkeypatch, tmp_path):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    refused = lambda *arguments, **options: (_ for _ in ()).throw(requests.ConnectionError())
    monkeypatch.setattr("ddpn.paper.datasets.sources._download", refused)
    result = reproduce_on_cpu(run_ddpn, "bikes")
    assert result.exit_code == 1
    assert "bikes: Cannot download https://" in result.output
    assert "Traceback" not in result.output


def test_the_list_has_every_experiment_with_what_it_needs(run_ddpn):
    result = run_ddpn("reproduce", "--list")
    assert result.exit_code == 0
    for name in catalogue.list_names():
        assert name in result.output
    assert "data set length_of_stay" in result.output
    assert "simulated (wave)" in result.output


def test_data_sets_are_listed_with_their_state(run_ddpn, tmp_path, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    (tmp_path / "bike_sharing").mkdir()
    (tmp_path / "bike_sharing" / "hour.csv").write_text("instant\n1\n")
    result = run_ddpn("data", "list")
    assert result.exit_code == 0
    rows = {line.split("│")[1].strip(): line for line in result.output.splitlines() if line.startswith("│")}
    assert re.search(r"20,190 .*public domain.* available", rows["rand_health"])
    assert re.search(r" - .*https://raw.*MIT.* missing", rows["length_of_stay"])
    assert re.search(r" - .*https://archive.*CC BY 4.0.* damaged: ", rows["bike_sharing"])
    assert re.search(r" - .*https://datarepo.* missing", rows["reviews"])
    assert re.search(r" - .*http://images.* missing", rows["coco_people"])


def test_data_are_counted_or_refused_with_a_reason(run_ddpn, tmp_path, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    note = "rows are person-years: the years of one person may fall into different parts of the split"
    assert run_ddpn("data", "get", "rand_health").output == f"rand_health: 20,190 rows, inside statsmodels ({note})\n"
    unknown = run_ddpn("data", "get", "bike_share")
    assert unknown.exit_code == 2
    assert "got 'bike_share'. Did you mean 'bike_sharing'?" in unknown.stderr
    missing = run_ddpn("data", "get", "reviews")
    assert missing.exit_code == 1
    assert missing.stderr.startswith(f"Error: File not found: {tmp_path / 'reviews'}")
    assert missing.stderr.count("\n") == 1
