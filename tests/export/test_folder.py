"""Test ddpn export and ddpn show on a model of ddpn fit: cells as users write them, what the file tells, and errors."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import polars as pl
import pytest
from typer.testing import CliRunner

from ddpn.cli import app
from ddpn.export import describe_onnx, export_onnx
from ddpn.prediction.spec import PredictionSpec
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.workflow.model_folder import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx-node"
QUICK = 'n_networks = 2\nhidden = [8]\nepochs = 2\ndevice = "cpu"\ncompare_with = ["constant"]\nmix_with = []\n'
ROWS = 260


def run_command(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """Columns of every kind, written as people write them."""
    folder, rng = tmp_path_factory.mktemp("export"), np.random.default_rng(3)
    hours = rng.integers(0, 24 * 700, ROWS)
    when = np.datetime_as_string(np.datetime64("2023-11-20", "m") + hours.astype("timedelta64[h]"))
    severity = rng.normal(size=ROWS).round(3)
    ward = rng.choice(["A", "B", "C north", "NA"], ROWS, p=[0.4, 0.3, 0.2, 0.1])
    frame = pl.DataFrame(
        {
            "visits": rng.poisson(np.exp(0.5 + 0.6 * severity + (ward == "A"))),
            "severity": np.where(rng.random(ROWS) < 0.1, -999.0, severity),
            "ward": ward,
            "smoker": rng.choice(["true", "false"], ROWS),
            "code": rng.integers(1, 5, ROWS),
            "when": when,
            "days": rng.uniform(0.5, 2.0, ROWS).round(2),
        }
    )
    frame.write_csv(folder / "visits.csv")
    (folder / "quick.toml").write_text(QUICK)
    options = ["--target", "visits", "--exposure", "days", "--category", "code", "--missing=-999"]
    result = run_command(
        "fit", str(folder / "visits.csv"), "--config", str(folder / "quick.toml"), *options, "-o", str(folder / "model")
    )
    assert result.exit_code == 0, result.output
    return folder / "model"


@pytest.fixture(scope="module")
def onnx_path(model) -> Path:
    out = model.parent / "model.onnx"
    printed = run_command("export", str(model), "-o", str(out), "--quantiles", "0.1,0.9", "--pmf-up-to", "25")
    assert printed.exit_code == 0, printed.output
    assert "Input when" in printed.stdout
    return out


#: Cells as a table has them, and as the file takes them.
CELLS = {
    "severity": [("0.5", 0.5), ("-999", -999.0), ("", np.nan), ("1e300", 1e300), ("-2", -2.0), ("inf", np.inf)],
    "ward": [("A", "A"), (" B ", " B "), ("C north", " C north"), ("NA", "NA"), ("unseen", "unseen"), ("", "")],
    "smoker": [("true", 1.0), ("no", 0.0), ("", np.nan), ("T", 1.0), ("maybe", 7.0), ("false", 0.0)],
    "code": [("1", "1"), ("2.0", "2.0"), ("03", "03"), ("9", "9"), ("n/a", "n/a"), (" 4", " 4")],
    "when": [
        ("2024-02-29 23:59", "2024-02-29T23:59"),
        ("2024-12-31 00:00", "2024-12-31"),
        ("1969-12-31 12:30", "1969-12-31T12:30"),
        ("2000-03-01 06:15", "2000-03-01T06:15"),
        ("", "NaT"),
        ("2100-02-28 01:01", "2100-02-28T01:01"),
    ],
    "days": [(str(x), x) for x in (0.5, 1.0, 30.0, 0.01, 2.0, 1.5)],
}


def list_cells(column: str) -> np.ndarray:
    values = [cell for _, cell in CELLS[column]]
    if column == "when":
        times = np.array(values, dtype="datetime64[s]")
        return np.where(np.isnat(times), np.nan, times.astype(np.int64).astype(np.float64))
    return np.array(values, dtype=object if isinstance(values[0], str) else np.float64)


def test_cells_are_read_as_by_ddpn_predict(model, onnx_path, run_file):
    folder = load(model, mixed_only=True)
    frame = pl.DataFrame({name: [cell for cell, _ in pairs] for name, pairs in CELLS.items()})
    X = folder.roles.parse(frame, report=lambda sentence: None).to_polars()
    spec = PredictionSpec(quantiles=(0.1, 0.9), pmf=25)
    exact = folder.model.predictor_.predict(X, folder.roles.read_exposure(frame)).to_columns(spec)
    out = run_file(onnx_path, {name: list_cells(name) for name in CELLS})
    for name in ("mean", "aleatoric"):
        np.testing.assert_allclose(out[name], exact[name], rtol=1e-5)
    for name in ("median", "lower", "upper", "q0.1", "q0.9"):
        np.testing.assert_array_equal(out[name], exact[name])
    pmf = np.stack([exact[f"p{count}"] for count in range(26)], axis=1)
    np.testing.assert_allclose(out["pmf"], pmf, atol=1e-5)


def test_the_file_tells_what_it_takes_and_how_it_was_fitted(model, onnx_path):
    about = describe_onnx(onnx_path)
    kinds = {column["name"]: (column["type"], column["kind"]) for column in about["inputs"]}
    assert kinds["ward"] == kinds["code"] == ("string", "category")
    assert kinds["when"] == ("float64", "date")
    assert kinds["days"] == ("float64", "exposure")
    assert about["target"] == "visits"
    assert about["pmf_up_to"] == 25
    assert about["fit"]["split"]["rows"]["test"] == 52
    shown = run_command("show", str(onnx_path)).stdout
    assert "Member networks" in shown
    assert json.loads(run_command("show", str(onnx_path), "--json").stdout) == {"file": str(onnx_path), **about}


def test_the_graph_is_valid_onnx(onnx_path):
    onnx.checker.check_model(str(onnx_path), full_check=True)


def test_default_of_the_probabilities_follows_the_counts(model, tmp_path):
    about = export_onnx(model, tmp_path / "model.onnx")
    assert 20 <= about["pmf_up_to"] < 100


def test_an_object_that_is_no_model_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="model must be the folder of a saved model"):
        export_onnx(3, tmp_path / "model.onnx")
    with pytest.raises(InputError, match="Folder not found"):
        export_onnx(tmp_path / "nothing", tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (lambda whole: whole[: len(whole) // 2], "is not an ONNX file"),
        (lambda whole: b"age,ward\n1,2\n", "is not an ONNX file"),
        (lambda whole: _drop_metadata(whole), "is an ONNX model, but ddpn did not export it"),
    ],
    ids=["half", "text", "another model"],
)
def test_other_files_are_refused(onnx_path, tmp_path, content, sentence):
    path = tmp_path / "other.onnx"
    path.write_bytes(content(onnx_path.read_bytes()))
    result = run_command("show", str(path))
    assert (result.exit_code, sentence in result.output) == (1, True), result.output


def _drop_metadata(whole: bytes) -> bytes:
    model = onnx.load_model_from_string(whole)
    del model.metadata_props[:]
    return model.SerializeToString()


def test_a_failed_write_leaves_the_old_file(model, tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_text("old")

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ddpn.storage.files.os.replace", fail)
    with pytest.raises(OSError, match="No space left"):
        export_onnx(model, path, overwrite=True)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("model.onnx", "old")]


def test_javascript_predicts_the_same(onnx_path, tmp_path, run_file):
    modules = Path(os.environ.get("DDPN_NODE_MODULES", EXAMPLE / "node_modules"))
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    if not (modules / "onnxruntime-node").is_dir():
        pytest.skip("onnxruntime-node is not installed: run npm install in examples/onnx-node")
    (tmp_path / "node_modules").symlink_to(modules.resolve())
    shutil.copy(EXAMPLE / "predict.mjs", tmp_path)
    rows = [
        {"severity": 0.5, "ward": "A", "smoker": True, "code": 2, "when": "2024-02-29T23:59", "days": 1.5},
        {"severity": None, "ward": "unseen", "smoker": False, "when": "2024-12-31 00:00:00", "days": 0.5},
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    command = ["node", "predict.mjs", str(onnx_path), "rows.json"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60).stdout
    predictions = [json.loads(line) for line in printed.splitlines()]
    feeds = {
        "severity": np.array([0.5, np.nan]),
        "ward": np.array(["A", "unseen"], dtype=object),
        "smoker": np.array([1.0, 0.0]),
        "code": np.array(["2", ""], dtype=object),
        "when": np.array(["2024-02-29T23:59", "2024-12-31"], dtype="datetime64[s]").astype(np.float64),
        "days": np.array([1.5, 0.5]),
    }
    out = run_file(onnx_path, feeds)
    for name, values in out.items():
        np.testing.assert_allclose([row[name] for row in predictions], values, rtol=1e-9, atol=1e-12, err_msg=name)
