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
import torch
from sklearn.utils.validation import check_is_fitted
from torch.distributions import Distribution

from ddpn.analysis import plots
from ddpn.analysis.explanations import Effect, Effects, Explanation, Importances, effects, importance
from ddpn.analysis.explanations.inputs import MISSING, cells
from ddpn.analysis.report import page
from ddpn.analysis.report.evidence import (
    LEVEL,
    Evidence,
    RowGroup,
    coverage_sentences,
    error_sentences,
    gather,
    group_of,
    groups_by,
    pit_sentence,
    recalibration_sentences,
    uncertainty_sentences,
)
from ddpn.calibration.calibrate import HeldOut
from ddpn.members import label_of
from ddpn.members.folds import copies_of
from ddpn.members.networks import Networks
from ddpn.predictor import Predictor
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.display import describe_parts, fmt, interval_words, percent, plural, value_text
from ddpn.runtime.errors import InputError
from ddpn.statistics import weighted_mean, weighted_quantile, wilson_interval
from ddpn.storage.files import write_text
from ddpn.tables.row_draw import MAX_ROWS, SEED, check_max_rows, count_drawn, describe_draw

#: Columns of a single row, and columns whose importance is drawn.
_CELLS, _SHOWN = 12, 12
#: Columns whose effects are shown: the most important ones, for the mean or for the spread.
_EFFECTS = 6
#: Groups of rows by predicted mean, columns that rows are grouped by, and groups of calibrated intervals.
_FIFTHS, _GROUPED, _GROUPS = 5, 2, 12
#: Rows predicted best and worst, and rows drawn one by one.
_EXTREMES, _DRAWN = 3, 160
#: Most and fewest bars of a distribution, and the probability left out in each tail.
_BARS, _FEWEST, _LEFT_OUT = 60, 5, 1e-3
_PERCENT = percent(LEVEL, 0)
_UNSEEN = "These scores hold for new rows only if none of the evaluated rows was used for training."
_NUMBERING = "Rows are called by the index of the data frame or, in other tables, by their position from 0."
_COMPARED = "The model (mixture), its members and what it is compared with, on the same rows; bold: the smallest CRPS"
_SCORES = [
    ("Weight", "Share of a member in the mixture."),
    ("CRPS", "Error of the whole predicted distribution, in counts: small if it is both narrow and right."),
    ("NLL", "Mean negative log-likelihood: large if counts occurred that the model considered unlikely."),
    ("MAE", "Mean absolute error of the predicted median, in counts."),
    ("Coverage", "Share of rows inside the interval."),
    ("Expected", "Mean probability of the intervals by their own distributions. The coverage should be near it."),
    ("Width", "Mean of upper minus lower end. A narrow interval is good only if its coverage is right."),
    ("Fit, s", "Seconds to fit."),
]
_PIT = (
    "The probability integral transform (PIT) is the position of each count within its predicted distribution: 0 is "
    "below all of it, 1 above. If the distributions are calibrated, all positions are equally frequent, and the "
    "histogram is flat up to chance.",
    "A valley means that distributions are too narrow, a hill that they are too wide, and a slope that predictions are "
    "too low (up) or too high (down).",
)
_PACKAGES = ("ddpn", "torch", "numpy", "scipy", "scikit-learn")
#: Entries of a task that are shown elsewhere.
_SHOWN_IN_TEXT = {"command", "target", "note", "numbering"}
#: Arguments of a model that are shown by other facts, or that say how it was run.
_SHOWN_ELSEWHERE = {"likelihood", "random_state", "validation", "verbose"}
#: Means are not integers, though they may round to one.
_decimal = partial(fmt, integers=False)


def write_report(
    path: str | PathLike[str],
    model: Any,
    sample: CountRows,
    *,
    baselines: Mapping[str, Distribution] | None = None,
    task: Mapping[str, Any] | None = None,
    warnings: Sequence[str] = (),
    leak: str = "",
    meaning: str = "",
    ids: tuple[str, Sequence[Any]] | None = None,
    progress: Callable[[str], object] | None = None,
    held_out: HeldOut | None = None,
    max_rows: int | None = MAX_ROWS,
    total: int | None = None,
) -> Path:
    """Evaluate a fitted model on a test set, write the result as one self-contained HTML file and return its path.

    Parameters
    ----------
    path : path
        The file to write, such as "report.html".
    model : estimator
        The fitted model.
    sample : CountRows
        The test set. Rows have the names of its `labels`; with a `group`, the verdict knows that rows of one group are
        alike.
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
    ids : tuple of str and sequence, optional
        The name and the values of a column that identifies the rows.
    progress : callable, optional
        Called with the name of each step.
    held_out : HeldOut, optional
        The same rows with copies of the members that were fitted without them, if the model was cross-fitted to all of
        them: they are scored out of fold.
    max_rows : int or None
        Of a larger test set, so many rows are drawn at random, always the same ones; None uses all.
    total : int, optional
        The number of rows of the test set, if `sample` was drawn from it already.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from ddpn import DDPNRegressor
    >>> X = np.random.default_rng(0).normal(size=(90, 1))
    >>> y = np.random.default_rng(1).poisson(np.exp(1 + X[:, 0])).astype(float)
    >>> model = DDPNRegressor(members=2, hidden=(8,), epochs=2, random_state=0).fit(X[:60], y[:60])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(f"{folder}/report.html", model, CountRows(X[60:], y[60:]), task={"target": "visits"})
    ...     path.name, "visits" in path.read_text(encoding="utf-8")
    ('report.html', True)
    """
    check_is_fitted(model)
    check_max_rows(max_rows)
    place = Path(path)
    if place.is_dir():
        raise InputError(f"path must name a file such as report.html, got the folder {place}.")
    known, step = dict(task or {}), progress or (lambda stage: None)
    target = str(known.get("target") or "y")
    names = {role: str(known[role]) for role in ("exposure", "upper") if known.get(role)}
    evidence = gather(model, sample, baselines, leak, meaning, ids, names, step, held_out, max_rows, total)
    found = explained(evidence, step)
    step("Drawing figures")
    parts = sections(model, evidence, found, target, known)
    row_word = evidence.board.evaluation.row_words.removesuffix("s")
    fitted = [f"to {fitted_rows(model)}" if fitted_rows(model) else ""]
    fitted += [f"on {str(known['fitted'])[:10]}" if known.get("fitted") else ""]
    under = [
        members_text(model),
        f"likelihood {likelihood_text(model)}",
        " ".join(["fitted", *filter(None, fitted)]) if any(fitted) else "",
        f"evaluated on {count_drawn(len(evidence.y), evidence.total, row_word)} on {date.today().isoformat()}",
    ]
    above = [*filter(None, [leak]), *warnings]
    text = page.page(f"How well the model predicts {target}", filter(None, under), parts, above)
    try:
        write_text(place, text)
    except OSError as error:
        raise InputError(f"Cannot write {place}: {error.strerror or error}.") from error
    return place


def sections(
    model: Any, evidence: Evidence, explanation: Explanation, target: str, task: Mapping[str, Any]
) -> dict[str, str]:
    """The HTML of every section that has something to show, by its title."""
    board, pit = evidence.board, plots.Pit.of_blocks(evidence.dists, evidence.y, evidence.weight)
    found, shape = board.evaluation, pit_sentence(pit)
    importances = explanation.importance or Importances([], 0, len(evidence.inputs.columns), 0, 0)
    by_column = important_groups(importances, evidence)
    details = [
        ("Typical error", error_sentences(evidence, target)),
        (f"{_PERCENT} interval", coverage_sentences(evidence, found)),
        ("Calibration", shape),
        *uncertainty_sentences(evidence, [group for each in by_column for group in each]),
        ("Scored rows", " ".join(filter(None, [f"{board.title}.", found.meaning]))),
    ]
    parts = {
        "Verdict": page.headline_html(board.verdict.level, board.verdict.headline, details),
        "Leaderboard" if found.others else "Scores": page.table_html(*board.cells(), caption=_COMPARED)
        + page.definitions(_SCORES, "notes"),
        "Accuracy": _accuracy(evidence, target, str(task.get("note") or _UNSEEN)),
        "Calibration": _calibration(model.predictor_, evidence, pit, shape),
        "Uncertainty": _uncertainty(evidence, by_column),
        "Importance": _importance(importances),
        "Effects": _effects(explanation.effects, target),
        "Best and worst rows": _rows(evidence, importances, str(task.get("numbering") or _NUMBERING)),
        "Reproduction": page.definitions(reproduction(model, evidence, task), code=True),
    }
    return {title: html for title, html in parts.items() if html}


# Accuracy, calibration and uncertainty -------------------------------------------------------------------------------


def _accuracy(evidence: Evidence, target: str, note: str) -> str:
    """Facts about the counts, and observed counts against predicted means, with intervals."""
    y, order = evidence.y, np.argsort(evidence.mean, kind="stable")
    rows = order[np.round(np.linspace(0, len(y) - 1, min(_DRAWN, len(y)))).astype(int)]
    evaluated = describe_draw("All figures and numbers of this report are computed from", len(y), evidence.total)
    if evidence.without_weight:
        evaluated += f" Left out: {plural(evidence.without_weight, 'row')} of weight 0."
    inside = evidence.scores.coverage[rows] > 0
    mean, low, high = (values[rows] for values in (evidence.mean, evidence.low, evidence.high))
    log = plots.wants_log(np.concatenate([mean, high, y]))
    description = f"{(~inside).sum()} of {len(rows)} rows shown are outside their {_PERCENT} interval."
    if len(rows) < len(y):
        description = f"{len(rows)} of {plural(len(y), 'row')}, evenly spread over the predictions. {description}"
    words = f"{description} The dashed line joins the means of tenths of all rows; it should follow the diagonal."
    if log:
        words += " Both axes are logarithmic, in 1 + count."
    draw = partial(
        plots.draw_scatter,
        label=f"predicted mean of {target}",
        mean=mean,
        ends=np.array([low, high]),
        y=y[rows],
        inside=inside,
        tenths=plots.tenths_of(evidence.mean, y, evidence.weight),
        log=log,
    )
    scatter = page.figure_html(plots.panel(draw), "scatter", "Predicted and observed", description, words)
    facts = page.definitions(data_facts(evidence, target), "facts")
    return page.paragraphs(note, evaluated) + page.pair(scatter, facts)


def data_facts(evidence: Evidence, target: str) -> list[tuple[str, str]]:
    """The counts in a few numbers."""
    y, weight = evidence.y, evidence.weight
    centre = weighted_mean(y, weight)
    facts = [
        (f"Mean {target}", fmt(centre)),
        ("Variance", fmt(weighted_mean(np.square(y - centre), weight))),
        ("Minimum, median, maximum", " · ".join(fmt(v) for v in (y.min(), weighted_quantile(y, weight, 0.5), y.max()))),
        ("Zeros", percent(weighted_mean((y == 0).astype(float), weight))),
    ]
    if evidence.exposure is not None:
        facts.append(("Exposure", f"{fmt(evidence.exposure.min())} to {fmt(evidence.exposure.max())}"))
    if evidence.weighted:
        facts.append(("Weights", f"{fmt(weight.min())} to {fmt(weight.max())}"))
    return facts


def _calibration(predictor: Predictor, evidence: Evidence, pit: plots.Pit, shape: str) -> str:
    """The PIT histogram, and the coverage within groups that intervals are calibrated by."""
    heights = "Heights from left to right: " + ", ".join(f"{height:.2f}" for height in pit.heights) + "."
    histogram = page.figure_html(plots.panel(partial(plots.draw_pit, pit=pit)), "pit", "PIT histogram", heights, shape)
    notes = page.paragraphs(*_PIT, recalibration_sentences(predictor.recalibration))
    html = page.pair(histogram, page.heading("How to read this figure") + notes)
    if evidence.grouped is not None and predictor.groups is not None:
        name, labels = evidence.grouped
        largest = sorted(label for label, _ in Counter(labels.tolist()).most_common(_GROUPS))
        groups = [group_of(name, label, evidence, np.flatnonzero(labels == label)) for label in largest]
        sizes = ", ".join(f"{label}: {predictor.groups.rows.get(label, 0):,}" for label in largest)
        html += _group_table(groups, f"Coverage by {name}") + page.paragraphs(
            f"Intervals are calibrated within these groups, on so many rows each: {sizes}. Groups of few calibration "
            "rows, or of none, have the level of all rows, or one near it."
        )
    return html


def _uncertainty(evidence: Evidence, by_column: list[list[RowGroup]]) -> str:
    """How variable and how uncertain predictions are in groups by predicted mean and by the most important columns."""
    words = (
        "The variance of a prediction has two parts. Aleatoric variance is noise in the counts: more training rows do "
        "not remove it. Epistemic variance is disagreement between the components: more training rows of the same "
        f"kind reduce it. Coverage is the share of rows inside their {_PERCENT} interval, with Wilson's 95% interval; "
        "expected is the mean probability of these intervals by the model's own distributions."
    )
    groups = (fifths(evidence), *by_column)
    tables = "".join(_group_table(found, f"Uncertainty by {found[0].column}") for found in groups)
    return page.paragraphs(words) + tables


def _group_table(found: list[RowGroup], caption: str) -> str:
    rows = []
    headings = (
        found[0].column,
        "Rows",
        "Mean count",
        "Std. dev.",
        "MAE",
        "Epistemic share",
        f"{_PERCENT} coverage",
        "Expected",
    )
    for g in found:
        means = (_decimal(value) for value in (g.observed, g.variance**0.5, g.mae))
        low, high = wilson_interval(g.coverage, g.size)
        coverage = f"{percent(g.coverage)} ({percent(low)} to {percent(high)})"
        rows.append((g.label, f"{g.rows:,}", *means, percent(g.share), coverage, percent(g.expected)))
    return page.table_html(headings, rows, caption=caption)


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


def explained(evidence: Evidence, progress: Callable[[str], object]) -> Explanation:
    """Shuffle every column, and measure the effects of the most important ones."""
    measured = evidence.inputs if evidence.measured is None else evidence.measured
    found = importance(measured, seed=SEED, progress=progress)
    if not found.each:
        return Explanation(Effects([], 0, 0), found)
    order = sorted(found, key=lambda one: -max(one.strength("mean"), one.strength("spread")))
    shown = [one.position for one in order[:_EFFECTS]]
    return Explanation(effects(evidence.inputs, shown, seed=SEED, progress=progress), found)


def _importance(found: Importances) -> str:
    if not found.each:
        return page.paragraphs(f"Not measured: {plural(found.columns, 'column')} are too many to shuffle.")
    repeats, rows = plural(len(found.each[0].crps), "time"), count_drawn(found.rows, found.total)
    notes = [
        (
            "Shuffling",
            f"Each column is shuffled {repeats} on {rows}: that removes its information.",
        ),
        ("Bars and lines", "The mean of the repeats, and their range."),
        ("Predictions", "Increase of the CRPS, the error of the whole distribution. Columns near 0 are not needed."),
        ("Mean", "Mean change of a row's predicted mean, up or down, relative to the average mean."),
        ("Spread", "The same for variance / mean. A column that changes the mean of a Poisson alone has none."),
        ("Similar columns", "Columns that can replace each other share their importance."),
    ]
    return page.pair(
        importance_figure(found, "crps", "Importance for the predictions"),
        importance_figure(found, "mean", "Importance for the mean"),
        importance_figure(found, "spread", "Importance for the spread"),
        page.heading("How to read these figures") + page.definitions(notes),
    )


def importance_figure(found: Importances, key: str, title: str) -> str:
    """What shuffling the most important columns changes: "crps", "mean" or "spread"."""
    shown, words = found.by(key)[:_SHOWN], []
    digits = 0 if max(getattr(one, key).max() for one in shown) >= 1 else 1
    for one in shown:
        rounded = round(100 * one.strength(key), digits)
        words.append(f"{rounded:{'+' if key == 'crps' and rounded else ''}.{digits}f}%")
    draw = partial(plots.draw_importance, found=shown, of=key, words=words)
    drawn = plots.panel(draw, plots.bars_height(len(shown)), margins=plots.NAMED)
    caption = ""
    if len(found.each) > len(shown):
        caption = f"The {len(shown)} largest of {plural(found.columns, 'column')} are shown."
    description = "; ".join(f"{one.name}: {text}" for one, text in zip(shown, words, strict=True)) + "."
    return page.figure_html(drawn, f"importance-{key}", title, description, caption)


def _effects(found: Effects, target: str) -> str:
    """Curves of the mean and of the spread side by side; empty where nothing was measured."""
    if not found.each:
        return ""
    spread = "as the standard deviation."
    if found.each[0].mean.log:
        spread = "as variance / mean, which is 1 for a Poisson; a column may change one without the other."
    html = page.paragraphs(
        f"How the prediction of {target} changes with one column, for a typical row (accumulated local effects on "
        f"{count_drawn(found.rows, found.total)}). Each row is moved only to values near its own, so no unlikely "
        f"combination of columns is predicted. Left: the mean. Right: the spread, {spread}",
        "The dotted line is the typical row. Bands and whiskers are 90% intervals: other rows, and networks or other "
        "members that disagree. Marks at the bottom have equally many rows between them. All figures of a side have "
        "the same scale, so a flat line is a weak effect. These are effects in the model, not causes.",
    )
    scales = {of: plots.scale_of([getattr(one, of) for one in found]) for of in ("mean", "spread")}
    for place, one in enumerate(found):
        html += page.pair(*(effect_figure(one, of, f"effect-{of}-{place}", scales[of]) for of in scales))
    return html


def effect_figure(one: Effect, of: str, name: str, scale: tuple[float, float]) -> str:
    """The effect of a column on the "mean" or on the "spread", on an axis with the ends `scale`."""
    curve = getattr(one, of)
    order = np.argsort(curve.level, kind="stable")
    low, high = ((_decimal(float(curve.level[i])), value_text(one.points[i])) for i in (order[0], order[-1]))
    caption = f"From {low[0]} where {one.name} is {low[1]} to {high[0]} where it is {high[1]}."
    if len(order) == 1:
        caption = f"{_decimal(curve.typical)}: these rows have one value only, {value_text(one.points[0])}."
    draw = partial(plots.draw_effect, one=one, curve=curve, scale=scale)
    if one.is_line:
        drawn = plots.panel(draw, margins=plots.BESIDE if one.has_missing else plots.PLAIN)
    else:
        kept = one.frequent
        if len(kept) < len(one.points):
            caption += f" The {len(kept)} most frequent of {len(one.points)} levels are shown."
        words = [_decimal(float(curve.level[i])) for i in kept]
        drawn = plots.panel(partial(draw, words=words), plots.bars_height(len(kept)), margins=plots.NAMED)
    return page.figure_html(drawn, name, f"{one.name}: {of}", caption, caption)


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
    words = (
        f"By CRPS. The vertical line is the observed count, dark bars are the {_PERCENT} interval. {numbering} "
        "Important columns come first."
    )
    return page.paragraphs(words) + html if html else ""


def _card(evidence: Evidence, row: int, name: str, columns: Sequence[int]) -> str:
    """A row with its distribution, the prediction and its scores, and some of its columns."""
    title = f"Row {evidence.labels[row]}"
    if evidence.ids is not None:
        title += f", {evidence.ids[0]} {evidence.ids[1][row]}"
    facts = [
        ("Observed", fmt(evidence.y[row])),
        ("Predicted mean", fmt(evidence.mean[row])),
        (f"{_PERCENT} interval", interval_words(evidence.low[row], evidence.high[row], evidence.expected[row])),
        ("Probability of the observed count", percent(float(np.exp(-evidence.scores.nll[row])))),
        ("CRPS", fmt(evidence.scores.crps[row])),
        *([] if evidence.exposure is None else [("Exposure", fmt(evidence.exposure[row]))]),
    ]
    known = [column._replace(values=column.values[[row]]) for column in (evidence.columns[j] for j in columns)]
    values = [(column.name, value_text(cells(column, MISSING)[0])) for column in known]
    return page.card(title, distribution_svg(evidence, row, name), facts, values)


def distribution_svg(evidence: Evidence, row: int, name: str) -> str:
    """The predicted distribution of one row, with its observed count."""
    dist, y = evidence.distribution(row), float(evidence.y[row])
    tails = [float(dist.icdf(torch.tensor([q], dtype=torch.float64))) for q in (_LEFT_OUT, 1 - _LEFT_OUT)]
    low, high = min(tails[0], y), max(tails[1], y) + 1.0
    # A distribution on one or two counts is shown with its neighbours.
    low, high = max(0.0, min(low, high - _FEWEST + 1)), max(high, low + _FEWEST - 1)
    edges, shares = plots.binned(dist, low, high, _BARS)
    interval = float(evidence.low[row]), float(evidence.high[row])
    description = f"Most likely around {edges[int(np.argmax(shares))]:,.0f}; observed {y:,.0f}."
    draw = partial(plots.draw_distribution, edges=edges, shares=shares[:, 0], interval=interval, y=y)
    drawn = plots.panel(draw, 1.5, 2.9, (0.15, 0.2))
    drawn.axes[0].set_yticks([])
    return plots.svg_of(drawn, name, f"Predicted probabilities of row {evidence.labels[row]}", description)


# Reproduction ------------------------------------------------------------------------------------------------------


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
    return describe_parts(rows, max(copies) if max(copies) > 1 else 0)


def reproduction(model: Any, evidence: Evidence, task: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Everything needed to reproduce these numbers, by name."""

    def one_line(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)

    defaults = type(model)().get_params(deep=False)
    options = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if name not in _SHOWN_ELSEWHERE and value != defaults.get(name)
    }
    versions = {"Python": platform.python_version()} | {name: version(name) for name in _PACKAGES}
    facts = [
        ("Command", one_line(task.get("command") or "")),
        ("Model", members_text(model)),
        ("Likelihood", likelihood_text(model)),
        ("Training rows", fitted_rows(model)),
        ("Settings", ", ".join(f"{name} = {value!r}" for name, value in options.items())),
        ("Seeds", f"model {getattr(model, 'random_state', None)}; draws of this report {SEED}"),
        ("Data fingerprint", f"sha256 {evidence.fingerprint}"),
        ("Versions of this report", ", ".join(f"{name} {number}" for name, number in versions.items())),
    ]
    given = {str(key).replace("_", " "): v for key, v in task.items() if key not in _SHOWN_IN_TEXT and v is not None}
    facts = [(name, words) for name, words in facts if words]
    return [*facts, *((key[:1].upper() + key[1:], one_line(value)) for key, value in given.items())]
