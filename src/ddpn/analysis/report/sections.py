"""`write_report`: from a fitted model and a test set to one HTML file, section by section."""

import json
import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch.distributions import Distribution

from ddpn.analysis.explanations import Effects, Explanation, Importance, Importances, effects, importance
from ddpn.analysis.explanations.column_effects import is_missing
from ddpn.analysis.figure_data import Pit
from ddpn.analysis.gains import weighted_mean, weighted_quantile
from ddpn.analysis.leaderboard import Leaderboard
from ddpn.analysis.report import figures, page
from ddpn.analysis.report.evidence import (
    LEVEL,
    MAX_ROWS,
    SEED,
    Evidence,
    RowGroup,
    coverage_sentences,
    dispersion_sentences,
    error_sentences,
    gather,
    group_of,
    groups_by,
    pit_sentence,
    recalibration_sentences,
    uncertainty_sentences,
)
from ddpn.members import label_of
from ddpn.members.folds import copies_of
from ddpn.members.networks import Networks
from ddpn.runtime.display import fmt, percent, plural, value_text
from ddpn.runtime.errors import InputError
from ddpn.tables.encoding.table import Column
from ddpn.tables.splits import rows_words

#: Columns in the table of columns, levels in their descriptions, and columns of a single row.
_COLUMNS, _LISTED, _CELLS = 40, 4, 12
#: Columns whose effects are shown: the most important ones for the mean, some of them for the spread.
_EFFECTS, _FOR_SPREAD = 6, 2
#: Groups of rows by predicted mean, columns that rows are grouped by, and groups of calibrated intervals.
_FIFTHS, _GROUPED, _GROUPS = 5, 2, 12
#: Rows predicted best and worst.
_EXTREMES = 3
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
        The labels of the groups that intervals are calibrated by, if they are not a column of X.
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
    evidence = gather(
        model,
        X,
        y,
        exposure,
        weight,
        upper,
        censored,
        baselines=baselines,
        leak=leak,
        meaning=meaning,
        labels=labels,
        ids=ids,
        groups=groups,
        interval_groups=interval_groups,
        names={role: str(known[role]) for role in ("exposure", "upper") if known.get(role)},
        progress=step,
    )
    found = explanation_of(evidence, step)
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
    pit, board = _pit(evidence, evidence.dist), evidence.board
    found, shape = board.evaluation, pit_sentence(pit)
    importances = explanation.importance or Importances([], 0, len(evidence.inputs.columns))
    by_column = important_groups(importances, evidence)
    details = [
        ("Typical error", error_sentences(evidence, target)),
        (f"{_PERCENT} interval", coverage_sentences(evidence, found)),
        ("Calibration", shape),
        *uncertainty_sentences(evidence, [group for each in by_column for group in each]),
        *(("Test rows", words) for words in found.warnings),
    ]
    parts = {
        "Verdict": page.headline_html(board.verdict.level, board.verdict.headline, details),
        "Leaderboard" if found.others else "Scores": _leaderboard(board),
        "Data": _data(evidence, target),
        "Accuracy": page.paragraphs(str(task.get("note") or _UNSEEN))
        + page.pair(figures.scatter_figure(evidence, target), figures.sharpness_figure(evidence)),
        "Calibration": _calibration(model, evidence, pit, shape),
        "Uncertainty": _uncertainty(evidence, by_column),
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

_SCORES = [
    ("Weight", "Share of a member in the mixture."),
    ("CRPS", "Error of the whole predicted distribution, in counts: small if it is both narrow and right."),
    ("NLL", "Mean negative log-likelihood: large if counts occurred that the model considered unlikely."),
    ("MAE", "Mean absolute error of the predicted median, in counts."),
    ("Coverage", "Share of rows inside the interval."),
    ("Width", "Mean of upper minus lower end. A narrow interval is good only if its coverage is right."),
    ("Fit, s", "Seconds to fit."),
]


def _leaderboard(board: Leaderboard) -> str:
    """The scores of all candidates, and what the columns mean."""
    caption = "The model (mixture), its members and what it is compared with, on the same rows; bold: the smallest CRPS"
    return page.table_html(*board.cells(), caption=caption) + page.definitions(_SCORES, "notes")


# Data ----------------------------------------------------------------------------------------------------------------


def _data(evidence: Evidence, target: str) -> str:
    columns = evidence.columns[:_COLUMNS]
    rows = [(c.name, _KINDS[c.kind][0], description(c), percent(is_missing(c).mean())) for c in columns]
    left = len(evidence.columns) - len(columns)
    drawn = ""
    if len(evidence.y) < evidence.total:
        why = "the others have no weight" if len(evidence.y) < MAX_ROWS else "a random sample, which is enough"
        drawn = f"Of {plural(evidence.total, 'row')}, {len(evidence.y):,} are evaluated: {why}."
    words = page.heading("Dispersion") + page.paragraphs(dispersion_sentences(evidence))
    return (
        page.definitions(data_facts(evidence, target), "facts")
        + page.paragraphs(drawn)
        + page.pair(words, figures.counts_figure(evidence, target))
        + page.table_html(("Column", "Kind", "Values", "Missing"), rows, caption="Columns", words=True)
        + page.paragraphs(f"And {plural(left, 'more column')}." if left else "")
    )


def data_facts(evidence: Evidence, target: str) -> list[tuple[str, str]]:
    """The counts and columns in a few numbers."""
    y, weight = evidence.y, evidence.weight
    centre, rows = weighted_mean(y, weight), plural(len(y), "row")
    number = Counter(column.kind for column in evidence.columns)
    kinds = ", ".join(plural(number[kind], *words) for kind, words in _KINDS.items() if number[kind])
    facts = [
        ("Rows evaluated", rows if len(y) == evidence.total else f"{rows} of {evidence.total:,}"),
        (f"Mean {target}", fmt(centre)),
        ("Variance", fmt(weighted_mean(np.square(y - centre), weight))),
        ("Minimum, median, maximum", " · ".join(fmt(v) for v in (y.min(), weighted_quantile(y, weight, 0.5), y.max()))),
        ("Zeros", percent(weighted_mean((y == 0).astype(float), weight))),
        ("Columns", kinds),
    ]
    if evidence.exposure is not None:
        facts.append(("Exposure", f"{fmt(evidence.exposure.min())} to {fmt(evidence.exposure.max())}"))
    if evidence.weighted:
        facts.append(("Weights", f"{fmt(weight.min())} to {fmt(weight.max())}"))
    return facts


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
        words = pit_sentence(before)
        more.append(figures.pit_figure(before, words, "pit-before", "PIT histogram before recalibration"))
    if groups := calibration_groups(evidence):
        more.append(figures.calibrated_coverage_figure(groups, model.predictor_.groups.rows))
    words = page.paragraphs(recalibration_sentences(model.predictor_.recalibration))
    return words + html + (page.pair(*more) if more else "")


def calibration_groups(evidence: Evidence) -> list[RowGroup]:
    """The largest of the groups that intervals are calibrated by, in the order of their names."""
    if evidence.grouped is None:
        return []
    name, labels = evidence.grouped
    largest = sorted(label for label, _ in Counter(labels.tolist()).most_common(_GROUPS))
    return [group_of(name, label, evidence, np.flatnonzero(labels == label)) for label in largest]


def _uncertainty(evidence: Evidence, by_column: list[list[RowGroup]]) -> str:
    groups = fifths(evidence)
    html = page.pair(figures.split_figure(groups), figures.group_coverage_figure(groups))
    for found in by_column:
        name = found[0].column
        headings = (name, "Rows", "Mean count", "Std. dev.", "MAE", "Epistemic share", f"{_PERCENT} coverage")
        rows = []
        for g in found:
            means = (_decimal(value) for value in (g.observed, g.variance**0.5, g.mae))
            rows.append((g.label, f"{g.rows:,}", *means, percent(g.share), percent(g.coverage)))
        html += page.table_html(headings, rows, caption=f"Uncertainty by {name}")
    return html


def fifths(evidence: Evidence) -> list[RowGroup]:
    """Rows in up to five groups by their predicted mean, the smallest first."""
    parts = np.array_split(np.argsort(evidence.mean, kind="stable"), min(_FIFTHS, len(evidence.mean)))
    labels = (" to ".join(fmt(float(f"{evidence.mean[row]:.3g}")) for row in part[[0, -1]]) for part in parts)
    return [group_of("predicted mean", label, evidence, part) for label, part in zip(labels, parts, strict=True)]


def important_groups(found: Importances, evidence: Evidence) -> list[list[RowGroup]]:
    """The groups by each of the columns that are most important for the predictions."""
    needed = [one for one in found.by("crps")[:_GROUPED] if one.crps.mean() > 0]
    return [groups_by(evidence.inputs.columns, one.position, evidence) for one in needed]


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
