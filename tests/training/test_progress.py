"""A bar when it is asked for, and not a character when it is not."""

import pytest

from ddpn.training.progress import bar


def test_silence(train, rows, capsys):
    train(rows(32), rows(10), epochs=2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("validate", "said"), [(True, "validation nll"), (False, "loss")])
def test_a_training_says_how_far_it_is(train, rows, capsys, monkeypatch, validate, said):
    monkeypatch.setenv("COLUMNS", "200")
    _, history = train(rows(32), rows(10) if validate else None, epochs=3, fit_options={"verbose": True})
    shown = capsys.readouterr().out
    assert "Training" in shown
    assert "3/3" in shown, "the bar ends before the training does"
    assert "left" in shown
    last = history.epochs[-1]["score" if validate else "loss"][0]
    assert f"{said} {last:.4f}" in shown


def test_a_bar_that_goes_on_starts_where_it_stopped(capsys):
    with bar(epochs=10, first=4, shown=True) as tell:
        pass
    assert "4/10" in capsys.readouterr().out
    with bar(epochs=10, first=4, shown=True) as tell:
        tell(7, "fine")
    assert "7/10" in capsys.readouterr().out
