"""Test a fast run of the demo: its files, and Ctrl-C without a traceback."""

import sys
from types import ModuleType

import polars
import pytest


@pytest.fixture(scope="module")
def demo(load_example):
    return load_example("demo")


@pytest.fixture(scope="module")
def folder(demo, tmp_path_factory):
    """A run with a short report in place of the real one, which tests/cli writes."""
    module = ModuleType("ddpn.analysis.report")
    module.write_report = lambda path, progress, **parts: path.write_text(f"<!doctype html>{sorted(parts)}")
    out = tmp_path_factory.mktemp("demo") / "new"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ddpn.analysis.report", module)
        demo.run(out, fast=True)
    return out


def test_a_report_is_written(folder):
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_predictions_of_three_candidates_end_at_ten_words(folder):
    predictions = polars.read_csv(folder / "predictions.csv")
    assert predictions["education"].to_list() == [10, 12, 16]
    assert predictions["mean"].is_sorted()
    assert predictions["upper"].max() <= 10


def test_ctrl_c_ends_the_demo_in_one_sentence(demo, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("ddpn.cli.app", lambda words, standalone_mode: 130)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--fast", "--out", str(tmp_path / "demo")])
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    with pytest.raises(SystemExit) as stop:
        demo.main()
    assert stop.value.code == 130
    assert "Stopped. Run it again" in capsys.readouterr().err
