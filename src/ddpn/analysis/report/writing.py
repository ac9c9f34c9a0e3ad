"""write_report: from a fitted model and a test set to one HTML file, section by section."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted
from torch.distributions import Distribution

from ddpn.analysis.explanations import Explanation, Importances
from ddpn.analysis.leaderboard import NETWORKS
from ddpn.analysis.report import findings, grids, page
from ddpn.analysis.report.evidence import LEVEL, MAX_ROWS, Evidence, gather
from ddpn.analysis.report.explaining import effects_section, explanation_of
from ddpn.analysis.report.figures import predictions, uncertainty
from ddpn.analysis.report.groups import Group, driving_groups, uncertainty_sentences
from ddpn.analysis.report.numbers import percent, plural
from ddpn.analysis.report.training import (
    fitted_rows,
    likelihood_text,
    members_text,
    reproduction,
    training_figures,
    training_sentences,
)
from ddpn.members.folds import copies_of
from ddpn.runtime.errors import InputError

_UNSEEN = "These scores hold for new rows only if none of the evaluated rows was used for training."
_NUMBERING = "Rows are called by the index of the data frame or, in other tables, by their position from 0."


def write_report(
    path: str | PathLike[str],
    *,
    model: Any,
    X: Any,
    y: Any,
    exposure: Any = None,
    upper: Any = None,
    censored: Any = None,
    weight: Any = None,
    baselines: Mapping[str, Distribution] | None = None,
    task: Mapping[str, Any] | None = None,
    warnings: Sequence[str] = (),
    leak: str = "",
    meaning: str = "",
    labels: Sequence[Any] | None = None,
    ids: tuple[str, Sequence[Any]] | None = None,
    groups: Sequence[Any] | None = None,
    interval_groups: Sequence[Any] | None = None,
    progress: Callable[[str], object] | None = None,
) -> Path:
    """Evaluate a fitted model on a test set, write the result as one self-contained HTML file and return its path.

    Parameters
    ----------
    path : path
        The file to write, such as "report.html".
    model : estimator
        The fitted model.
    X, y, exposure, upper, censored, weight : array-like
        The test set, as for `fit`.
    baselines : mapping of str to Distribution, optional
        What other models predict for the same rows, by name; a Normal is rounded to counts.
    task : mapping, optional
        What is known about the fit ("target", "command", "split", ...; "note" says which rows are evaluated): all of it
        is shown, none of it is required.
    warnings : sequence of str
        Sentences shown at the top.
    leak : str
        A sentence about a suspected target leak: it is shown there, too, and forbids a positive verdict.
    meaning : str
        A sentence about what the scores mean, such as that they are for new groups of rows.
    labels : sequence, optional
        What the rows are called. Default: the index of a data frame, or positions.
    ids : tuple of str and sequence, optional
        The name and the values of a column that identifies the rows.
    groups : sequence, optional
        What each row belongs to, such as a person: the verdict then knows that rows of one group are alike.
    interval_groups : sequence, optional
        The labels of the groups that intervals are calibrated by, if these are no column of X.
    progress : callable, optional
        Called with the name of each step.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from ddpn import DDPNRegressor
    >>> X = np.random.default_rng(0).normal(size=(90, 1))
    >>> y = np.random.default_rng(1).poisson(np.exp(1 + X[:, 0]))
    >>> model = DDPNRegressor(members=2, hidden=(8,), epochs=2, random_state=0).fit(X[:60], y[:60])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(f"{folder}/report.html", model=model, X=X[60:], y=y[60:], task={"target": "visits"})
    ...     path.name, "visits" in path.read_text(encoding="utf-8")
    ('report.html', True)
    """
    check_is_fitted(model)
    place = Path(path)
    if place.is_dir():
        raise InputError(f"path must name a file such as report.html, got the folder {place}.")
    known, step = dict(task or {}), progress or (lambda stage: None)
    target = str(known.get("target") or "y")
    rows = {"labels": labels, "ids": ids, "groups": groups, "interval_groups": interval_groups}
    about = {"baselines": baselines, "leak": leak, "meaning": meaning, "progress": step}
    evidence = gather(model, X, y, exposure, weight, upper, censored, **rows, **about)
    names = {role: str(known[role]) for role in ("exposure", "upper") if known.get(role)}
    found = explanation_of(model, evidence, step, names)
    step("Drawing figures")
    parts = sections(model, evidence, found, target, known)
    above = [*filter(None, [leak]), *warnings]
    text = page.page(f"How well the model predicts {target}", _summary(model, evidence, known), parts, above)
    return page.write_page(place, text)


def _summary(model: Any, evidence: Evidence, task: Mapping[str, Any]) -> list[str]:
    """What the model is, what it was fitted to and evaluated on, and when."""
    rows = fitted_rows(model)
    when = f"on {str(task['fitted'])[:10]}" if task.get("fitted") else ""
    fitted = [" ".join(filter(None, ["fitted", f"to {rows}" if rows else "", when]))] if rows or when else []
    return [
        members_text(model),
        f"likelihood {likelihood_text(model)}",
        *fitted,
        f"evaluated on {plural(len(evidence.y), 'row')} on {date.today().isoformat()}",
    ]


def sections(
    model: Any, evidence: Evidence, explanation: Explanation, target: str, task: Mapping[str, Any]
) -> dict[str, str]:
    """The HTML of every section that has something to show, by its title."""
    pit, board = predictions.pit_of(evidence), evidence.board
    found, shape = board.evaluation, findings.pit_sentence(pit)
    importances = explanation.importance or Importances([], 0, len(evidence.columns))
    drivers = [driving_groups(importances, evidence, part) for part in ("aleatoric", "epistemic")]
    details = [
        ("Typical error", findings.error_sentences(evidence, target)),
        (f"{percent(LEVEL, 0)} interval", findings.coverage_sentences(evidence, found)),
        ("Calibration", shape),
        ("Alternatives", findings.comparison_sentences(found)),
        *uncertainty_sentences(evidence, *drivers),
        *(("Test rows", words) for words in found.warnings),
    ]
    parts = {
        "Verdict": page.verdict_html(board.verdict, details),
        "Leaderboard" if found.others else "Scores": _leaderboard(board.entries),
        "Data": _data(evidence, target),
        "Accuracy": _accuracy(evidence, target, str(task.get("note") or _UNSEEN)),
        "Calibration": _calibration(model, evidence, pit, shape),
        "Uncertainty": _uncertainty(evidence, drivers),
        "Importance": _importance(importances),
        "Effects": effects_section(explanation, target),
        "Best and worst rows": _rows(evidence, importances, str(task.get("numbering") or _NUMBERING)),
        "Training": _training(model),
        "Reproduction": page.definitions(reproduction(model, evidence, task), code=True),
    }
    return {title: html for title, html in parts.items() if html}


def _leaderboard(rows: Sequence[Mapping[str, Any]]) -> str:
    """The scores of all candidates, and what the columns mean."""
    notes = [
        ("Weight", "Share of a member in the mixture."),
        ("MAE", "Mean absolute error of the predicted median, in counts."),
        ("CRPS", "Error of the whole predicted distribution, in counts: small if it is both narrow and right."),
        ("NLL", "Mean negative log-likelihood: large if counts occurred that the model considered unlikely."),
        ("Coverage", "Share of rows inside the interval."),
        ("Width", "Mean of upper minus lower end. A narrow interval is good only if its coverage is right."),
        ("Seconds", "Time to fit."),
        ("Bold", "Smallest MAE, CRPS and NLL; coverage nearest to the nominal one."),
    ]
    shown = {title.lower() for title, _ in notes if any(row.get(title.lower()) is not None for row in rows)} | {"bold"}
    caption = "The model (mixture), its members and what it is compared with, on the same rows"
    return page.grid_html(grids.score_grid(rows), caption) + (
        page.definitions([(title, words) for title, words in notes if title.lower() in shown], "notes")
    )


def _data(evidence: Evidence, target: str) -> str:
    grid, more = grids.column_grid(evidence.columns)
    drawn = ""
    if len(evidence.y) < evidence.total:
        why = "the others have no weight" if len(evidence.y) < MAX_ROWS else "a random sample, which is enough"
        drawn = f"Of {plural(evidence.total, 'row')}, {len(evidence.y):,} are evaluated: {why}."
    words = page.heading("Dispersion") + page.paragraphs(*findings.dispersion_sentences(evidence))
    return (
        page.definitions(grids.data_facts(evidence, target), "facts")
        + page.paragraphs(drawn)
        + page.pair(words, predictions.counts_figure(evidence, target))
        + page.grid_html(grid, "Columns", words=True)
        + page.paragraphs(more)
    )


def _accuracy(evidence: Evidence, target: str, note: str) -> str:
    """Predicted means and interval widths of the model, the latter beside those of the best alternative."""
    figures = predictions.scatter_figure(evidence, target), predictions.sharpness_figure(evidence)
    return page.paragraphs(note) + page.pair(*figures)


def _calibration(model: Any, evidence: Evidence, pit: predictions.Pit, shape: str) -> str:
    """The PIT histogram, before and after recalibration, and the coverage within groups that are calibrated."""
    html = page.pair(predictions.pit_figure(pit, shape), predictions.coverage_figure(evidence))
    more = []
    if evidence.base is not None:
        before = predictions.pit_of(evidence, evidence.base)
        words = findings.pit_sentence(before)
        more.append(predictions.pit_figure(before, words, "pit-before", "PIT histogram before recalibration"))
    groups = uncertainty.calibration_groups(evidence)
    if groups:
        more.append(uncertainty.calibrated_coverage_figure(groups, model.predictor_.groups.rows))
    words = page.paragraphs(findings.recalibration_sentences(model.predictor_.recalibration))
    return words + html + (page.pair(*more) if more else "")


def _uncertainty(evidence: Evidence, drivers: list[list[Group]]) -> str:
    groups = uncertainty.fifths(evidence)
    html = page.pair(uncertainty.split_figure(groups), uncertainty.group_coverage_figure(groups))
    # The same column may drive both parts, and is shown once.
    for name, found in {each[0].column: each for each in drivers if each}.items():
        html += page.grid_html(grids.group_grid(found), f"Uncertainty by {name}")
    return html


def _importance(found: Importances) -> str:
    if found.each:
        notes = page.heading("How to read these figures") + page.definitions(uncertainty.importance_notes(found))
        return page.pair(*uncertainty.importance_figures(found), notes)
    return page.paragraphs(f"Not measured: {plural(found.columns, 'column')} are too many to shuffle.")


def _rows(evidence: Evidence, importances: Importances, numbering: str) -> str:
    order = [one.position for one in importances.by("crps") if one.role == "column"]
    html = ""
    for name, rows in zip(("best", "worst"), grids.extremes(evidence), strict=True):
        cards = [
            page.card(
                grids.row_title(evidence, row),
                predictions.distribution_svg(evidence, row, f"{name}-{i}"),
                grids.row_facts(evidence, row),
                grids.row_cells(evidence, row, order),
            )
            for i, row in enumerate(rows)
        ]
        html += page.heading(f"Predicted {name}") + page.cards(cards) if cards else ""
    words = f"By CRPS. The vertical line is the observed count. {numbering} Important columns come first."
    return page.paragraphs(words) + html if html else ""


def _networks(model: Any) -> Any:
    """The networks of a model, or one copy of them."""
    return copies_of(model.predictor_.members[NETWORKS])[0]


def _training(model: Any) -> str:
    history = getattr(model, "history_", None)
    if history is None or not history.epochs:
        return ""
    figures = page.pair(*training_figures(history, _networks(model).options.score))
    return page.paragraphs(training_sentences(model, history)) + figures
