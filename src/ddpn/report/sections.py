"""The sections of a report, in their order: what is said, with its figures."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ddpn.report import content, page
from ddpn.report.dispersion import dispersion
from ddpn.report.evidence import MAX_ROWS, Evidence
from ddpn.report.figures.calibration import counts_figure, coverage_figure, pit_figure, pit_of
from ddpn.report.figures.predictions import pmf_svg, scatter_figure, sharpness_figure
from ddpn.report.figures.training import training_figures
from ddpn.report.figures.uncertainty import held_figure, importance_figures, split_figure
from ddpn.report.importance import Importances
from ddpn.report.numbers import plural
from ddpn.report.page import Section
from ddpn.report.reproduction import reproduction, training_words
from ddpn.report.uncertainty import Driver, driver, unsure_words
from ddpn.report.verdict import rivals, verdict


def _scores(calibrated: bool) -> tuple[tuple[str, str], ...]:
    """What the columns of the scores are."""
    inside = "." if calibrated else "; in brackets, how often the law itself expects it to."
    nearest = "90%" if calibrated else "the law's own claim"
    return (
        ("MAE", "Mean absolute error of the predicted median, in counts."),
        ("CRPS", "The error of the whole predicted law, in counts: small where it is both sure and right."),
        ("NLL", "Mean negative log-likelihood: large where something was seen that the law thought unlikely."),
        ("Coverage", f"How often the interval held{inside}"),
        ("Width", "Upper minus lower end, on average. Narrow is good only where the coverage holds."),
        ("Bold", f"The best: smallest MAE, CRPS and NLL, and the coverage nearest to {nearest}."),
    )


_HONEST = "The scores tell of new rows only if none of the rows judged took part in the training."


class Findings(NamedTuple):
    """All that the sections are made of."""

    model: Any
    evidence: Evidence
    importances: Importances
    target: str
    task: Mapping[str, Any]


def sections(found: Findings) -> list[Section]:
    """All of them; those with nothing to show are left out."""
    parts = [
        Section("verdict", "Verdict", _verdict(found)),
        Section("data", "Data", _data(found)),
        Section("accuracy", "Accuracy", _accuracy(found)),
        Section("calibration", "Calibration", _calibration(found)),
        Section("uncertainty", "Uncertainty", _uncertainty(found)),
        Section("drivers", "What drives it", _drivers(found)),
        Section("rows", "Best and worst rows", _rows(found)),
        Section("training", "Training", _training(found)),
        Section("reproduce", "How to reproduce it", _reproduction(found)),
    ]
    return [part for part in parts if part.html]


def _verdict(found: Findings) -> str:
    told = unsure_words(found.evidence, *_drivers_of(found))
    shape = content.pit_shape(pit_of(found.evidence))
    return page.verdict_html(verdict(found.evidence, found.target, shape, told))


def _drivers_of(found: Findings) -> tuple[Driver | None, Driver | None]:
    """Of the aleatoric and of the epistemic part."""
    aleatoric, epistemic = (driver(found.importances, found.evidence, part) for part in ("aleatoric", "epistemic"))
    return aleatoric, epistemic


def _data(found: Findings) -> str:
    evidence = found.evidence
    grid, more = content.column_grid(evidence.columns)
    drawn = ""
    if len(evidence.y) < evidence.total:
        why = "the others have no weight" if len(evidence.y) < MAX_ROWS else "drawn at random, which is enough"
        drawn = f"Of {plural(evidence.total, 'row')}, {len(evidence.y):,} are judged: {why}."
    words = content.dispersion_words(dispersion(evidence), evidence.exposure is not None)
    return (
        page.tiles(content.data_facts(evidence, found.target))
        + page.paragraphs(drawn)
        + page.pair(
            page.heading("Dispersion") + page.paragraphs(*words),
            page.figure_html(counts_figure(evidence, found.target)),
        )
        + page.grid_html(grid, "The columns", words=True)
        + page.paragraphs(more)
    )


def _accuracy(found: Findings) -> str:
    against = rivals(found.evidence)
    rival = against[0].name if against else None
    grid = content.score_grid(found.evidence, against)
    caption = "This model and the baselines, on the same rows" if against else "Scores of this model"
    figures = [scatter_figure(found.evidence, found.target), sharpness_figure(found.evidence, rival)]
    return (
        page.grid_html(grid, caption)
        + page.notes(_scores(bool(found.evidence.calibrated)))
        + page.paragraphs(str(found.task.get("note") or _HONEST))
        + page.figures_html(figures)
    )


def _calibration(found: Findings) -> str:
    pit = pit_of(found.evidence)
    words = f"Where in its predicted law each count fell; flat is calibrated. {content.pit_shape(pit)}"
    return page.figures_html([pit_figure(pit, words), coverage_figure(found.evidence)])


def _uncertainty(found: Findings) -> str:
    tables = []
    # One column may drive both parts, and is shown once.
    for name, groups in {one.name: one.groups for one in _drivers_of(found) if one is not None}.items():
        tables.append(page.grid_html(content.group_grid(name, groups), f"How sure the model is, by {name}"))
    return page.figures_html([split_figure(found.evidence), held_figure(found.evidence)]) + "".join(tables)


def _drivers(found: Findings) -> str:
    if not found.importances.each:
        return page.paragraphs(
            f"{plural(found.importances.columns, 'column')} are too many to be shuffled one by one, so none was."
        )
    return page.figures_html(importance_figures(found.importances))


def _rows(found: Findings) -> str:
    evidence = found.evidence
    best, worst = content.extremes(evidence)
    order = [one.column for one in found.importances.by("crps") if one.column >= 0]
    parts = []
    for title, name, rows in (("Predicted best", "best", best), ("Predicted worst", "worst", worst)):
        cards = [
            (content.single(evidence, row, order), pmf_svg(evidence, row, f"{name}-{i}")) for i, row in enumerate(rows)
        ]
        parts += [page.heading(title), page.rows_html(cards)] if cards else []
    told = (
        "By their CRPS. The upright line is the observed count. Rows are counted from 0; columns by their importance."
    )
    return page.paragraphs(told) + "".join(parts) if parts else ""


def _training(found: Findings) -> str:
    history = getattr(found.model, "history_", None)
    if history is None or not history.epochs:
        return ""
    figures = training_figures(history, found.model.score_on)
    return page.paragraphs(training_words(found.model, history)) + page.figures_html(figures)


def _reproduction(found: Findings) -> str:
    return page.definitions(reproduction(found.model, found.evidence, found.task), code=True)
