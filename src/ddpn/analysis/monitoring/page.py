"""The result of a comparison as one HTML file."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.analysis.monitoring.predictions import PIT_BINS
from ddpn.analysis.monitoring.result import Check, Monitoring
from ddpn.analysis.report import page
from ddpn.analysis.report.figures.chart import LINE, Bar, Chart, Figure, bar_chart
from ddpn.analysis.report.figures.scales import Axis
from ddpn.analysis.report.grids import Grid
from ddpn.analysis.report.numbers import fmt, percent, plural
from ddpn.storage.files import write_text

#: Checks that a figure shows.
_SHOWN = 30


def write_monitoring(path: Path, found: Monitoring, about: dict[str, Any]) -> None:
    """Write a page on a comparison.

    Parameters
    ----------
    path : Path
        The file.
    found : Monitoring
        The result.
    about : dict
        What is known about the model: "model", "data", "fitted".
    """
    details = [
        ("False alarms", f"All checks together raise one with a probability of at most {percent(found.alpha)}."),
        ("Size", f"A difference counts from {percent(found.effect)} of the rows on, half of that for coverage."),
        ("Sensitivity", found.detectable),
    ]
    parts = {
        "Result": page.headline_html("worse" if found.drift else "better", found.headline, details),
        "Checks": page.pair(_effects(found), page.grid_html(_grid(found), "All checks, those with drift first.")),
        "Counts": _counts(found),
        "Unusual values": _listed(found.findings),
        "Not compared": _listed(found.not_compared),
    }
    fitted = f"fitted {str(about['fitted'])[:10]}" if about.get("fitted") else ""
    under = [str(about["model"]), fitted, f"{plural(found.rows, 'row')} of {about['data']}", date.today().isoformat()]
    shown = {title: html for title, html in parts.items() if html}
    title = "New rows differ from the training" if found.drift else "New rows are like the training"
    write_text(path, page.page(title, [fact for fact in under if fact], shown, over="Monitoring of a count model"))


def _listed(sentences: tuple[str, ...]) -> str:
    return page.paragraphs(*sentences)


def _effects(found: Monitoring) -> Figure:
    """The size of the largest differences."""
    shown = sorted(found.shown, key=lambda check: -check.effect)[:_SHOWN]
    high = max(0.2, 1.1 * max((check.effect for check in shown), default=0.0))
    bars = [Bar(_name(check), (check.effect,), f"{check.effect:.2f}{' !' if check.drift else ''}") for check in shown]
    chart = bar_chart(Axis("difference of shares", 0.0, high), bars, mark=found.effect)
    words = "Bars beyond the line matter, if they are more than chance; ! marks drift."
    return chart.figure("effects", "Size of the differences", "; ".join(f"{b.name}: {b.words}" for b in bars), words)


def _name(check: Check) -> str:
    """What a bar is called, in a few letters."""
    short = {"missing": f"{check.name}, missing", "ood": "OOD rows", "coverage": "coverage", "pit": "PIT"}
    return short.get(check.kind, check.name)


def _grid(found: Monitoring) -> Grid:
    rows = []
    for check in found.shown:
        decision = "ignored" if check.is_ignored else "drift" if check.drift else "-"
        p_value = "-" if check.is_ignored else f"{check.adjusted:.2g}" if check.adjusted >= 1e-3 else "<0.001"
        rows.append((check.title, check.before, check.now, f"{check.effect:.3f}", p_value, decision))
    return Grid(("check", "before", "now", "difference", "adjusted p", "decision"), rows)


def _counts(found: Monitoring) -> str:
    """Scores and the PIT histogram of the rows with counts."""
    if not found.scores:
        return ""
    known, test = found.scores, found.scores["test"] or {}
    names = {"crps": "CRPS", "mae": "MAE", "nll": "NLL", "coverage": "coverage"}
    rows = [(label, _number(test.get(name)), _number(known[name])) for name, label in names.items()]
    rows.append(("mean count", "", _number(known["mean_count"])))
    rows.append(("mean prediction", "", _number(known["mean_prediction"])))
    grid = page.grid_html(
        Grid(("score", "test rows in fit", "new rows"), rows), f"{plural(found.counts, 'row')} with counts"
    )
    heights = np.array(known["pit"])
    chart = Chart(Axis("PIT", 0.0, 1.0), Axis("density", 0.0, max(1.6, 1.1 * float(heights.max()))))
    chart.bars(np.linspace(0.0, 1.0, PIT_BINS + 1), heights, "bar clear")
    chart.draw(LINE, "ref", [0.0, 1.0], [1.0, 1.0])
    words = "Flat where predictions fit. A slope means bias, a valley too narrow distributions, a hill too wide ones."
    figure = chart.figure("pit", "PIT histogram", "Heights: " + ", ".join(f"{h:.2f}" for h in heights), words)
    return page.pair(figure, grid)


def _number(value: float | None) -> str:
    return "-" if value is None else fmt(value)
