"""write_diagnosis: the diagnosis of a target as one HTML page with figures."""

import math
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ddpn.analysis.diagnosis.result import Diagnosis, Evidence
from ddpn.analysis.gains import Z, effective_rows
from ddpn.analysis.report.figures.chart import POINT, Figure, histogram
from ddpn.analysis.report.figures.predictions import PIT_BINS, Pit, pit_figure, spread_rows
from ddpn.analysis.report.figures.scales import bin_probabilities, count_bins
from ddpn.analysis.report.grids import Grid
from ddpn.analysis.report.numbers import fmt, percent, plural
from ddpn.analysis.report.page import definitions, grid_html, headline_html, page, pair, paragraphs, write_page
from ddpn.metrics import pit_histogram

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
        sections["Checks"] = grid_html(_checks(found), "Every check, with p-values adjusted by Holm's method", True)
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


def _checks(found: Diagnosis) -> Grid:
    rows = []
    for each in found.findings:
        numbers = [f"{value:.2g}" if value >= 0.001 else "<0.001" for value in (each.p_value, each.adjusted)]
        rows.append((each.name.capitalize(), each.outcome, each.effect, *numbers))
    return Grid(("Check", "Result", "Effect", "p", "Adjusted p"), rows)


def _figures(found: Diagnosis, evidence: Evidence) -> str:
    rows = torch.from_numpy(np.sort(spread_rows(evidence.mean, _PIT_ROWS)))
    reference, fitted = (evidence.distribution(rows.numpy(), each) for each in (True, False))
    kind = _WORDS[evidence.chosen.name]
    over = "Sides that rise show over-dispersion, a hump in the middle under-dispersion."
    rest = "What remains is not a matter of dispersion."
    title = f"PIT under a {kind} with the fitted dispersion"
    return (
        paragraphs("All expected counts use means that were predicted for rows outside the fit.")
        + pair(_counts(found, evidence, reference=True), _counts(found, evidence, reference=False))
        + pair(
            pit_figure(_pit(reference, evidence, rows), over, "pit-reference", f"PIT under a {found.reference}"),
            pit_figure(_pit(fitted, evidence, rows), rest, "pit-fitted", title),
        )
    )


def _pit(dist: Any, evidence: Evidence, rows: torch.Tensor) -> Pit:
    weight = evidence.weight[rows.numpy()]
    heights = pit_histogram(dist, torch.from_numpy(evidence.y)[rows], PIT_BINS, weight).numpy()
    return Pit(heights, Z * math.sqrt((PIT_BINS - 1) / effective_rows(weight)))


def _counts(found: Diagnosis, evidence: Evidence, reference: bool) -> Figure:
    """How often each count was observed, and is expected given the features."""
    bins, rows = count_bins(evidence.y), spread_rows(evidence.mean, _MIXED_ROWS)
    dist = evidence.with_all_limits().distribution(rows, reference)
    observed = bins.shares(evidence.y, evidence.weight)
    expected = np.average(bin_probabilities(dist, bins.edges), axis=1, weights=evidence.weight[rows])
    chart = histogram(f"observed {found.target}", bins, observed, expected)
    left, right = bins.ends[:-1], bins.ends[1:]
    middle = np.sqrt((left + 1) * (right + 1)) - 1 if bins.log else 0.5 * (left + right)
    chart.draw(POINT, "dot big", middle, expected)
    kind = found.reference if reference else f"{_WORDS[evidence.chosen.name]} with the fitted dispersion"
    top = int(np.argmax(np.abs(observed - expected)))
    shares = f"{percent(observed[top])} observed, {percent(expected[top])} expected"
    description = f"The largest difference is at {bins.edges[top]:,.0f}: {shares}."
    legend = (("bar", "observed"), ("dot big", "expected"))
    name = "counts-reference" if reference else "counts-fitted"
    return chart.figure(name, f"Counts against a {kind}", description, description, *legend)
