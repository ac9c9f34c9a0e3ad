"""A progress bar if it is asked for, and not a character if it is not."""

import pytest


@pytest.mark.parametrize(("validate", "what"), [(True, "validation nll"), (False, "loss")])
def test_a_training_shows_its_progress(train, rows, capsys, monkeypatch, validate, what):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes any stream for a terminal then
    monkeypatch.setenv("NO_COLOR", "1")
    lines = []
    options = {"verbose": True, "title": "Networks", "on_epoch": lines.append}
    _, history = train(rows(32), rows(10) if validate else None, epochs=3, fit_options=options)
    shown = capsys.readouterr().err
    last = history.epochs[-1]["score" if validate else "loss"][0]
    assert "Networks" in shown
    assert "3/3" in shown, "the bar ends before the training does"
    assert f"{what} {last:.4f}" in shown
    assert lines[-1] == f"epoch 3 of 3, {what} {last:.4f}"
