"""The sections of a report: what each of them shows, as HTML."""

import json
import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from ddpn.analysis.explanations import Effects, Explanation, Importance, Importances, effects, importance
from ddpn.analysis.explanations.grid import is_missing
from ddpn.analysis.figure_data import Pit
from ddpn.analysis.numbers import fmt, mean, percent, plural, quantile, value_text
from ddpn.analysis.report import figures, findings, page
from ddpn.analysis.report.evidence import (
    LEVEL,
    MAX_ROWS,
    SEED,
    Evidence,
    RowGroup,
    group_of,
    groups_by,
)
from ddpn.members import label_of
from ddpn.members.folds import copies_of
from ddpn.members.networks import Networks
from ddpn.tables.encoding.table import Column
from ddpn.tables.splits import rows_words

#: Columns in the table of columns, levels in their descriptions, and columns of a single row.
_COLUMNS, _LISTED, _CELLS = 40, 4, 12
#: Columns whose effects are shown: the most important ones for the mean, some of them for the spread.
_EFFECTS, _FOR_SPREAD = 6, 2
#: Groups of rows by predicted mean, groups of calibrated intervals, and rows predicted best and worst.
_FIFTHS, _GROUPS, _EXTREMES = 5, 12, 3
_PERCENT = percent(LEVEL, 0)
_KINDS = {"number": ("number", "numbers"), "flag": ("yes/no", "yes/no"), "category": ("category", "categories")}
_UNSEEN = "These scores hold for new rows only if none of the evaluated rows was used for training."
_NUMBERING = "Rows are called by the index of the data frame or, in other tables, by their position from 0."
_PACKAGES = ("ddpn", "torch", "numpy", "scipy", "scikit-learn")
#: Entries of a task that are shown elsewhere.
_SHOWN = {"command", "target", "note", "numbering"}
#: Arguments of a model that are shown by other facts, or that say how it was run.
_SHOWN_ELSEWHERE = {"likelihood", "random_state", "validation", "verbose"}
_decimal = partial(fmt, integers=False)


def sections(
    model: Any, evidence: Evidence, explanation: Explanation, target: str, task: Mapping[str, Any]
) -> dict[str, str]:
    """The HTML of every section that has something to show, by its title."""
    pit, board = _pit(evidence, evidence.dist), evidence.board
    found, shape = board.evaluation, findings.pit_sentence(pit)
    importances = explanation.importance or Importances([], 0, len(evidence.inputs.columns))
    drivers = [driving_groups(importances, evidence, part) for part in ("aleatoric", "epistemic")]
    details = [
        ("Typical error", findings.error_sentences(evidence, target)),
        (f"{_PERCENT} interval", findings.coverage_sentences(evidence, found)),
        ("Calibration", shape),
        ("Alternatives", findings.comparison_sentences(found)),
        *findings.uncertainty_sentences(evidence, *drivers),
        *(("Test rows", words) for words in found.warnings),
    ]
    parts = {
        "Verdict": page.headline_html(board.verdict.level, board.verdict.headline, details),
        "Leaderboard" if found.others else "Scores": leaderboard_section(board.entries),
        "Data": _data(evidence, target),
        "Accuracy": page.paragraphs(str(task.get("note") or _UNSEEN))
        + page.pair(figures.scatter_figure(evidence, target), figures.sharpness_figure(evidence)),
        "Calibration": _calibration(model, evidence, pit, shape),
        "Uncertainty": _uncertainty(evidence, drivers),
        "Importance": _importance(importances),
        "Effects": _effects(explanation.effects, target),
        "Best and worst rows": _rows(evidence, importances, str(task.get("numbering") or _NUMBERING)),
        "Training": _training(model),
        "Reproduction": page.definitions(reproduction(model, evidence, task), code=True),
    }
    return {title: html for title, html in parts.items() if html}


def _pit(evidence: Evidence, dist: Any) -> Pit:
    return Pit.of(dist, evidence.y, evidence.weight)


# Leaderboard ---------------------------------------------------------------------------------------------------------

#: Scores in the order of their columns: the heading, the text of a value, and what it means.
_SCORES: dict[str, tuple[str, Callable[[float], str], str]] = {
    "weight": ("Weight", lambda share: percent(share, 0), "Share of a member in the mixture."),
    "mae": ("MAE", _decimal, "Mean absolute error of the predicted median, in counts."),
    "crps": (
        "CRPS",
        _decimal,
        "Error of the whole predicted distribution, in counts: small if it is both narrow and right.",
    ),
    "nll": (
        "NLL",
        _decimal,
        "Mean negative log-likelihood: large if counts occurred that the model considered unlikely.",
    ),
    "coverage": (f"{_PERCENT} coverage", percent, "Share of rows inside the interval."),
    "width": (
        f"{_PERCENT} width",
        _decimal,
        "Mean of upper minus lower end. A narrow interval is good only if its coverage is right.",
    ),
    "seconds": ("Seconds", _decimal, "Time to fit."),
}
_BOLD = "Smallest MAE, CRPS and NLL; coverage nearest to the nominal one."


def leaderboard_section(rows: Sequence[Mapping[str, Any]]) -> str:
    """The scores of all candidates, by "label", and what the columns mean.

    Scores that a candidate does not have are a dash. The smallest "mae", "crps" and "nll" is marked, and the "coverage"
    nearest to the nominal one. A narrow interval alone is no merit, so widths have no best.
    """
    names = [name for name in _SCORES if any(row.get(name) is not None for row in rows)]
    values = np.array([[row.get(name) for name in names] for row in rows], dtype=float)
    losses = {name: values[:, j] for j, name in enumerate(names) if name in ("mae", "crps", "nll", "coverage")}
    if "coverage" in names:
        losses["coverage"] = np.abs(losses["coverage"] - LEVEL)
    texts = [["–" if np.isnan(v) else _SCORES[n][1](v) for n, v in zip(names, each, strict=True)] for each in values]
    best = {(int(i), 1 + names.index(n)) for n, loss in losses.items() for i in np.flatnonzero(loss == np.nanmin(loss))}
    table = page.TextTable(
        ("Model", *(_SCORES[name][0] for name in names)),
        [(str(row["label"]), *cells) for row, cells in zip(rows, texts, strict=True)],
        frozenset(best if len(rows) > 1 else ()),
    )
    titles = [_SCORES[name][0].removeprefix(f"{_PERCENT} ") for name in names]
    notes = [(title[:1].upper() + title[1:], _SCORES[name][2]) for title, name in zip(titles, names, strict=True)]
    caption = "The model (mixture), its members and what it is compared with, on the same rows"
    return page.table_html(table, caption) + page.definitions([*notes, ("Bold", _BOLD)], "notes")


# Data ----------------------------------------------------------------------------------------------------------------


def _data(evidence: Evidence, target: str) -> str:
    table, more = column_table(evidence.columns)
    drawn = ""
    if len(evidence.y) < evidence.total:
        why = "the others have no weight" if len(evidence.y) < MAX_ROWS else "a random sample, which is enough"
        drawn = f"Of {plural(evidence.total, 'row')}, {len(evidence.y):,} are evaluated: {why}."
    words = page.heading("Dispersion") + page.paragraphs(*findings.dispersion_sentences(evidence))
    return (
        page.definitions(data_facts(evidence, target), "facts")
        + page.paragraphs(drawn)
        + page.pair(words, figures.counts_figure(evidence, target))
        + page.table_html(table, "Columns", words=True)
        + page.paragraphs(more)
    )


def data_facts(evidence: Evidence, target: str) -> list[tuple[str, str]]:
    """The counts and columns in a few numbers."""
    y, weight = evidence.y, evidence.weight
    centre, rows = mean(y, weight), plural(len(y), "row")
    number = Counter(column.kind for column in evidence.columns)
    kinds = ", ".join(plural(number[kind], *words) for kind, words in _KINDS.items() if number[kind])
    facts = [
        ("Rows evaluated", rows if len(y) == evidence.total else f"{rows} of {evidence.total:,}"),
        (f"Mean {target}", fmt(centre)),
        ("Variance", fmt(mean(np.square(y - centre), weight))),
        ("Minimum, median, maximum", " · ".join(fmt(v) for v in (y.min(), quantile(y, weight, 0.5), y.max()))),
        ("Zeros", percent(mean((y == 0).astype(float), weight))),
        ("Columns", kinds),
    ]
    if evidence.exposure is not None:
        facts.append(("Exposure", f"{fmt(evidence.exposure.min())} to {fmt(evidence.exposure.max())}"))
    if evidence.weighted:
        facts.append(("Weights", f"{fmt(weight.min())} to {fmt(weight.max())}"))
    return facts


def column_table(columns: list[Column]) -> tuple[page.TextTable, str]:
    """Kind, values and missing values of every column; and a sentence where some are left out."""
    rows = [(c.name, _KINDS[c.kind][0], description(c), percent(is_missing(c).mean())) for c in columns[:_COLUMNS]]
    left = len(columns) - len(rows)
    headings = ("Column", "Kind", "Values", "Missing")
    return page.TextTable(headings, rows), f"And {plural(left, 'more column')}." if left else ""


def description(column: Column) -> str:
    """The values of a column in a few words."""
    if column.kind == "category":
        number = Counter(column.values[~is_missing(column)].tolist())
        order = sorted(number, key=lambda level: (-number[level], column.levels[level]))
        shown = ", ".join(column.levels[level] for level in order[:_LISTED])
        return shown if len(order) <= _LISTED else f"{shown}, … ({len(order):,} levels)"
    known = column.values[~is_missing(column)]
    if not len(known):
        return "none"
    if column.kind == "flag":
        return f"{percent(float(known.mean()))} yes"
    if np.isin(known, (0.0, 1.0)).all():
        return f"0 or 1, {percent(float(known.mean()))} are 1"
    least, middle, most = (value_text(float(value)) for value in (known.min(), np.median(known), known.max()))
    return f"{least} to {most}, median {middle}"


# Calibration and uncertainty -----------------------------------------------------------------------------------------


def _calibration(model: Any, evidence: Evidence, pit: Pit, shape: str) -> str:
    """The PIT histogram, before and after recalibration, and the coverage within groups that are calibrated."""
    html = page.pair(figures.pit_figure(pit, shape), figures.coverage_figure(evidence))
    more = []
    if evidence.base is not None:
        before = _pit(evidence, evidence.base)
        words = findings.pit_sentence(before)
        more.append(figures.pit_figure(before, words, "pit-before", "PIT histogram before recalibration"))
    if groups := calibration_groups(evidence):
        more.append(figures.calibrated_coverage_figure(groups, model.predictor_.groups.rows))
    words = page.paragraphs(findings.recalibration_sentences(model.predictor_.recalibration))
    return words + html + (page.pair(*more) if more else "")


def calibration_groups(evidence: Evidence) -> list[RowGroup]:
    """The largest of the groups that intervals are calibrated by, in the order of their names."""
    if evidence.grouped is None:
        return []
    name, labels = evidence.grouped
    largest = sorted(label for label, _ in Counter(labels.tolist()).most_common(_GROUPS))
    return [group_of(name, label, evidence, np.flatnonzero(labels == label)) for label in largest]


def _uncertainty(evidence: Evidence, drivers: list[list[RowGroup]]) -> str:
    groups = fifths(evidence)
    html = page.pair(figures.split_figure(groups), figures.group_coverage_figure(groups))
    # The same column may drive both parts, and is shown once.
    for name, found in {each[0].column: each for each in drivers if each}.items():
        headings = (name, "Rows", "Mean count", "Std. dev.", "MAE", "Epistemic share", f"{_PERCENT} coverage")
        rows = []
        for g in found:
            means = (_decimal(value) for value in (g.observed, g.variance**0.5, g.mae))
            rows.append((g.label, f"{g.rows:,}", *means, percent(g.share), percent(g.coverage)))
        html += page.table_html(page.TextTable(headings, rows), f"Uncertainty by {name}")
    return html


def fifths(evidence: Evidence) -> list[RowGroup]:
    """Rows in up to five groups by their predicted mean, the smallest first."""
    parts = np.array_split(np.argsort(evidence.mean, kind="stable"), min(_FIFTHS, len(evidence.mean)))
    labels = (" to ".join(fmt(float(f"{evidence.mean[row]:.3g}")) for row in part[[0, -1]]) for part in parts)
    return [group_of("predicted mean", label, evidence, part) for label, part in zip(labels, parts, strict=True)]


def driving_groups(found: Importances, evidence: Evidence, part: str) -> list[RowGroup]:
    """The groups of the column whose shuffling changes this part of the variance most: "aleatoric" or "epistemic"."""
    first = next(iter(found.by(part)), None)
    if first is None or getattr(first, part).mean() <= 0:
        return []
    return groups_by(evidence.inputs.columns, first.position, evidence)


# Explanations --------------------------------------------------------------------------------------------------------


def explanation_of(evidence: Evidence, progress: Callable[[str], object]) -> Explanation:
    """Shuffle every column, and measure the effects of the most important ones."""
    found = importance(evidence.inputs, seed=SEED, progress=progress)
    if not found.each:
        return Explanation(Effects([], 0), found)
    chosen = [one.position for one in _important(found)]
    return Explanation(effects(evidence.inputs, chosen, seed=SEED, progress=progress), found)


def _important(found: Importances) -> list[Importance]:
    """The columns to show: by their importance for the mean, the last ones by that for the spread."""
    first, rest = found.by("mean")[: _EFFECTS - _FOR_SPREAD], found.by("mean")[_EFFECTS - _FOR_SPREAD :]
    chosen = first + [one for one in found.by("spread") if one not in first][:_FOR_SPREAD]
    return chosen + [one for one in rest if one not in chosen][: _EFFECTS - len(chosen)]


def _importance(found: Importances) -> str:
    if not found.each:
        return page.paragraphs(f"Not measured: {plural(found.columns, 'column')} are too many to shuffle.")
    repeats = plural(len(found.each[0].crps), "time")
    notes = [
        (
            "Shuffling",
            f"Each column is shuffled {repeats} on {plural(found.rows, 'row')}: that removes its information.",
        ),
        ("Bars and lines", "The mean of the repeats, and their range."),
        ("Predictions", "Increase of the CRPS, the error of the whole distribution. Columns near 0 are not needed."),
        ("Mean", "Mean change of a row's predicted mean, up or down, relative to the average mean."),
        ("Spread", "The same for variance / mean. A column that changes the mean of a Poisson alone has none."),
        ("Similar columns", "Columns that can replace each other share their importance."),
    ]
    return page.pair(
        figures.importance_figure(found, "crps", "Importance for the predictions", "increase of the CRPS"),
        figures.importance_figure(found, "mean", "Importance for the mean", "change of the mean"),
        figures.importance_figure(found, "spread", "Importance for the spread", "change of variance / mean"),
        page.heading("How to read these figures") + page.definitions(notes),
    )


def _effects(found: Effects, target: str) -> str:
    """Curves of the mean and of the spread side by side; empty where nothing was measured."""
    if not found.each:
        return ""
    spread = "as the standard deviation."
    if found.each[0].mean.log:
        spread = "as variance / mean, which is 1 for a Poisson; a column may change one without the other."
    html = page.paragraphs(
        f"How the prediction of {target} changes with one column, for a typical row (accumulated local effects on "
        f"{plural(found.rows, 'row')}). Each row is moved only to values near its own, so no unlikely combination of "
        f"columns is predicted. Left: the mean. Right: the spread, {spread}",
        "The dotted line is the typical row. Bands and whiskers are 90% intervals: other rows, and networks or other "
        "members that disagree. Marks at the bottom have equally many rows between them. All figures of a side have "
        "the same scale, so a flat line is a weak effect. These are effects in the model, not causes.",
    )
    return html + "".join(page.pair(*both) for both in figures.effect_figures(found))


# Single rows ---------------------------------------------------------------------------------------------------------


def _rows(evidence: Evidence, importances: Importances, numbering: str) -> str:
    width = evidence.inputs.width
    order = [one.position for one in importances.by("crps") if one.position < width]
    order += [j for j in range(width) if j not in set(order)]
    ranked = np.argsort(evidence.scores.crps, kind="stable").tolist()
    number = min(_EXTREMES, len(ranked) // 2)
    html = ""
    for name, rows in (("best", ranked[:number]), ("worst", ranked[len(ranked) - number :][::-1])):
        cards = [_card(evidence, row, f"{name}-{i}", order[:_CELLS]) for i, row in enumerate(rows)]
        html += page.heading(f"Predicted {name}") + page.cards(cards) if cards else ""
    words = f"By CRPS. The vertical line is the observed count. {numbering} Important columns come first."
    return page.paragraphs(words) + html if html else ""


def _card(evidence: Evidence, row: int, name: str, columns: Sequence[int]) -> str:
    """A row with its distribution, the prediction and its scores, and some of its columns."""
    title = f"Row {evidence.labels[row]}"
    if evidence.ids is not None:
        title += f", {evidence.ids[0]} {evidence.ids[1][row]}"
    facts = [
        ("Observed", fmt(evidence.y[row])),
        ("Predicted mean", fmt(evidence.mean[row])),
        (f"{_PERCENT} interval", f"{fmt(evidence.low[row])} to {fmt(evidence.high[row])}"),
        ("Probability of the observed count", percent(float(np.exp(-evidence.scores.nll[row])))),
        ("CRPS", fmt(evidence.scores.crps[row])),
        *([] if evidence.exposure is None else [("Exposure", fmt(evidence.exposure[row]))]),
    ]
    cells = [(column.name, cell_text(column, row)) for column in (evidence.columns[j] for j in columns)]
    return page.card(title, figures.distribution_svg(evidence, row, name), facts, cells)


def cell_text(column: Column, row: int) -> str:
    """One cell as text."""
    if is_missing(column)[row]:
        return "missing"
    value = column.values[row]
    if column.kind == "category":
        return column.levels[int(value)]
    return ("yes" if value else "no") if column.kind == "flag" else f"{value:.6g}"


# Training and reproduction -------------------------------------------------------------------------------------------


def members_text(model: Any) -> str:
    """The members of the mixture with their weights, such as "5 networks (80%) + GLM (20%)"."""
    predictor, parts = model.predictor_, []
    for name, member in predictor.mixed.items():
        label = label_of(name, member)
        number = sum(copy.model.members for copy in copies_of(member) if isinstance(copy, Networks))
        if number:
            label = plural(number, label.removesuffix("s"))
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


def _training(model: Any) -> str:
    """Rows, epochs, time, what went wrong, and the curves of the networks."""
    history = getattr(model, "history_", None)
    if history is None or not history.epochs:
        return ""
    copies = [copy for member in model.predictor_.members.values() for copy in copies_of(member)]
    score = next(copy.options.score for copy in copies if isinstance(copy, Networks))
    words = f"Trained on {fitted_rows(model)}, for {plural(len(history.epochs), 'epoch')} in {fmt(history.seconds)} "
    words += f'seconds, with the numeric encoding "{model.numeric_}".'
    if history.stopped:
        words += f" Stopped: {history.stopped}."
    if history.rollbacks:
        words += f" Rolled back {plural(len(history.rollbacks), 'time')}, last: {history.rollbacks[-1]}."
    curves = (
        figures.training_figure(history, "loss", "Training loss", "loss"),
        figures.training_figure(history, "score", "Validation score", f"validation {score.upper()}"),
    )
    return page.paragraphs(words) + page.pair(*filter(None, curves))


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
        ("Command", _one_line(task.get("command") or "")),
        ("Model", members_text(model)),
        ("Likelihood", likelihood_text(model)),
        ("Training rows", fitted_rows(model)),
        ("Settings", ", ".join(f"{name} = {value!r}" for name, value in options.items())),
        ("Seeds", f"model {getattr(model, 'random_state', None)}; draws of this report {SEED}"),
        ("Data fingerprint", f"sha256 {evidence.fingerprint}"),
        ("Versions of this report", ", ".join(f"{name} {number}" for name, number in versions.items())),
    ]
    given = {str(key).replace("_", " "): v for key, v in task.items() if key not in _SHOWN and v is not None}
    facts = [(name, words) for name, words in facts if words]
    return [*facts, *((key[:1].upper() + key[1:], _one_line(value)) for key, value in given.items())]


def _one_line(value: Any) -> str:
    """Text as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
