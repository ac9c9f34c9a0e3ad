"""Test that a terminal shows a progress bar, and nothing else does."""

import io

import pytest
from rich import console

from ddpn.runtime.progress import inner_bar, progress_bar

REAL = console.Console


def replace_console(monkeypatch, is_terminal: bool) -> io.StringIO:
    out = io.StringIO()
    monkeypatch.setattr(console, "Console", lambda stderr: REAL(file=out, force_terminal=is_terminal, width=120))
    return out


def show_bar(monkeypatch, is_terminal: bool, **options) -> str:
    out = replace_console(monkeypatch, is_terminal)
    with progress_bar("Images", 40, **options) as bar:
        bar.advance(30)
        bar.advance(6, "loss 1.5")
    return out.getvalue()


@pytest.mark.parametrize(
    ("options", "words"),
    [({}, "36/40"), ({"done": 4}, "40/40"), ({}, "loss 1.5")],
)
def test_a_terminal_shows_how_far_the_work_is(monkeypatch, options, words):
    text = show_bar(monkeypatch, True, **options)
    assert "Images" in text
    assert "left" in text
    assert words in text


def test_no_bar_is_shown_outside_a_terminal(monkeypatch):
    assert "Images" not in show_bar(monkeypatch, False)
    assert show_bar(monkeypatch, True, shown=False) == ""


def test_a_part_of_the_work_has_a_bar_if_the_whole_has_one(monkeypatch):
    out = replace_console(monkeypatch, True)
    with inner_bar("Folds", 3) as bar:
        bar.advance()
    with progress_bar("Fitting", None, shown=False), inner_bar("Folds", 3) as bar:
        bar.advance()
    assert out.getvalue() == ""
    with progress_bar("Fitting", None), inner_bar("Folds", 3) as bar:
        bar.advance(3)
    text = out.getvalue()
    assert "Fitting" in text
    assert "3/3" in text
