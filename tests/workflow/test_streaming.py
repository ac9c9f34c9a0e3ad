"""Predictions of long tables: in parts, from several files, resumed after a kill, and with clear errors."""

import json
import os
import pickle
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from ddpn.prediction.spec import PredictionSpec
from ddpn.runtime.errors import InputError
from ddpn.storage.results import ResultStore
from ddpn.tables import table as table_module
from ddpn.tables.table import Block, Table
from ddpn.workflow import prediction
from ddpn.workflow.prediction import predict
from ddpn.workflow.streaming import predict_files


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "visits.model"
    fitted.folder.save(path)
    return path


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    """Blocks of about 40 rows, and all text as if it were long."""
    monkeypatch.setattr(table_module, "BLOCK_ROWS", 40)
    monkeypatch.setattr(table_module, "MAX_WHOLE_FILE_BYTES", 0)
    monkeypatch.setattr(table_module, "_MIN_BLOCK_BYTES", 1)


@pytest.fixture
def text(table, tmp_path) -> Path:
    """Five blocks."""
    path = tmp_path / "new.csv"
    table.head(200).write_csv(path)
    return path


def run(saved, sources, out, spec=None) -> list[str]:
    findings: list[str] = []
    predict_files(saved, sources, out, spec=spec, overwrite=True, on_finding=findings.append)
    return findings


def test_parts_change_nothing(fitted, saved, text, tmp_path):
    folder, spec = fitted.folder, PredictionSpec(keep=True, quantiles=(0.2,), ood=0.05)
    findings: list[str] = []
    whole = predict(folder, table_module.read_file(str(text), folder.roles.as_text), spec, on_finding=findings.append)
    names = ["out.csv.gz", "out.feather"]
    for name in names:
        assert run(saved, [text], tmp_path / name, spec) == findings
        found = table_module.read_file(str(tmp_path / name), ["ward"])
        assert_frame_equal(found, whole, check_dtypes=False, rel_tol=1e-9)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv", *names]


def test_columns_have_the_type_that_all_blocks_agree_with(tmp_path):
    rows = [f"{i},{i},x{i},," for i in range(60)] + [f"{i},{i}.5,{i},7,true" for i in range(60)]
    path = tmp_path / "mixed.csv"
    path.write_text("a,b,c,d,e\n" + "\n".join(rows) + "\n")
    whole = table_module.read_file(str(path))
    table = Table([str(path)])
    places = table.list_blocks()
    blocks = [table.read_block(place) for place in places]
    assert len(blocks) > 2
    assert_frame_equal(pl.concat(blocks), whole)
    assert (table.rows, table.schema) == (120, dict(whole.schema))
    other = pickle.loads(pickle.dumps(table))
    for block, place in zip(blocks[::-1], places[::-1], strict=True):
        assert_frame_equal(other.read_block(place), block)
        assert place.rows == block.height
        assert place.first == place.start == block["a"][0] + 60 * (place.first >= 60)


def test_quoted_cells_with_line_ends_stay_whole(tmp_path):
    path = tmp_path / "quoted.csv"
    path.write_text("a,b\n" + "".join(f'{i},"one\n""two"", {i}"\n' for i in range(300)))
    table = Table([str(path)])
    frames = [table.read_block(place) for place in table.list_blocks()]
    assert len(frames) > 2
    assert pl.concat(frames)["b"].to_list() == [f'one\n"two", {i}' for i in range(300)]


def test_a_killed_run_continues_and_gives_the_same_file(saved, text, tmp_path, monkeypatch):
    out = tmp_path / "out.csv"
    usual = run(saved, [text], tmp_path / "expected.csv")
    expected = (tmp_path / "expected.csv").read_bytes()
    real, calls = prediction.predict_rows, []

    def killed(*arguments, **options):
        calls.append(1)
        if len(calls) == 4:
            raise SystemExit
        return real(*arguments, **options)

    monkeypatch.setattr(prediction, "predict_rows", killed)
    with pytest.raises(SystemExit):
        run(saved, [text], out)
    assert not out.exists()
    assert len(list((tmp_path / "out.csv.parts").glob("*.json"))) == 3
    calls.clear()
    monkeypatch.setattr(prediction, "predict_rows", lambda *own, **more: (calls.append(1), real(*own, **more))[1])
    assert run(saved, [text], out) == usual
    assert out.read_bytes() == expected
    assert len(calls) == 2, "three of five blocks were predicted before"
    assert not (tmp_path / "out.csv.parts").exists()


def test_parts_of_another_request_or_damaged_ones_are_predicted_again(tmp_path):
    place, other = Block(0, 5, 2, 0), Block(5, 9, 2, 2)
    files = {"content": b"1.0\n2.0\n", "facts": json.dumps({"rows": 2, "columns": ["mean"], "findings": {}}).encode()}
    parts = ResultStore(tmp_path / "o.csv.parts", {"request": 1})
    parts.write(place, files, "a part")
    parts.write(other, files, "a part")
    known = ResultStore(tmp_path / "o.csv.parts", {"request": 1})
    assert json.loads(known.read(place)["facts"])["rows"] == 2
    assert ResultStore(tmp_path / "o.csv.parts", {"request": 2}).read(place) is None
    known.path(other).write_text('{"files"')
    assert known.read(other) is None
    known.paths(place)["content"].write_text("damaged")
    assert known.read(place) is None


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda lines: [*lines[:150], lines[150] + ",one,more", *lines[151:]], "row 150 has more fields"),
        (lambda lines: [*lines[:150], lines[150].replace(",", ',"', 1), *lines[151:]], "quoted cell does not end|from"),
    ],
)
def test_damaged_text_is_one_error_and_leaves_nothing(saved, text, tmp_path, monkeypatch, damage, words):
    monkeypatch.setattr(table_module, "_MAX_CELL_BYTES", 2000)
    text.write_text("\n".join(damage(text.read_text().splitlines())) + "\n")
    with pytest.raises(InputError, match=rf"new.csv.*({words})"):
        run(saved, [text], tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


# Bad parts: one sentence with the file and the row, nothing left behind -----------------------------------------------


def damage(part: pl.DataFrame, path: Path) -> None:
    part.write_parquet(path)
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = b"\xff" * (len(content) // 2 - 4)
    path.write_bytes(content)


def with_bad_days(part: pl.DataFrame, path: Path) -> None:
    part.with_columns(days=pl.when(pl.int_range(pl.len()) == 50).then(-3.0).otherwise("days")).write_parquet(path)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (damage, r"b\.parquet cannot be read as a parquet file, rows 1 to 40"),
        (with_bad_days, r"b\.parquet: exposure 'days' .* got -3 at row 51"),
    ],
)
def test_a_bad_part_is_named_and_a_repaired_one_is_predicted(saved, table, tmp_path, capsys, harm, words):
    folder = tmp_path / "data"
    folder.mkdir()
    for number, name in enumerate("abc"):
        (harm if name == "b" else pl.DataFrame.write_parquet)(table[90 * number :][:90], folder / f"{name}.parquet")
    for out in (tmp_path / "out.csv", "-"):
        with pytest.raises(InputError, match=words):
            run(saved, [folder], out)
    assert (os.listdir(tmp_path), capsys.readouterr().out) == (["data"], ""), "all rows are checked before any output"
    table[90:180].write_parquet(folder / "b.parquet")
    run(saved, [folder], tmp_path / "out.csv")
    assert pl.read_csv(tmp_path / "out.csv").height == 270
    assert sorted(os.listdir(tmp_path)) == ["data", "out.csv"]
