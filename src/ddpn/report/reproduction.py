"""How the model was trained, and everything needed to get the numbers of a report again."""

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ddpn.report.evidence import SEED, Evidence
from ddpn.report.numbers import fmt, plural
from ddpn.training import History

_PACKAGES = ("ddpn", "torch", "numpy", "scipy", "scikit-learn")


def training_words(model: Any, history: History) -> str:
    """Rows, epochs, time, and what went wrong on the way."""
    rows = getattr(model, "n_rows_", None)
    parts = [
        f"Trained on {plural(rows, 'row')}" if rows else "Trained",
        f"for {plural(len(history.epochs), 'epoch')} in {fmt(history.seconds)} seconds",
        f'with numbers encoded as "{model.numeric_}"',
    ]
    words = " ".join(parts) + "."
    if history.stopped:
        words += f" Stopped: {history.stopped}."
    if history.rollbacks:
        words += f" {plural(len(history.rollbacks), 'time')} a member had to go back: {history.rollbacks[-1]}."
    return words


def reproduction(model: Any, evidence: Evidence, task: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Everything needed to get these numbers again."""
    options = {name: value for name, value in model.get_params(deep=False).items() if value != _default(model, name)}
    facts = [
        ("Command", words_of(task["command"])) if task.get("command") else None,
        ("Model", f"{type(model).__name__}({', '.join(f'{k}={v!r}' for k, v in options.items())})"),
        ("Seeds", f"random_state={getattr(model, 'random_state', None)!r}; draws of this report: {SEED}"),
        ("Data fingerprint", f"sha256 {evidence.fingerprint}"),
        ("Versions of this report", ", ".join(f"{name} {v}" for name, v in versions().items())),
    ]
    known = {"command", "target", "note"}
    given = [(_title(key), words_of(value)) for key, value in task.items() if key not in known and value is not None]
    return [fact for fact in facts if fact is not None] + given


def _default(model: Any, name: str) -> Any:
    return type(model)().get_params(deep=False).get(name)


def _title(key: Any) -> str:
    plain = str(key).replace("_", " ")
    return plain[:1].upper() + plain[1:]


def words_of(value: Any) -> str:
    """Whatever a task holds, on one line.

    >>> words_of({"train": 80, "scores": {"crps": 1.23456}, "columns": ["a", "b"]})
    'train: 80; scores: (crps: 1.23); columns: a, b'
    """
    if isinstance(value, Mapping):
        parts = ((key, words_of(part), isinstance(part, Mapping)) for key, part in value.items())
        return "; ".join(f"{key}: ({words})" if nested else f"{key}: {words}" for key, words, nested in parts)
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(words_of(part) for part in value)
    return fmt(value) if isinstance(value, float) else str(value)


def versions() -> dict[str, str]:
    """Of Python and of what computes."""
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "from source"
    return found
