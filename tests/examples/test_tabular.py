"""Test a small run of the example, and properties of its simulated shop."""

import sys

import pytest

SMALL = {"n_networks": 2, "hidden": (16,), "epochs": 30, "numeric": "standard", "training_options": {"batch_size": 64}}


@pytest.fixture(scope="module")
def tabular(load_example):
    return load_example("tabular")


def test_intervals_cover_and_far_rows_are_flagged(tabular, capsys):
    shares = tabular.run(tabular.simulate_shop(900), "jobs", **SMALL)
    assert 0.82 < shares["coverage"] < 0.99
    assert shares["far"] > 0.5 > 0.2 > shares["flagged"]
    shown = capsys.readouterr().out
    assert "weekday" in shown
    assert "the 90% intervals cover" in shown


def test_a_file_of_the_user_is_fitted(tabular, tmp_path, monkeypatch, capsys):
    table = tabular.simulate_shop(400).rename(columns={"jobs": "repairs"})
    table.to_csv(tmp_path / "mine.csv", index=False)
    monkeypatch.setattr(sys, "argv", ["tabular.py", str(tmp_path / "mine.csv"), "--target", "repairs"])
    original = tabular.run
    monkeypatch.setattr(tabular, "run", lambda frame, target, **_: original(frame, target, **SMALL | {"epochs": 2}))
    tabular.main()
    assert "repairs" in capsys.readouterr().out
