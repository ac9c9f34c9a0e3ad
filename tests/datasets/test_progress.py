import io

from rich.console import Console

from ddpn.datasets import progress


def shown(monkeypatch, terminal, wanted):
    out = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=out, force_terminal=terminal, width=100))
    with progress.bar("Pictures", 40, wanted) as move:
        move(30)
        move(10)
    return out.getvalue()


def test_a_terminal_counts_along(monkeypatch):
    text = shown(monkeypatch, terminal=True, wanted=True)
    assert "Pictures" in text
    assert "40/40" in text


def test_nothing_where_nobody_looks(monkeypatch):
    assert "Pictures" not in shown(monkeypatch, terminal=False, wanted=True)
    assert "Pictures" not in shown(monkeypatch, terminal=True, wanted=False)
