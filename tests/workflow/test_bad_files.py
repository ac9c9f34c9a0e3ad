"""Bad parts of large tables: one sentence with the file and the row, nothing left behind; a repaired table works."""

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

from ddpn import DDPNRegressor
from ddpn.cli import app
from ddpn.runtime.errors import InputError
from ddpn.tables import table as table_module

PART, PARTS = 60_000, 4


def ddpn(*arguments):
    return CliRunner().invoke(app, [str(word) for word in arguments])


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A model of one column with exposures."""
    rng = np.random.default_rng(0)
    X, days = pd.DataFrame({"x": rng.normal(size=90)}), rng.uniform(1, 2, 90)
    folder = tmp_path_factory.mktemp("model") / "model"
    networks = DDPNRegressor(members=1, hidden=(4,), numeric="standard", epochs=1, random_state=0, device="cpu")
    networks.fit(X, rng.poisson(days), exposure=days).save(folder)
    return folder


def write(path: Path, rows: int, bad: int | None = None, name: str = "y") -> None:
    """Equal rows, but a value of -3 in the last row or where `bad` says."""
    values = np.ones(rows, dtype=np.float64 if name == "days" else np.int64)
    if bad is not None:
        values[bad] = -3
    x = np.arange(rows, dtype=np.float32) % 100
    pl.DataFrame({"x": x, name: values}).write_parquet(path, row_group_size=50_000)


def test_a_negative_count_in_the_last_row_of_several_files(tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(PARTS):
        write(tmp_path / "data" / f"part-{number:02d}.parquet", PART, bad=-1 if number == PARTS - 1 else None)
    found = ddpn("fit", tmp_path / "data", "--target", "y", "--stream", "-o", tmp_path / "new.model")
    assert found.exit_code == 1, found.output
    words = " ".join(found.output.split())
    assert "part-03.parquet: target 'y' must hold non-negative integers, got -3 at row 60000." in words
    assert "The file begins with row 180,001 of the table." in words
    assert os.listdir(tmp_path) == ["data"]


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = b"\xff" * (len(content) // 2 - 4)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (damage, r"b\.parquet cannot be read as a parquet file"),
        (lambda path: write(path, 90, name="exposure"), r"b\.parquet must have the columns of .*without 'days'"),
    ],
)
def test_a_bad_part_ends_a_streamed_fit(tmp_path, harm, words):
    (tmp_path / "data").mkdir()
    for name in "abc":
        write(tmp_path / "data" / f"{name}.parquet", 90, name="days")
    harm(tmp_path / "data" / "b.parquet")
    found = ddpn("fit", tmp_path / "data", "--target", "days", "--stream", "-o", tmp_path / "model")
    assert found.exit_code == 1, found.output
    assert re.search(words, " ".join(found.output.split())), found.output
    assert os.listdir(tmp_path) == ["data"]


BAD = {
    "corrupt": (damage, r"b\.parquet cannot be read as a parquet file, rows 1 to 40"),
    "truncated": (lambda path: os.truncate(path, 200), r"b\.parquet cannot be read as a parquet file"),
    "another schema": (
        lambda path: write(path, 90, name="exposure"),
        r"b\.parquet must have the columns of .*a\.parquet, got .*without 'days'",
    ),
    "bad value": (
        lambda path: write(path, 90, bad=50, name="days"),
        r"b\.parquet: exposure 'days' .* got -3 at row 51",
    ),
}


@pytest.mark.parametrize(("harm", "words"), BAD.values(), ids=BAD.keys())
def test_a_bad_part_is_named_and_a_repaired_one_is_predicted(tmp_path, model, monkeypatch, harm, words):
    monkeypatch.setattr(table_module, "ROWS", 40)
    (tmp_path / "data").mkdir()
    for name in "abc":
        write(tmp_path / "data" / f"{name}.parquet", 90, name="days")
    command = ["predict", model, tmp_path / "data", "--exposure", "days", "-o", tmp_path / "out.csv"]
    harm(tmp_path / "data" / "b.parquet")
    found = ddpn(*command)
    assert found.exit_code == 1, found.output
    assert re.search(words, " ".join(found.output.split())), found.output
    assert os.listdir(tmp_path) == ["data"]
    write(tmp_path / "data" / "b.parquet", 90, name="days")
    again = ddpn(*command)
    assert again.exit_code == 0, again.output
    assert pl.read_csv(tmp_path / "out.csv").height == 270
    assert sorted(os.listdir(tmp_path)) == ["data", "out.csv"]


def test_nothing_is_printed_before_all_rows_are_checked(tmp_path, model, monkeypatch):
    monkeypatch.setattr(table_module, "ROWS", 40)
    write(tmp_path / "a.parquet", 90, bad=-1, name="days")
    found = ddpn("predict", model, tmp_path / "a.parquet", "--exposure", "days", "-o", "-")
    assert found.exit_code == 1, found.output
    assert "got -3 at row 90" in found.stderr
    assert found.stdout == ""


def test_parts_survive_a_read_error_and_the_same_command_goes_on(tmp_path, model, monkeypatch):
    monkeypatch.setattr(table_module, "ROWS", 40)
    write(tmp_path / "a.parquet", 200, name="days")
    command = ["predict", model, tmp_path / "a.parquet", "--exposure", "days", "-o", tmp_path / "out.csv"]
    read, calls = table_module.ParquetFile.block, []

    def fails_once(self, extent, columns):
        calls.append(extent.begin)
        if len(calls) == 8:  # five blocks are checked before
            raise InputError("a.parquet cannot be read as a parquet file: Stale file handle.")
        return read(self, extent, columns)

    monkeypatch.setattr(table_module.ParquetFile, "block", fails_once)
    assert ddpn(*command).exit_code == 1
    assert list((tmp_path / "out.csv.parts").glob("*.json"))
    again = ddpn(*command)
    assert again.exit_code == 0, again.output
    assert pl.read_csv(tmp_path / "out.csv").height == 200
    assert not (tmp_path / "out.csv.parts").exists()
