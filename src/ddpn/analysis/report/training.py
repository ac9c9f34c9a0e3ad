"""How the model was trained, and everything needed to reproduce the numbers of a report."""

import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from ddpn.analysis.leaderboard import NETWORKS
from ddpn.analysis.member_names import label_of
from ddpn.analysis.report.evidence import SEED, Evidence
from ddpn.analysis.report.figures.chart import LINE, POINT, Chart, Figure
from ddpn.analysis.report.figures.scales import Axis
from ddpn.analysis.report.numbers import fmt, percent, plural
from ddpn.members.folds import copies_of
from ddpn.networks.training import History
from ddpn.tables.splits import rows_words

_PACKAGES = ("ddpn", "torch", "numpy", "scipy", "scikit-learn")
#: Entries of a task that are shown elsewhere.
_SHOWN = {"command", "target", "note", "numbering"}
#: Arguments of a model that are shown by other facts, or that say how it was run.
_SHOWN_ELSEWHERE = {"likelihood", "random_state", "validation", "verbose"}
_TITLES = {"loss": "Training loss", "score": "Validation score"}


def members_text(model: Any) -> str:
    """The members of the mixture with their weights, such as "5 networks (80%) + GLM (20%)"."""
    predictor, parts = model.predictor_, []
    for name, member in predictor.mixed.items():
        label = label_of(name, member)
        if name == NETWORKS:
            copies: Any = copies_of(member)
            label = plural(sum(copy.model.members for copy in copies), "network")
        parts.append(label if len(predictor.mixed) == 1 else f"{label} ({percent(predictor.weights[name], 0)})")
    return " + ".join(parts)


def likelihood_text(model: Any) -> str:
    """The name of the likelihood, or the names of those that are mixed."""
    given = getattr(model, "likelihood", "")
    return given if isinstance(given, str) else ", ".join(map(str, given))


def fitted_rows(model: Any) -> str:
    """How many rows a model was fitted to, such as "755 rows, 5-fold cross-fitted"; empty where that is not known."""
    if getattr(model, "n_rows_", None) is None:
        return ""
    copies = [len(copies_of(member)) for member in model.predictor_.mixed.values()]
    rows = {"train": model.n_rows_, "validation": getattr(model, "n_validation_rows_", 0)}
    return rows_words(rows, max(copies) if max(copies) > 1 else 0)


def training_sentences(model: Any, history: History) -> str:
    """Rows, epochs, time, and what went wrong during training."""
    rows = f"on {fitted_rows(model)}, "
    epochs = f"for {plural(len(history.epochs), 'epoch')} in {fmt(history.seconds)} seconds"
    words = f'Trained {rows}{epochs}, with the numeric encoding "{model.numeric_}".'
    if history.stopped:
        words += f" Stopped: {history.stopped}."
    if history.rollbacks:
        words += f" Rolled back {plural(len(history.rollbacks), 'time')}, last: {history.rollbacks[-1]}."
    return words


def training_figures(history: History, score_on: str) -> list[Figure]:
    """The loss and, where there were validation rows, the score that chose each member's epoch."""
    return [figure for key in _TITLES if (figure := _curve(history, key, score_on)) is not None]


def _curve(history: History, key: str, score_on: str) -> Figure | None:
    members = max((len(record.get(key) or ()) for record in history.epochs), default=0)
    # Shape: (epochs, members), NaN where nothing was recorded.
    values = np.array([record.get(key) or [None] * members for record in history.epochs], dtype=float)
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    low = float(finite.min())
    # A start far above the rest would make the rest flat.
    top = min(float(finite.max()), float(np.quantile(finite, 0.5) + 4 * (np.quantile(finite, 0.9) - low)))
    room = max(top - low, 1e-9 * max(1.0, abs(top)))
    up = Axis(key if key == "loss" else f"validation {score_on.upper()}", low - 0.06 * room, low + 1.06 * room)
    chart = Chart(Axis("epoch", 1.0, max(2.0, float(len(values))), integers=True), up)
    for member in values.T:
        usable = np.isfinite(member)
        chart.draw(LINE, "line thin", np.flatnonzero(usable) + 1, member[usable])
    legend = [("line thin", "a member")]
    if key == "score":
        pairs = zip(values.T, history.best_epoch, strict=False)
        kept = np.array([(best, member[best - 1]) for member, best in pairs if 1 <= best <= len(values)]).reshape(-1, 2)
        chart.draw(POINT, "dot big", *kept[np.isfinite(kept[:, 1])].T)
        legend.append(("dot big", "the epoch kept"))
    start, end = (fmt(float(np.nanmean(row))) for row in values[np.isfinite(values).any(1)][[0, -1]])
    words = f"The mean over members went from {start} to {end}."
    return chart.figure(f"training-{key}", _TITLES[key], words, words, *legend)


def reproduction(model: Any, evidence: Evidence, task: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Everything needed to reproduce these numbers, by name."""
    defaults = type(model)().get_params(deep=False)
    options = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if name not in _SHOWN_ELSEWHERE and value != defaults.get(name)
    }
    versions = {"Python": platform.python_version()} | {name: version(name) for name in _PACKAGES}
    facts = [
        ("Model", members_text(model)),
        ("Likelihood", likelihood_text(model)),
        *([("Training rows", rows)] if (rows := fitted_rows(model)) else []),
        *([("Settings", ", ".join(f"{name} = {value!r}" for name, value in options.items()))] if options else []),
        ("Seeds", f"model {getattr(model, 'random_state', None)}; draws of this report {SEED}"),
        ("Data fingerprint", f"sha256 {evidence.fingerprint}"),
        ("Versions of this report", ", ".join(f"{name} {number}" for name, number in versions.items())),
    ]
    command = [("Command", _one_line(task["command"]))] if task.get("command") else []
    given = {str(key).replace("_", " "): v for key, v in task.items() if key not in _SHOWN and v is not None}
    return [*command, *facts, *((key[:1].upper() + key[1:], _one_line(value)) for key, value in given.items())]


def _one_line(value: Any) -> str:
    """Text as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
