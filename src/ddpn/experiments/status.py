"""What is known of the runs of an experiment while they are done."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ddpn.experiments import runner
from ddpn.experiments.experiment import Run
from ddpn.experiments.workers import Event


class Board:
    """What is known of every run: a table that is drawn again and again, or where there is no terminal a line each."""

    def __init__(self, title: str, runs: Sequence[Run], out: Path, states: dict[str, str]) -> None:
        self._title, self._states, self.errors = title, dict.fromkeys(states, "waiting"), dict[str, str]()
        self._folders = {run.name: runner.folder_of(run, out) for run in runs}
        self._results: dict[str, Any] = {}
        self._started: dict[str, float] = {}
        for run in runs:
            if states[run.name] == "done":
                self._states[run.name] = "was done"
                self._results[run.name] = runner.result_of(self._folders[run.name])

    def tell(self, event: Event, console: Console) -> None:
        """Take note of what happened."""
        name = event.run.name
        self._states[name] = event.state
        if event.state == "running":
            self._started[name] = time.monotonic()
        elif event.state == "failed":
            self.errors[name] = event.error
        else:
            self._results[name] = event.result
        if not console.is_terminal:
            console.print(" ".join([event.run.experiment.name, *self._line(name)]).rstrip(), soft_wrap=True)

    def _line(self, name: str) -> tuple[str, ...]:
        result, state = self._results.get(name), self._states[name]
        if result is None:
            seconds = time.monotonic() - self._started[name] if state == "running" else None
            state = (runner.progress_of(self._folders[name]) or state) if state == "running" else state
            return name, state, "" if seconds is None else f"{seconds:.0f} s", "", ""
        scores = result["scores"]["ours"]["ensemble"]
        return name, state, f"{result['seconds']:.0f} s", f"{scores['mae'][0]:.3f}", f"{scores['crps'][0]:.3f}"

    def __rich__(self) -> Table:
        table = Table("run", "state", title=self._title)
        for heading in ("seconds", "MAE", "CRPS"):
            table.add_column(heading, justify="right")
        for name in self._states:
            table.add_row(*self._line(name))
        return table

    @contextmanager
    def shown(self, console: Console) -> Iterator[None]:
        """On a terminal, twice a second."""
        live = Live(get_renderable=self.__rich__, console=console, refresh_per_second=2, vertical_overflow="visible")
        with live if console.is_terminal else nullcontext():
            yield
