"""Test predictions of long tables: in parts, from several files, resumed after a kill, and with clear errors."""

import json
import os
import pickle
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from ddpn.prediction.spec import PredictionSpec
from ddpn.predictor import Predictor
from ddpn.runtime.errors import InputError
from ddpn.storage.results import ResultStore
from ddpn.tables import blocks as table_blocks
from ddpn.tables.blocks import Block
from ddpn.tables.table import Table
from ddpn.workflow.prediction import predict
from ddpn.workflow.streaming import predict_files


@pytest.fixture(scope="module")
def model_path(patients_fit, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "visits.model"
    patients_fit.folder.save(path)
    return path


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    """Blocks of about 40 rows, and all text as if it were long."""
    monkeypatch.setattr(table_blocks, "BLOCK_ROWS", 40)
    monkeypatch.setattr(table_blocks, "MAX_WHOLE_FILE_BYTES", 0)
    monkeypatch.setattr(table_blocks, "_MIN_BLOCK_BYTES", 1)


@pytest.fixture
def csv_path(table, tmp_path) -> Path:
    """A CSV file of five blocks."""
    path = tmp_path / "new.csv"
    table.head(200).write_csv(path)
    return path


def predict_to_file(saved, sources, out, spec=None) -> list[str]:
    findings: list[str] = []
    predict_files(saved, sources, out, spec=spec, overwrite=True, on_finding=findings.append)
    return findings


def test_predictions_do_not_depend_on_parts_and_formats(patients_fit, model_path, csv_path, tmp_path):
    folder, spec = patients_fit.folder, PredictionSpec(keep=True, quantiles=(0.2,), ood=0.05)
    findings: list[str] = []
    whole = predict(
        folder, table_blocks.read_file(str(csv_path), folder.roles.as_text), spec, on_finding=findings.append
    )
    names = ["out.csv.gz", "out.feather"]
    for name in names:
        assert predict_to_file(model_path, [csv_path], tmp_path / name, spec) == findings
        predictions = table_blocks.read_file(str(tmp_path / name), ["ward"])
        assert_frame_equal(predictions, whole, check_dtypes=False, rel_tol=1e-9)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv", *names]


def test_columns_have_the_type_that_all_blocks_agree_with(tmp_path):
    rows = [f"{i},{i},x{i},," for i in range(60)] + [f"{i},{i}.5,{i},7,true" for i in range(60)]
    path = tmp_path / "mixed.csv"
    path.write_text("a,b,c,d,e\n" + "\n".join(rows) + "\n")
    whole = table_blocks.read_file(str(path))
    table = Table([str(path)])
    locations = table.list_blocks()
    blocks = [table.read_block(location) for location in locations]
    assert len(blocks) > 2
    assert_frame_equal(pl.concat(blocks), whole)
    assert (table.rows, table.schema) == (120, dict(whole.schema))
    other = pickle.loads(pickle.dumps(table))
    for block, location in zip(blocks[::-1], locations[::-1], strict=True):
        assert_frame_equal(other.read_block(location), block)
        assert location.rows == block.height
        assert location.rows_before == location.rows_before_in_file == block["a"][0] + 60 * (location.rows_before >= 60)


def test_quoted_cells_with_line_ends_stay_whole(tmp_path):
    path = tmp_path / "quoted.csv"
    path.write_text("a,b\n" + "".join(f'{i},"one\n""two"", {i}"\n' for i in range(300)))
    table = Table([str(path)])
    frames = [table.read_block(location) for location in table.list_blocks()]
    assert len(frames) > 2
    assert pl.concat(frames)["b"].to_list() == [f'one\n"two", {i}' for i in range(300)]


def test_a_killed_run_continues_and_gives_the_same_file(model_path, csv_path, tmp_path, monkeypatch):
    out = tmp_path / "out.csv"
    usual = predict_to_file(model_path, [csv_path], tmp_path / "expected.csv")
    expected = (tmp_path / "expected.csv").read_bytes()
    real, calls = Predictor.predict, []

    def kill_at_fourth_call(*arguments, **options):
        calls.append(1)
        if len(calls) == 4:
            raise SystemExit
        return real(*arguments, **options)

    monkeypatch.setattr(Predictor, "predict", kill_at_fourth_call)
    with pytest.raises(SystemExit):
        predict_to_file(model_path, [csv_path], out)
    assert not out.exists()
    assert len(list((tmp_path / "out.csv.parts").glob("*.json"))) == 3
    calls.clear()
    monkeypatch.setattr(
        Predictor, "predict", lambda *positional, **named: (calls.append(1), real(*positional, **named))[1]
    )
    assert predict_to_file(model_path, [csv_path], out) == usual
    assert out.read_bytes() == expected
    assert len(calls) == 2, "three of five blocks were predicted before"
    assert not (tmp_path / "out.csv.parts").exists()


def test_parts_of_another_request_or_damaged_ones_are_predicted_again(tmp_path):
    first, second = Block(0, 5, 2, 0), Block(5, 9, 2, 2)
    files = {"content": b"1.0\n2.0\n", "facts": json.dumps({"rows": 2, "columns": ["mean"], "findings": {}}).encode()}
    parts = ResultStore(tmp_path / "o.csv.parts", {"request": 1})
    parts.write(first, files, "a part")
    parts.write(second, files, "a part")
    store = ResultStore(tmp_path / "o.csv.parts", {"request": 1})
    assert json.loads(store.read(first)["facts"])["rows"] == 2
    assert ResultStore(tmp_path / "o.csv.parts", {"request": 2}).read(first) is None
    store.path(second).write_text('{"files"')
    assert store.read(second) is None
    store.paths(first)["content"].write_text("damaged")
    assert store.read(first) is None


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda lines: [*lines[:150], lines[150] + ",one,more", *lines[151:]], "row 150 has more fields"),
        (lambda lines: [*lines[:150], lines[150].replace(",", ',"', 1), *lines[151:]], "quoted cell does not end|from"),
    ],
)
def test_damaged_text_is_one_error_and_leaves_nothing(model_path, csv_path, tmp_path, monkeypatch, damage, words):
    monkeypatch.setattr(table_blocks, "_MAX_CELL_BYTES", 2000)
    csv_path.write_text("\n".join(damage(csv_path.read_text().splitlines())) + "\n")
    with pytest.raises(InputError, match=rf"new.csv.*({words})"):
        predict_to_file(model_path, [csv_path], tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


# Bad parts: one sentence with the file and the row, nothing left behind -----------------------------------------------


def write_damaged_file(part: pl.DataFrame, path: Path) -> None:
    part.write_parquet(path)
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = b"\xff" * (len(content) // 2 - 4)
    path.write_bytes(content)


def write_bad_day(part: pl.DataFrame, path: Path) -> None:
    part.with_columns(days=pl.when(pl.int_range(pl.len()) == 50).then(-3.0).otherwise("days")).write_parquet(path)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (write_damaged_file, r"b\.parquet cannot be read as a parquet file, rows 1 to 40"),
        (write_bad_day, r"b\.parquet: exposure 'days' .* got -3 at row 51"),
    ],
)
def test_a_bad_part_is_named_and_a_repaired_one_is_predicted(model_path, table, tmp_path, capsys, harm, words):
    folder = tmp_path / "data"
    folder.mkdir()
    for number, name in enumerate("abc"):
        (harm if name == "b" else pl.DataFrame.write_parquet)(table[90 * number :][:90], folder / f"{name}.parquet")
    for out in (tmp_path / "out.csv", "-"):
        with pytest.raises(InputError, match=words):
            predict_to_file(model_path, [folder], out)
    assert (os.listdir(tmp_path), capsys.readouterr().out) == (["data"], ""), "all rows are checked before any output"
    table[90:180].write_parquet(folder / "b.parquet")
    predict_to_file(model_path, [folder], tmp_path / "out.csv")
    assert pl.read_csv(tmp_path / "out.csv").height == 270
    assert sorted(os.listdir(tmp_path)) == ["data", "out.csv"]
