"""Contents of the sections of a report (numbers, sentences and figures), which `template.html` lays out."""

import json
import platform
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from ddpn.analysis.explanations import Effects, Explanation, Importances, effects, importance
from ddpn.analysis.explanations.inputs import MISSING, FittedModel
from ddpn.analysis.leaderboard_table import tabulate_scores
from ddpn.analysis.pit import Pit
from ddpn.analysis.plots import explanations
from ddpn.analysis.report.evidence import Evidence
from ddpn.analysis.report.figures import (
    Figure,
    draw_distribution,
    draw_effect,
    draw_importance,
    draw_pit,
    draw_scatter,
    format_mean,
)
from ddpn.analysis.report.row_groups import RowGroup, group_by_column, summarize_group
from ddpn.analysis.report.sentences import (
    describe_coverage,
    describe_errors,
    describe_pit,
    describe_recalibration,
    describe_uncertainty,
)
from ddpn.analysis.row_scores import COVERAGE as LEVEL
from ddpn.members import format_member_label
from ddpn.members.folds import get_fold_copies
from ddpn.members.networks import Networks
from ddpn.predictor import Predictor
from ddpn.runtime.display import (
    TextTable,
    describe_row_counts,
    format_number,
    interval_words,
    percent,
    plural,
    value_text,
)
from ddpn.statistics import weighted_mean, weighted_quantile, wilson_interval
from ddpn.storage.contents import JsonObject
from ddpn.tables.row_draw import SEED, describe_draw, format_drawn_rows

#: The most columns of a single row that are listed.
_MAX_CELLS = 12
#: The most columns whose effects are shown: those that matter most for the mean or for the spread.
_MAX_EFFECTS = 6
#: The most groups by predicted mean, the most columns by which rows are grouped, and the most groups of calibrated
#: intervals.
_MAX_MEAN_GROUPS, _MAX_GROUPING_COLUMNS, _MAX_INTERVAL_GROUPS = 5, 2, 12
#: The most rows that are shown as best and as worst predictions.
_MAX_EXTREME_ROWS = 3
#: The level of the intervals as text.
LEVEL_WORDS = percent(LEVEL, 0)
_UNSEEN = "These scores hold for new rows only if none of the evaluated rows was used for training."
_NUMBERING = "Rows are named by the index of the data frame or, in other tables, by their position from 0."
_COMPARED = "The model (mixture), its members and other candidates on the same rows; bold: the smallest CRPS"
_PACKAGES = ("ddpn", "torch", "numpy", "scipy", "scikit-learn")
#: Entries of a task that other sections show.
_SHOWN_IN_TEXT = {"command", "target", "note", "numbering"}
#: Arguments of a model that are not listed: other entries show them, or they do not affect the model.
_SHOWN_ELSEWHERE = {"likelihood", "random_state", "validation", "verbose"}
#: CSS class and sign of each level of a verdict.
_MOODS = {
    "better": ("good", "✓"),
    "as good as": ("care", "="),
    "undecided": ("care", "!"),
    "worse": ("bad", "✕"),
    "unusable": ("bad", "✕"),
}

#: Keys and titles of the figures of importance.
_IMPORTANCES = (
    ("crps", "Importance for the predictions"),
    ("mean", "Importance for the mean"),
    ("spread", "Importance for the spread"),
)

#: Pairs of name and value, or of topic and sentences.
Facts = list[tuple[str, str]]


class Card(NamedTuple):
    """Part of a report about a single row.

    Attributes
    ----------
    title : str
        The name of the row.
    svg : Markup
        A figure of the predicted distribution.
    facts : list of (name, value)
        The observed count, the prediction and the scores.
    values : list of (name, value)
        Some columns with their values in this row.
    """

    title: str
    svg: Markup
    facts: Facts
    values: Facts


def collect_content(
    model: FittedModel, evidence: Evidence, explanation: Explanation, target: str, task: JsonObject
) -> dict[str, object]:
    """Return the contents of all sections of a report, keyed by their names in the template.

    The template skips empty sections. `evidence` has the rows of the report with their predictions and scores, and
    `explanation` the effects and the importance of the columns. `target` is the name of the target, and `task` is as
    for `write_report`.
    """
    board, pit = evidence.board, Pit.from_blocks(evidence.dists, evidence.y, evidence.weight)
    importances = explanation.importance or Importances([], 0, len(evidence.inputs.columns), 0, 0)
    groups_of_columns = group_by_important_columns(importances, evidence)
    mood, sign = _MOODS[board.verdict.level]
    best, worst = collect_rows(evidence, importances)
    return {
        "target": target,
        "level": LEVEL_WORDS,
        "mood": mood,
        "sign": sign,
        "headline": board.verdict.headline,
        "details": describe_verdict(evidence, target, pit, [group for groups in groups_of_columns for group in groups]),
        "scores_title": "Leaderboard" if board.evaluation.others else "Scores",
        "scores": tabulate_scores(board.entries, LEVEL, _COMPARED),
        "notes": [str(task.get("note") or _UNSEEN), *describe_left_out_rows(evidence)],
        "scatter": draw_scatter(evidence, target),
        "data_facts": summarize_counts(evidence, target),
        "histogram": draw_pit(pit, describe_pit(pit)),
        "recalibration": describe_recalibration(model.predictor_.calibration.recalibration),
        "interval_groups": tabulate_interval_groups(model.predictor_, evidence),
        "groups": [tabulate_groups(groups) for groups in (group_by_mean(evidence), *groups_of_columns)],
        "columns": plural(importances.columns, "column"),
        "repeats": plural(len(importances.results[0].crps), "time") if importances.results else "",
        "shuffled_rows": format_drawn_rows(importances.rows, importances.total),
        "importances": importances.results,
        "importance_figures": [draw_importance(importances, *key) for key in _IMPORTANCES if importances.results],
        "effect_rows": format_drawn_rows(explanation.effects.rows, explanation.effects.total),
        "effects": explanation.effects.results,
        "effect_figures": draw_effects(explanation.effects),
        "best": best,
        "worst": worst,
        "numbering": str(task.get("numbering") or _NUMBERING),
        "reproduction": collect_reproduction_facts(model, evidence, task),
    }


# Verdict, accuracy, calibration and uncertainty ----------------------------------------------------------------------


def describe_verdict(evidence: Evidence, target: str, pit: Pit, groups: list[RowGroup]) -> Facts:
    """Return sentences about errors, intervals, calibration and uncertainty, as a list of (topic, sentences).

    `target` is the name of the target. `groups` are groups of rows. The sentences may mention the group in which the
    components of the mixture disagree most, and a group whose intervals are too narrow.
    """
    board = evidence.board
    return [
        ("Typical error", describe_errors(evidence, target)),
        (f"{LEVEL_WORDS} interval", describe_coverage(evidence, board.evaluation)),
        ("Calibration", describe_pit(pit)),
        *describe_uncertainty(evidence, groups),
        ("Scored rows", " ".join(filter(None, [f"{board.title}.", board.evaluation.scores_note]))),
    ]


def describe_left_out_rows(evidence: Evidence) -> list[str]:
    """Return sentences about rows of the test set that the report leaves out; the list may be empty.

    Rows are left out if their weight is 0 or, in a large test set, if they were not drawn.
    """
    drawn = describe_draw("All figures and numbers of this report are computed from", len(evidence.y), evidence.total)
    unused = f"Left out: {plural(evidence.without_weight, 'row')} of weight 0." if evidence.without_weight else ""
    return [*filter(None, [drawn, unused])]


def summarize_counts(evidence: Evidence, target: str) -> Facts:
    """Summarize counts, exposures and weights in a list of (name, value). `target` is the name of the target."""
    y, weight = evidence.y, evidence.weight
    centre = weighted_mean(y, weight)
    facts = [
        (f"Mean {target}", format_number(centre)),
        ("Variance", format_number(weighted_mean(np.square(y - centre), weight))),
        (
            "Minimum, median, maximum",
            " · ".join(format_number(v) for v in (y.min(), weighted_quantile(y, weight, 0.5), y.max())),
        ),
        ("Zeros", percent(weighted_mean((y == 0).astype(float), weight))),
    ]
    if evidence.exposure is not None:
        facts.append(
            ("Exposure", f"{format_number(evidence.exposure.min())} to {format_number(evidence.exposure.max())}")
        )
    if evidence.weighted:
        facts.append(("Weights", f"{format_number(weight.min())} to {format_number(weight.max())}"))
    return facts


def tabulate_interval_groups(predictor: Predictor, evidence: Evidence) -> tuple[TextTable, str] | None:
    """Tabulate the coverage within each group, if intervals are calibrated by group.

    Return the table and a text with the number of calibration rows of each group. Return None if intervals are not
    calibrated by group.
    """
    if evidence.grouped is None or predictor.calibration.groups is None:
        return None
    name, labels = evidence.grouped
    largest = sorted(label for label, _ in Counter(labels.tolist()).most_common(_MAX_INTERVAL_GROUPS))
    groups = [summarize_group(name, label, evidence, np.flatnonzero(labels == label)) for label in largest]
    sizes = ", ".join(f"{label}: {predictor.calibration.groups.rows.get(label, 0):,}" for label in largest)
    return tabulate_groups(groups, "Coverage"), sizes


def tabulate_groups(groups: list[RowGroup], subject: str = "Uncertainty") -> TextTable:
    """Return a table of counts, errors and uncertainty with one line per group. Its caption begins with `subject`."""
    headings = (
        groups[0].column,
        "Rows",
        "Mean count",
        "Std. dev.",
        "MAE",
        "Epistemic share",
        f"{LEVEL_WORDS} coverage",
        "Expected",
    )
    rows = []
    for group in groups:
        means = (format_mean(value) for value in (group.observed, group.variance**0.5, group.mae))
        low, high = wilson_interval(group.coverage, group.effective_rows)
        coverage = f"{percent(group.coverage)} ({percent(low)} to {percent(high)})"
        row = (group.label, f"{group.rows:,}", *means, percent(group.share), coverage, percent(group.expected))
        rows.append(row)
    return TextTable(headings, rows, caption=f"{subject} by {groups[0].column}")


def group_by_mean(evidence: Evidence) -> list[RowGroup]:
    """Divide rows into up to five groups of nearly equal size by predicted mean, in ascending order."""
    parts = np.array_split(np.argsort(evidence.mean, kind="stable"), min(_MAX_MEAN_GROUPS, len(evidence.mean)))
    labels = (" to ".join(format_number(float(f"{evidence.mean[row]:.3g}")) for row in part[[0, -1]]) for part in parts)
    return [summarize_group("predicted mean", label, evidence, part) for label, part in zip(labels, parts, strict=True)]


def group_by_important_columns(importances: Importances, evidence: Evidence) -> list[list[RowGroup]]:
    """Group rows by each of the two columns that lower the CRPS most; return a list with the groups of each column.

    A column that does not lower the CRPS is left out, so there may be fewer than two.
    """
    columns = [column for column in importances.by("crps")[:_MAX_GROUPING_COLUMNS] if column.crps.mean() > 0]
    return [group_by_column(evidence.inputs.columns, column.position, evidence) for column in columns]


# Explanations --------------------------------------------------------------------------------------------------------


def explain_columns(evidence: Evidence, progress: Callable[[str], object]) -> Explanation:
    """Measure the importance of the columns, and the effects of the six columns that change predictions most.

    `evidence` has the model and the rows of the report. `progress` is called with the name of each step.
    """
    inputs = evidence.inputs if evidence.importance_inputs is None else evidence.importance_inputs
    importances = importance(inputs, seed=SEED, progress=progress)
    if not importances.results:
        return Explanation(Effects([], 0, 0), importances)
    order = sorted(importances, key=lambda column: -max(column.strength("mean"), column.strength("spread")))
    positions = [column.position for column in order[:_MAX_EFFECTS]]
    return Explanation(effects(evidence.inputs, positions, seed=SEED, progress=progress), importances)


def draw_effects(effects: Effects) -> list[tuple[Figure, Figure]]:
    """Draw the effects of each column on the mean and on the spread; return a pair of figures per column."""
    if not effects.results:
        return []
    mean, spread = (
        explanations.choose_axis_limits([getattr(effect, name) for effect in effects]) for name in ("mean", "spread")
    )
    return [
        (
            draw_effect(effect, "mean", f"effect-mean-{number}", mean),
            draw_effect(effect, "spread", f"effect-spread-{number}", spread),
        )
        for number, effect in enumerate(effects)
    ]


# Single rows ---------------------------------------------------------------------------------------------------------


def collect_rows(evidence: Evidence, importances: Importances) -> tuple[list[Card], list[Card]]:
    """Return the cards of the three rows with the best CRPS and of the three rows with the worst CRPS, as two lists.

    Each card shows up to 12 columns, the most important first.
    """
    width = evidence.inputs.width
    order = [one.position for one in importances.by("crps") if one.position < width]
    order += [position for position in range(width) if position not in set(order)]
    ranked = np.argsort(evidence.scores.crps, kind="stable").tolist()
    number = min(_MAX_EXTREME_ROWS, len(ranked) // 2)
    best, worst = (
        [describe_row(evidence, row, f"{name}-{i}", order[:_MAX_CELLS]) for i, row in enumerate(rows[:number])]
        for name, rows in (("best", ranked), ("worst", ranked[::-1]))
    )
    return best, worst


def describe_row(evidence: Evidence, row: int, name: str, columns: Sequence[int]) -> Card:
    """Return the card of a row: its distribution, its prediction and scores, and its values in some columns.

    `name` is the name of the figure, which must be unique on the page. `columns` are the positions of the columns to
    show.
    """
    title = f"Row {evidence.labels[row]}"
    if evidence.ids is not None:
        title += f", {evidence.ids[0]} {evidence.ids[1][row]}"
    interval = interval_words(evidence.low[row], evidence.high[row], evidence.scores.expected[row])
    facts = [
        ("Observed", format_number(evidence.y[row])),
        ("Predicted mean", format_number(evidence.mean[row])),
        (f"{LEVEL_WORDS} interval", interval),
        ("Probability of the observed count", percent(float(np.exp(-evidence.scores.nll[row])))),
        ("CRPS", format_number(evidence.scores.crps[row])),
        *([] if evidence.exposure is None else [("Exposure", format_number(evidence.exposure[row]))]),
    ]
    shown = [evidence.columns[position] for position in columns]
    cell_of_row = [column.rows([row]).cells(MISSING)[0] for column in shown]
    days = evidence.inputs.day_columns
    values = [
        (column.name, value_text(cell, column.name in days)) for column, cell in zip(shown, cell_of_row, strict=True)
    ]
    return Card(title, draw_distribution(evidence, row, name), facts, values)


# Reproduction ------------------------------------------------------------------------------------------------------


def describe_members(model: FittedModel) -> str:
    """Return the members of the mixture with their weights as text, such as "5 networks (80%) + GLM (20%)"."""
    predictor, parts = model.predictor_, []
    for name, member in predictor.active_members.items():
        label = format_member_label(name, member)
        number = sum(copy.model.n_networks for copy in get_fold_copies(member) if isinstance(copy, Networks))
        if number:
            label = plural(number, label.removesuffix("s"))
        parts.append(
            label if len(predictor.active_members) == 1 else f"{label} ({percent(predictor.weights[name], 0)})"
        )
    return " + ".join(parts)


def describe_likelihood(model: FittedModel) -> str:
    """Return the likelihood of a model as text. If there are several, their names are separated by commas."""
    likelihood = getattr(model, "likelihood", "")
    return likelihood if isinstance(likelihood, str) else ", ".join(map(str, likelihood))


def describe_rows(model: FittedModel) -> str:
    """Return the number of rows to which a model was fitted as text, such as "755 rows, 5-fold cross-fitted".

    The text is empty if the number is unknown.
    """
    if (n_rows := getattr(model, "n_rows_", None)) is None:
        return ""
    copies = [len(get_fold_copies(member)) for member in model.predictor_.active_members.values()]
    rows = {"train": n_rows, "validation": getattr(model, "n_validation_rows_", 0)}
    return describe_row_counts(rows, max(copies) if max(copies) > 1 else 0)


def collect_reproduction_facts(model: FittedModel, evidence: Evidence, task: JsonObject) -> Facts:
    """Return everything that is needed to reproduce the numbers of a report, as a list of (name, value).

    Among them are the arguments of `model` that differ from their defaults, the versions of packages, and the
    fingerprint of the rows in `evidence`. Information about the fit, such as the command, is taken from `task`.
    """

    def one_line(value: object) -> str:
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
        ("Model", describe_members(model)),
        ("Likelihood", describe_likelihood(model)),
        ("Training rows", describe_rows(model)),
        ("Settings", ", ".join(f"{name} = {value!r}" for name, value in options.items())),
        ("Seeds", f"model {getattr(model, 'random_state', None)}; draws of this report {SEED}"),
        ("Data fingerprint", f"sha256 {evidence.fingerprint}"),
        ("Versions of this report", ", ".join(f"{name} {number}" for name, number in versions.items())),
    ]
    fit_facts = {
        str(key).replace("_", " "): v for key, v in task.items() if key not in _SHOWN_IN_TEXT and v is not None
    }
    facts = [(name, words) for name, words in facts if words]
    return [*facts, *((key[:1].upper() + key[1:], one_line(value)) for key, value in fit_facts.items())]
