"""What is shown of runs while they are done."""

import io
from pathlib import Path

from rich.console import Console

from ddpn.experiments.runner import PROGRESS, folder_of
from ddpn.experiments.settings import experiment
from ddpn.experiments.status import Board
from ddpn.experiments.workers import Event

RESULT = {"seconds": 12.4, "scores": {"ours": {"ensemble": {"mae": [0.4567], "crps": [0.3214]}}}}


def screen(terminal):
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None)


def test_a_terminal_shows_a_table_of_states_seconds_and_scores():
    runs = experiment("wave").runs()[:3]
    board, console = Board("A wave", runs, Path("nowhere"), {run.name: "missing" for run in runs}), screen(True)
    with board.shown(console):
        board.tell(Event(runs[0], "running"), console)
        board.tell(Event(runs[0], "done", RESULT), console)
        board.tell(Event(runs[1], "running"), console)
    lines = [line.split("│") for line in console.file.getvalue().splitlines() if "│" in line]
    rows = {line[1].strip(): [cell.strip() for cell in line[2:6]] for line in lines}
    assert rows[runs[0].name] == ["done", "12 s", "0.457", "0.321"]
    assert rows[runs[1].name] == ["running", "0 s", "", ""]
    assert rows[runs[2].name] == ["waiting", "", "", ""]


def test_without_a_terminal_a_line_tells_of_each_beginning_and_end():
    run = experiment("wave").runs()[0]
    board, console = Board("A wave", [run], Path("nowhere"), {run.name: "missing"}), screen(False)
    with board.shown(console):
        board.tell(Event(run, "running"), console)
        board.tell(Event(run, "failed", error="It broke."), console)
    assert console.file.getvalue() == f"wave {run.name} running 0 s\nwave {run.name} failed\n"
    assert board.errors == {run.name: "It broke."}


def test_a_training_says_how_far_it_is(tmp_path):
    run = experiment("wave").runs()[0]
    board, console = Board("A wave", [run], tmp_path, {run.name: "missing"}), screen(True)
    folder_of(run, tmp_path).mkdir(parents=True)
    (folder_of(run, tmp_path) / PROGRESS).write_text("epoch 3 of 8, validation crps 0.4")
    with board.shown(console):
        board.tell(Event(run, "running"), console)
    assert "epoch 3 of 8, validation crps 0.4" in console.file.getvalue()
