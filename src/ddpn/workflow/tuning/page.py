"""write_tuning: what a search for settings found, as one HTML page with figures."""

from collections.abc import Mapping
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.analysis.numbers import fmt, percent, plural
from ddpn.analysis.report.chart import CROSS, LINE, POINT, Axis, Bar, Chart, Figure, bar_chart
from ddpn.analysis.report.page import (
    TextTable,
    definitions,
    headline_html,
    page,
    pair,
    paragraphs,
    table_html,
    write_page,
)
from ddpn.workflow.tuning.result import TrialSummary, TuningResult, value_text

#: The figure of scores ends at a CRPS above that of the defaults by this share; worse trials are at its upper end.
_WORST = 0.15


def write_tuning(
    path: str | PathLike[str], found: TuningResult, target: str = "y", test: Mapping[str, Any] | None = None
) -> Path:
    """Write what a search found as one self-contained HTML file, and return its path.

    Parameters
    ----------
    path : path
        The file to write, such as "tuning.html".
    found : TuningResult
        The `result` of `ddpn.workflow.tuning.tune`.
    target : str
        The column of counts.
    test : mapping, optional
        Scores of the refitted model on test rows: `task["test"]` of its folder.
    """
    number = plural(len(found.trials), "trial")
    text = page(
        f"Settings for predicting {target}",
        [number, f"scored on {plural(found.rows, 'row')}", date.today().isoformat()],
        _sections(found, test),
        over="Search for the settings of a count model",
    )
    return write_page(path, text)


def _sections(found: TuningResult, test: Mapping[str, Any] | None) -> dict[str, str]:
    sections = {"Result": headline_html(found.level, found.headline, found.details)}
    sections["Settings"] = table_html(_settings(found), "Best settings against the defaults", words=True)
    if any(trial.crps is not None for trial in found.trials[1:]):
        parts = [scores_figure(found), *([importance_figure(found)] if found.importances else [])]
        few = "" if found.importances else "There are too few trials to say which settings matter."
        sections["What mattered"] = pair(*parts) + paragraphs(few)
        sections["Best trials"] = table_html(
            _trials(found),
            "The best trials, those first that were scored on all rows; the CRPS of others is that of fewer rows",
        )
    if test is not None:
        entry = next(each for each in test["entries"] if each["name"] == "mixture")
        facts = [("Test rows", f"{test['rows']:,}"), ("CRPS", fmt(entry["crps"]))]
        sections["Refitted model"] = definitions(facts, "facts") + paragraphs(*test["verdict"]["sentences"])
    return sections


def _settings(found: TuningResult) -> TextTable:
    rows, best = [], set()
    for i, (name, meaning, default, value) in enumerate(found.changes):
        share = percent(found.importances[name], 0) if name in found.importances else "–"
        rows.append((name, meaning, default, value, share, found.space[name]))
        if value != default:
            best.add((i, 3))
    return TextTable(("Setting", "Meaning", "Default", "Used", "Importance", "Searched"), rows, frozenset(best))


def _trials(found: TuningResult) -> TextTable:
    names = list(found.space)
    rows = []
    for trial in found.leaders:
        cells = [value_text(trial.settings[name]) for name in names]
        rows.append((_label(trial), f"{trial.crps:.4g}", _gain(trial), *cells))
    return TextTable(("Trial", "CRPS", "Gain over the defaults", *names), rows)


def _label(trial: TrialSummary) -> str:
    return "defaults" if trial.number == 0 else f"{trial.number}{' (some folds)' if trial.dropped else ''}"


def _gain(trial: TrialSummary) -> str:
    return "–" if trial.number == 0 else f"{trial.gain:.3g} ± {trial.error:.2g}"


def relative(trial: TrialSummary) -> float:
    """CRPS relative to that of the defaults on the same rows, minus 1."""
    gain = trial.gain or 0.0
    return -gain / ((trial.crps or 0.0) + gain or 1.0)


def scores_figure(found: TuningResult) -> Figure:
    """The score of every trial over the time of the search."""
    scored = [trial for trial in found.trials if trial.crps is not None]
    whole = [trial for trial in scored if not trial.dropped]
    partly = [trial for trial in scored if trial.dropped]
    at = np.array([trial.elapsed for trial in whole])
    best = np.minimum.accumulate([relative(trial) for trial in whole])
    low = min(-0.02, 1.15 * min(relative(trial) for trial in scored))
    high = min(_WORST, max(0.02, 1.1 * max(relative(trial) for trial in scored)))
    end = 1.03 * max(found.seconds, *(trial.elapsed for trial in scored))
    unit, name = (60.0, "minutes") if end > 180 else (1.0, "seconds")
    chart = Chart(Axis(f"{name} of the search", 0.0, end / unit),
                  Axis("CRPS, against the defaults", low, high, percent=True))  # fmt: skip
    chart.draw(LINE, "line-2", [0.0, end / unit], [0.0, 0.0])
    steps = np.repeat(np.arange(len(at)), 2)
    chart.draw(LINE, "line", np.append(at[steps[1:]], end) / unit, best[steps])
    chart.draw(CROSS, "cross", [t.elapsed / unit for t in partly], [relative(t) for t in partly])
    chart.draw(POINT, "dot own", at / unit, [relative(trial) for trial in whole])
    top = f"Trials that are worse than {percent(high, 0)} are at the upper end." if high == _WORST else ""
    words = f"Below the dashed line a trial is better than the defaults. {top}".strip()
    legend = [("dot own", "scored on all rows"), ("line", "best so far"), ("line-2", "default settings")]
    if partly:
        legend.insert(1, ("cross", "dropped after some folds"))
    description = f"{len(whole)} trials scored on all rows, the best at {percent(abs(best[-1]))} below the defaults."
    return chart.figure("search", "Scores over time", description, words, *legend)


def importance_figure(found: TuningResult) -> Figure:
    """The share of the variance of scores that each setting explains."""
    bars = [Bar(name, (share,), percent(share, 0)) for name, share in found.importances.items()]
    chart = bar_chart(Axis("share of the variance of scores", 0.0, max(found.importances.values()), percent=True), bars)
    leading = next(iter(found.importances))
    words = (
        "How much of the differences between the scores of trials each setting explains (fANOVA). With few trials "
        "these shares are rough, and they depend on the ranges that were searched."
    )
    return chart.figure("importance", "Importance of each setting", f"{leading} matters most.", words)
