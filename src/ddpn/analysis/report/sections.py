"""The sections of a report, in their order: sentences, tables and figures."""

from collections.abc import Mapping, Sequence
from typing import Any

from ddpn.analysis.evaluation import Evaluation
from ddpn.analysis.explanations import Explanation, Importances
from ddpn.analysis.leaderboard import NETWORKS
from ddpn.analysis.report import findings, grids, page
from ddpn.analysis.report.evidence import LEVEL, MAX_ROWS, Evidence
from ddpn.analysis.report.explaining import effects_section
from ddpn.analysis.report.figures import predictions, uncertainty
from ddpn.analysis.report.groups import Group, driving_groups, uncertainty_sentences
from ddpn.analysis.report.numbers import percent, plural
from ddpn.analysis.report.training import reproduction, training_figures, training_sentences
from ddpn.analysis.verdict import verdict
from ddpn.members.folds import copies_of

_UNSEEN = "These scores hold for new rows only if none of the evaluated rows was used for training."
_NUMBERING = "Rows are called by the index of the data frame or, in other tables, by their position from 0."


def sections(
    model: Any,
    evidence: Evidence,
    explanation: Explanation,
    target: str,
    task: Mapping[str, Any],
    leaderboard: Sequence[Mapping[str, Any]],
    leak: str,
    found: Evaluation | None = None,
) -> dict[str, str]:
    """The HTML of every section that has something to show, by its title."""
    pit, found = predictions.pit_of(evidence), found or findings.evaluation(evidence, leak)
    shape = findings.pit_sentence(pit)
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
    names = evidence.ranked
    parts = {
        "Verdict": page.verdict_html(verdict(found), details),
        "Leaderboard" if leaderboard or names else "Scores": _leaderboard(leaderboard, evidence),
        "Data": _data(evidence, target),
        "Accuracy": _accuracy(evidence, target, names, str(task.get("note") or _UNSEEN)),
        "Calibration": _calibration(model, evidence, pit, shape),
        "Uncertainty": _uncertainty(evidence, drivers),
        "Importance": _importance(importances),
        "Effects": effects_section(explanation, target),
        "Best and worst rows": _rows(evidence, importances, str(task.get("numbering") or _NUMBERING)),
        "Training": _training(model),
        "Reproduction": page.definitions(reproduction(model, evidence, task), code=True),
    }
    return {title: html for title, html in parts.items() if html}


def _leaderboard(entries: Sequence[Mapping[str, Any]], evidence: Evidence) -> str:
    """The scores of all candidates, given or of the model and its baselines, and what the columns mean."""
    rows = [*entries] or _own_scores(evidence)
    notes = [
        ("Weight", "Share of a member in the mixture."),
        ("MAE", "Mean absolute error of the predicted median, in counts."),
        ("CRPS", "Error of the whole predicted distribution, in counts: small if it is both narrow and right."),
        ("NLL", "Mean negative log-likelihood: large if counts occurred that the model considered unlikely."),
        ("Coverage", "Share of rows inside the interval."),
        ("Expected", "Share that the distributions predict, as intervals of integers cover more than asked."),
        ("Width", "Mean of upper minus lower end. A narrow interval is good only if its coverage is right."),
        ("Seconds", "Time to fit."),
        ("Bold", "Smallest MAE, CRPS and NLL; coverage nearest to the expected or else to the nominal one."),
    ]
    shown = {title.lower() for title, _ in notes if any(row.get(title.lower()) is not None for row in rows)}
    shown |= {"bold"} if len(rows) > 1 else set()
    caption = "The model (mixture), its members and what it is compared with, on the same rows"
    caption = caption if entries else "This model and the baselines, on the same rows"
    return page.grid_html(grids.score_grid(rows), caption if len(rows) > 1 else "Scores of this model") + (
        page.definitions([(title, words) for title, words in notes if title.lower() in shown], "notes")
    )


def _own_scores(evidence: Evidence) -> list[dict[str, Any]]:
    """The scores of the model and of its baselines, the best one first."""
    candidates = {findings.MODEL: evidence.model} | {name: evidence.baselines[name] for name in evidence.ranked}
    rows: list[dict[str, Any]] = [{"name": name} | one.scores(evidence.weight) for name, one in candidates.items()]
    return [row | {"expected": None} for row in rows] if evidence.calibrated else rows


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


def _accuracy(evidence: Evidence, target: str, names: list[str], note: str) -> str:
    """Predicted means and interval widths of the model, the latter beside those of the best baseline."""
    figures = predictions.scatter_figure(evidence, target), predictions.sharpness_figure(evidence, names[:1])
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
