"""A small run of the example, and properties of its simulated shop."""

import sys

import pytest

SMALL = {"n_networks": 2, "hidden": (16,), "epochs": 30, "numeric": "standard", "training_options": {"batch_size": 64}}


@pytest.fixture(scope="module")
def tabular(example):
    return example("tabular")


def test_intervals_cover_and_far_rows_are_flagged(tabular, capsys):
    found = tabular.run(tabular.simulate_shop(900), "jobs", **SMALL)
    assert 0.82 < found["coverage"] < 0.99
    assert found["far"] > 0.5 > 0.2 > found["flagged"]
    shown = capsys.readouterr().out
    assert "weekday" in shown
    assert "the 90% intervals cover" in shown


def test_a_file_of_your_own(tabular, tmp_path, monkeypatch, capsys):
    table = tabular.simulate_shop(400).rename(columns={"jobs": "repairs"})
    table.to_csv(tmp_path / "mine.csv", index=False)
    monkeypatch.setattr(sys, "argv", ["tabular.py", str(tmp_path / "mine.csv"), "--target", "repairs"])
    given = tabular.run
    monkeypatch.setattr(tabular, "run", lambda frame, target, **_: given(frame, target, **SMALL | {"epochs": 2}))
    tabular.main()
    assert "repairs" in capsys.readouterr().out
