"""A progress bar on a terminal, and nothing elsewhere."""

import io

import pytest
from rich import console

from ddpn.runtime.progress import progress_bar


def shown(monkeypatch, is_terminal: bool, **options) -> str:
    out = io.StringIO()
    real = console.Console
    monkeypatch.setattr(
        console, "Console", lambda stderr: real(file=out, force_terminal=is_terminal, width=120, stderr=False)
    )
    with progress_bar("Images", 40, **options) as bar:
        bar.advance(30)
        bar.advance(6, "loss 1.5")
    return out.getvalue()


@pytest.mark.parametrize(
    ("options", "words"),
    [({}, "36/40"), ({"done": 4}, "40/40"), ({"in_bytes": True}, "36/40 bytes"), ({"keep": True}, "loss 1.5")],
)
def test_a_terminal_shows_how_far_it_is(monkeypatch, options, words):
    text = shown(monkeypatch, True, **options)
    assert "Images" in text
    assert "left" in text
    assert words in text


def test_nothing_is_shown_elsewhere(monkeypatch):
    assert "Images" not in shown(monkeypatch, False)
    assert shown(monkeypatch, True, shown=False) == ""
