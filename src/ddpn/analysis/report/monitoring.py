"""write_monitoring: a comparison of new rows with the training as one HTML page."""

from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.analysis import plots
from ddpn.analysis.figure_data import Pit
from ddpn.analysis.monitoring import Check, Monitoring
from ddpn.analysis.report import page
from ddpn.analysis.report.figures import pit_figure
from ddpn.runtime.display import fmt, percent, plural

#: Checks that a figure shows.
_SHOWN = 30


def write_monitoring(path: Path, found: Monitoring, about: dict[str, Any]) -> None:
    """Write a page on a comparison; `about` the model are known "model", "data" and "fitted"."""
    details = [
        ("False alarms", f"All checks together raise one with a probability of at most {percent(found.alpha)}."),
        ("Size", f"A difference counts from {percent(found.effect)} of the rows on, half of that for coverage."),
        ("Sensitivity", found.detectable),
    ]
    headings = ("check", "before", "now", "difference", "adjusted p", "decision")
    cells = [check.cells for check in found.shown]
    checks = page.table_html(headings, cells, caption="All checks, those with drift first.")
    parts = {
        "Result": page.headline_html("worse" if found.drift else "better", found.headline, details),
        "Checks": page.pair(_effects(found), checks),
        "Counts": _counts(found),
        "Unusual values": page.paragraphs(*found.findings),
        "Not compared": page.paragraphs(*found.not_compared),
    }
    fitted = f"fitted {str(about['fitted'])[:10]}" if about.get("fitted") else ""
    under = [str(about["model"]), fitted, f"{plural(found.rows, 'row')} of {about['data']}", date.today().isoformat()]
    shown = {title: html for title, html in parts.items() if html}
    title = "New rows differ from the training" if found.drift else "New rows are like the training"
    page.write_page(path, page.page(title, filter(None, under), shown, over="Monitoring of a count model"))


def _effects(found: Monitoring) -> str:
    """The size of the largest differences."""
    shown = sorted(found.shown, key=lambda check: -check.effect)[:_SHOWN]
    names, sizes = [_name(check) for check in shown], np.array([check.effect for check in shown])
    texts = [f"{check.effect:.0%}{' !' if check.drift else ''}" for check in shown]
    labels = ("difference of shares", "difference", "what matters")
    draw = partial(plots.draw_against, names=names, level=sizes, words=texts, labels=labels, mark=found.effect)
    drawn = plots.panel(draw, plots.bars_height(len(shown)), margins=plots.NAMED)
    words = "Bars beyond the line matter, if they are more than chance; ! marks drift."
    description = "; ".join(f"{name}: {text}" for name, text in zip(names, texts, strict=True))
    return page.figure_html(drawn, "effects", "Size of the differences", description, words)


def _name(check: Check) -> str:
    """What a bar is called, in a few letters."""
    short = {"missing": f"{check.name}, missing", "ood": "OOD rows", "coverage": "coverage", "pit": "PIT"}
    return short.get(check.kind, check.name)


def _counts(found: Monitoring) -> str:
    """Scores and the PIT histogram of the rows with counts."""
    if not found.scores:
        return ""
    known, test = found.scores, found.scores["test"] or {}
    names = {"crps": "CRPS", "mae": "MAE", "nll": "NLL", "coverage": "coverage"}
    names |= {"mean_count": "mean count", "mean_prediction": "mean prediction"}
    rows = [(label, _number(test.get(name)), _number(known[name])) for name, label in names.items()]
    headings = ("score", "test rows in fit", "new rows")
    pit = Pit.of_heights(np.array(known["pit"]), found.rows_with_counts)
    words = "A slope means bias, a valley too narrow distributions, a hill too wide ones."
    caption = f"{plural(found.rows_with_counts, 'row')} with counts"
    return page.pair(pit_figure(pit, words), page.table_html(headings, rows, caption=caption))


def _number(value: float | None) -> str:
    return "-" if value is None else fmt(value)
