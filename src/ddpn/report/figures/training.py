"""How the training went."""

from typing import Any

import numpy as np

from ddpn.report.figures.chart import Chart, Figure
from ddpn.report.figures.scales import Axis
from ddpn.report.numbers import fmt
from ddpn.training import History

_TITLES = {"loss": "Training loss", "score": "Validation score"}


def training_figures(history: History, score_on: str) -> list[Figure]:
    """Loss and, where rows were held out, the score that chose each member's epoch."""
    return [figure for key in _TITLES if (figure := _curve(history, key, score_on)) is not None]


def _curve(history: History, key: str, score_on: str) -> Figure | None:
    values = _values(history.epochs, key)
    if not np.isfinite(values).any():
        return None
    epochs = np.arange(1, len(values) + 1)
    finite = values[np.isfinite(values)]
    # A start far above the rest would press the rest flat.
    top = min(float(finite.max()), float(np.quantile(finite, 0.5) + 4 * (np.quantile(finite, 0.9) - finite.min())))
    low, room = float(finite.min()), max(top - float(finite.min()), 1e-9 * max(1.0, abs(top)))
    label = "loss" if key == "loss" else f"validation {score_on.upper()}"
    x = Axis("epoch", 1.0, max(2.0, float(len(values))), whole=True)
    chart = Chart(x, Axis(label, low - 0.06 * room, low + 1.06 * room))
    for member in range(values.shape[1]):
        usable = np.isfinite(values[:, member])
        chart.line(epochs[usable], values[usable, member], "line thin")
    if key == "score":
        chart.points(*_kept(history, values), "dot big")
    legend: tuple[tuple[str, str], ...] = (("line thin", "a member"),)
    legend += (("dot big", "the epoch kept"),) if key == "score" else ()
    told = f"From {fmt(float(np.nanmean(values[0])))} to {fmt(float(np.nanmean(values[-1])))}, the mean over members."
    title = _TITLES[key]
    return Figure(f"training-{key}", title, chart.svg(f"training-{key}", title, told), told, legend)


def _values(epochs: list[dict[str, Any]], key: str) -> np.ndarray:
    """Shape: (epochs, members), NaN where nothing was recorded."""
    rows = [record.get(key) or [] for record in epochs]
    members = max((len(row) for row in rows), default=0)
    found = np.full((len(rows), max(members, 1)), np.nan)
    for i, row in enumerate(rows):
        found[i, : len(row)] = [np.nan if value is None else value for value in row]
    return found


def _kept(history: History, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each member's best epoch lies."""
    kept = [(epoch, member) for member, epoch in enumerate(history.best_epoch) if 1 <= epoch <= len(values)]
    seen = [(epoch, values[epoch - 1, member]) for epoch, member in kept if np.isfinite(values[epoch - 1, member])]
    return np.array([epoch for epoch, _ in seen], dtype=float), np.array([score for _, score in seen], dtype=float)
