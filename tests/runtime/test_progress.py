"""Test that a terminal shows a progress bar, a notebook shows lines, and nothing else shows anything."""

import io
import re
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from rich import console

from ddpn import CountRegressor
from ddpn.runtime import progress
from ddpn.runtime.progress import inner_bar, progress_bar, show_steps

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


def test_steps_are_lines_on_standard_error_when_they_have_ended(monkeypatch, capsys):
    replace_console(monkeypatch, False)
    with show_steps() as begin:
        begin("Fitting trees")
        assert capsys.readouterr().err == ""
        begin("Fitting GLM")
        assert re.fullmatch(r"Fitting trees: 0\.\d s\n", capsys.readouterr().err)
    assert re.fullmatch(r"Fitting GLM: 0\.\d s\n", capsys.readouterr().err)
    with pytest.raises(KeyboardInterrupt):
        stop_in_the_middle()
    with show_steps(shown=False) as begin:
        begin("Fitting trees")
    assert capsys.readouterr() == ("", "")


def stop_in_the_middle() -> None:
    with show_steps() as begin:
        begin("Fitting networks")
        raise KeyboardInterrupt


@pytest.fixture
def notebook(monkeypatch) -> list[list[str]]:
    """Lets this process look like a kernel of Jupyter; the texts of each output, in their order."""
    outputs: list[list[str]] = []

    class Handle:
        def __init__(self) -> None:
            self.texts: list[str] = []

        def update(self, data, raw):
            assert raw
            self.texts.append(data["text/plain"])

    def display(data, raw, display_id):
        handle = Handle()
        handle.update(data, raw)
        outputs.append(handle.texts)
        return handle

    module = ModuleType("IPython.display")
    module.display = display
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=module))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_UPDATES", -1.0)
    return outputs


def test_in_a_notebook_each_step_has_one_line_whose_parts_are_shown_in_it(notebook, capsys):
    with show_steps() as begin:
        begin("Fitting trees")
        with inner_bar("folds", 5) as bar:
            bar.advance(2)
            bar.advance(1, "loss 1.5")
        begin("Calibrating")
    trees, calibration = notebook
    assert trees[:-1] == [
        "Fitting trees ...", "Fitting trees (folds 2/5)", "Fitting trees (folds 3/5 loss 1.5)", "Fitting trees ..."
    ]  # fmt: skip
    assert re.fullmatch(r"Fitting trees: \d\.\d s", trees[-1])
    assert re.fullmatch(r"Calibrating: \d\.\d s", calibration[-1])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("verbose", [None, False, True])
def test_a_fit_shows_its_members_in_a_notebook_and_only_if_asked_in_a_script(notebook, monkeypatch, capsys, verbose):
    X = np.linspace(-2, 2, 120).reshape(-1, 1)
    y = np.random.default_rng(0).poisson(np.exp(1 + X[:, 0]))
    fit = CountRegressor(members=["constant", "glm"], random_state=0, verbose=verbose).fit
    fit(X, y)
    lines = [re.sub(r"\d+\.\d+", "#", texts[-1]) for texts in notebook]
    expected = [
        "Fitting constant distribution: # s",
        "Fitting GLM, CRPS so far #: # s",
        "Calibrating on rows that were not trained on: # s",
    ]
    assert lines == ([] if verbose is False else expected)
    assert capsys.readouterr() == ("", "")
    notebook.clear()
    monkeypatch.setattr(console, "_is_jupyter", lambda: False)
    fit(X, y)
    printed = capsys.readouterr()
    assert (notebook, printed.out) == ([], "")
    assert re.sub(r"\d+\.\d+", "#", printed.err).splitlines() == (expected if verbose else [])
