"""write_diagnosis: the diagnosis of a target as one HTML page with figures."""

from datetime import date
from os import PathLike
from pathlib import Path

import numpy as np
import torch

from ddpn.analysis.diagnosis.result import Diagnosis, Evidence
from ddpn.analysis.figure_data import Pit
from ddpn.analysis.numbers import fmt, percent, plural
from ddpn.analysis.report.chart import Figure
from ddpn.analysis.report.figures import counts_chart, pit_figure, spread_rows
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

#: Rows whose distributions are averaged, and rows of the PIT histograms.
_MIXED_ROWS, _PIT_ROWS = 1000, 10_000
_WORDS = {
    "double_poisson": "Double Poisson", "negative_binomial": "Negative Binomial", "double_binomial": "Double Binomial",
}  # fmt: skip


def write_diagnosis(path: str | PathLike[str], found: Diagnosis) -> Path:
    """Write a diagnosis as one self-contained HTML file, and return its path.

    Parameters
    ----------
    path : path
        The file to write, such as "diagnosis.html".
    found : Diagnosis
        What `ddpn.analysis.diagnosis.diagnose` returned.
    """
    text = page(
        f"What the counts of {found.target} are like",
        [
            plural(found.summary.used, "row"),
            *([found.mean_model] if found.mean_model else []),
            date.today().isoformat(),
        ],
        _sections(found),
        found.notes[found.dispersion is None :],
        over="Diagnosis of a count target",
    )
    return write_page(path, text)


def _sections(found: Diagnosis) -> dict[str, str]:
    details = [
        ("Recommendation", found.advice),
        *((each.label, each.sentence) for each in found.findings if each.found),
    ]
    sections = {
        "Result": headline_html(
            "unclear" if found.labels or found.dispersion is None else "better", found.headline, details
        )
    }
    if found.evidence is not None:
        sections["Checks"] = table_html(_checks(found), "Every check, with p-values adjusted by Holm's method", True)
        sections["Figures"] = _figures(found, found.evidence)
    summary = found.summary
    facts = [
        ("Rows", f"{summary.used:,}" if summary.used == summary.rows else f"{summary.used:,} of {summary.rows:,}"),
        ("Mean", fmt(summary.mean)),
        ("Variance", fmt(summary.variance)),
        ("Variance / mean, without features", fmt(summary.ratio)),
        ("Zeros", percent(summary.zeros)),
        ("Minimum and maximum", f"{fmt(summary.minimum)} · {fmt(summary.maximum)}"),
    ]
    if found.mean_model:
        facts.append(("Deviance explained out of fold", percent(found.explained)))
    sections["Target"] = definitions(facts, "facts")
    return sections


def _checks(found: Diagnosis) -> TextTable:
    rows = []
    for each in found.findings:
        numbers = [f"{value:.2g}" if value >= 0.001 else "<0.001" for value in (each.p_value, each.adjusted)]
        rows.append((each.name.capitalize(), each.outcome, each.effect, *numbers))
    return TextTable(("Check", "Result", "Effect", "p", "Adjusted p"), rows)


def _figures(found: Diagnosis, evidence: Evidence) -> str:
    rows = torch.from_numpy(np.sort(spread_rows(evidence.mean, _PIT_ROWS)))
    reference, fitted = (evidence.distribution(rows.numpy(), each) for each in (True, False))
    y, weight = torch.from_numpy(evidence.y)[rows], evidence.weight[rows.numpy()]
    kind = _WORDS[evidence.chosen.name]
    over = "Sides that rise show over-dispersion, a hump in the middle under-dispersion."
    rest = "What remains is not a matter of dispersion."
    title = f"PIT under a {kind} with the fitted dispersion"
    return (
        paragraphs("All expected counts use means that were predicted for rows outside the fit.")
        + pair(_counts(found, evidence, reference=True), _counts(found, evidence, reference=False))
        + pair(
            pit_figure(Pit.of(reference, y, weight), over, "pit-reference", f"PIT under a {found.reference}"),
            pit_figure(Pit.of(fitted, y, weight), rest, "pit-fitted", title),
        )
    )


def _counts(found: Diagnosis, evidence: Evidence, reference: bool) -> Figure:
    """How often each count was observed, and is expected given the features."""
    rows = spread_rows(evidence.mean, _MIXED_ROWS)
    dist = evidence.with_all_limits().distribution(rows, reference)
    chart, (bins, observed, expected) = counts_chart(dist, found.target, evidence.y, evidence.weight, rows)
    kind = found.reference if reference else f"{_WORDS[evidence.chosen.name]} with the fitted dispersion"
    top = int(np.argmax(np.abs(observed - expected)))
    shares = f"{percent(observed[top])} observed, {percent(expected[top])} expected"
    description = f"The largest difference is at {bins.edges[top]:,.0f}: {shares}."
    legend = (("bar", "observed"), ("dot big", "expected"))
    name = "counts-reference" if reference else "counts-fitted"
    return chart.figure(name, f"Counts against a {kind}", description, description, *legend)
