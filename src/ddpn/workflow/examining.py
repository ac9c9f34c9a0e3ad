"""Evaluate, explain and monitor a saved model on another table."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from ddpn.analysis.explanations import Contributions, Explanation, Inputs, contributions, explain_inputs
from ddpn.analysis.leaderboard import leaderboard, out_of_fold_leaderboard
from ddpn.analysis.monitoring import MIN_ROWS_TO_COMPARE, Monitoring, compare
from ddpn.runtime.column_lists import resolve_names
from ddpn.runtime.display import plural
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.figures import figure_class
from ddpn.storage.contents import JsonObject
from ddpn.storage.files import write_bytes
from ddpn.tables.files import check_free, check_output, write_file
from ddpn.tables.row_draw import MAX_ROWS, draw_rows
from ddpn.tables.table import Table
from ddpn.workflow.model_folder import ModelFolder
from ddpn.workflow.rows_to_score import RowsToScore, choose_rows_to_score, count_targets

_NUMBERING = "Rows are numbered as in the file: the first below the header is 1."
#: File extensions of images.
_IMAGES = (".png", ".svg", ".pdf")


def evaluate(folder: ModelFolder, table: Table | pl.DataFrame, max_rows: int | None = MAX_ROWS) -> JsonObject:
    """Score a saved model, and the models it is compared with, on a table.

    Parameters
    ----------
    folder : ModelFolder
        The model.
    table : Table or polars DataFrame
        The table, which must have the target. Rows to which the model was fitted are left out. If the model was fitted
        to all rows of the table, every row is scored out of fold: by the copies of the model's members that were fitted
        without it.
    max_rows : int or None
        The maximum number of rows to score. If there are more, a random sample of this size is scored. None scores all
        rows.

    Returns
    -------
    dict
        The leaderboard, ready for JSON (`ddpn.analysis.leaderboard.Leaderboard.to_dict`). Two keys are added: "note", a
        sentence about the rows that were scored, and "warnings", the warnings of the fit.
    """
    rows, predictor, leaks = (
        choose_rows_to_score(folder, table, max_rows),
        folder.model.predictor_,
        folder.task["leaks"],
    )
    held_out = rows.predict_out_of_fold(folder)
    if held_out is None:
        board = leaderboard(predictor, rows.sample, leaks, rows.meaning, total=rows.total)
    else:
        board = out_of_fold_leaderboard(predictor, held_out, leaks, rows.meaning)
    return {"note": rows.note, **board.to_dict(), "warnings": folder.task["leaks"] + folder.task["warnings"]}


def collect_report_arguments(
    folder: ModelFolder, table: Table | pl.DataFrame, max_rows: int | None = MAX_ROWS
) -> JsonObject:
    """Choose the rows that a report shows; return the keyword arguments of `write_report`.

    If the model was fitted to these rows, they are also predicted out of fold. `max_rows` is the maximum number of
    rows; None means all.
    """
    rows, task = choose_rows_to_score(folder, table, max_rows), folder.task
    held_out = rows.predict_out_of_fold(folder)
    sample = rows.sample if held_out is None else held_out.held_out.rows
    shown = {"target": folder.roles.target, "command": task.get("command"), "data": task.get("data")}
    shown |= {"split": task.get("split"), "seed": task.get("plan", {}).get("seed"), "fitted": task.get("date")}
    shown |= {"exposure": folder.roles.exposure, "note": rows.note, "numbering": _NUMBERING}
    # Held-out rows are sorted by fold.
    name, order = folder.roles.identifier, np.argsort(rows.sample.row_numbers)
    positions = order[np.searchsorted(rows.sample.row_numbers, sample.row_numbers, sorter=order)]
    return {
        "model": folder.model,
        "sample": sample,
        "held_out": held_out,
        "leak": " ".join(task["leaks"]),
        "scores_note": rows.meaning,
        "warnings": task["warnings"],
        "ids": (name, rows.frame[name][positions].to_list()) if name in rows.frame.columns else None,
        "max_rows": None,
        "total": rows.total,
        "task": {key: value for key, value in shown.items() if value not in (None, "")},
    }


# Explanations ---------------------------------------------------------------------------------------------------------


def explain_table(
    folder: ModelFolder,
    table: Table | pl.DataFrame,
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
    max_rows: int | Literal["auto"] | None = "auto",
) -> tuple[Explanation, str]:
    """Compute the importance and effects of the columns of a table.

    Importance is measured only if the table has the target, and only on rows to which the model was not fitted. If the
    model was fitted to the whole table, one fold of it is used. This fold is predicted by the copies of the model's
    members that were fitted to the other folds.

    `seed` is the seed of the rows that are drawn and of the shuffles of their cells. `progress` is called with a line
    of text for each step. `max_rows` is the maximum number of rows that are predicted for each column: "auto" chooses
    it, and None means all rows.

    Return the explanation, and a sentence about the rows that were used.
    """
    table = Table.from_rows(table)
    folder = folder.for_table(table)
    roles = folder.roles
    most = MAX_ROWS if max_rows == "auto" else max_rows
    names = {role: name for role, name in (("exposure", roles.exposure), ("upper", roles.upper)) if name}
    if roles.target is None or roles.target not in table.schema:
        frame = table.take_rows(draw_rows(table.rows, most).positions)
        arguments = roles.parse(frame), roles.read_exposure(frame), roles.read_upper(frame), names, table.rows
        inputs, note = Inputs(folder.model, *arguments), "Without the target, importance is not measured."
        return explain_inputs(inputs, seed, progress, max_rows=max_rows), note
    rows = choose_rows_to_score(folder, table, most)
    held_out = rows.predict_out_of_fold(folder)
    if held_out is None:
        inputs = Inputs.from_sample(folder.model, rows.sample, names, rows.total)
        return explain_inputs(inputs, seed, progress, max_rows=max_rows), rows.note.replace("scored", "used")
    measured = Inputs.from_first_fold(folder.model, held_out, names)
    note = (
        f"The model was fitted to all {len(rows.sample):,} rows of this table, so importance is measured on one fold "
        f"({plural(len(measured), 'row')}), with the copies of the members that were fitted without it."
    )
    inputs = Inputs.from_sample(folder.model, rows.sample, names)
    return explain_inputs(inputs, seed, progress, measured, max_rows), note


def explain_rows(
    folder: ModelFolder, table: Table | pl.DataFrame, rows: list[int], quantity: str = "mean", seed: int = 0
) -> Contributions:
    """Compute how much each column contributes to the predictions for some rows (Shapley values).

    `rows` are the numbers of these rows, from 1. A number that the table does not have raises an `InputError`.
    `quantity` says what is explained: "mean", or "spread" (variance / mean). A contribution is measured relative to
    the average prediction for the rows of the whole table. `seed` is the seed of the sampling by which Shapley
    values are estimated.
    """
    table = Table.from_rows(table)
    folder = folder.for_table(table)
    roles = folder.roles
    if bad := [row for row in rows if not 1 <= row <= table.rows]:
        raise InputError(argument="rows", must=f"be numbers from 1 to {table.rows:,}", got=str(bad[0]))
    drawn = draw_rows(table.rows).positions
    numbers = np.union1d(drawn, np.array(rows) - 1)
    frame = table.take_rows(numbers)
    inputs = Inputs(
        folder.model, roles.parse(frame), roles.read_exposure(frame), roles.read_upper(frame), total=table.rows
    )
    explained, background = (np.searchsorted(numbers, part) for part in (np.array(rows) - 1, drawn))
    return replace(contributions(inputs.rows(explained), inputs.rows(background), quantity, seed=seed), labels=rows)


def parse_rows(text: str) -> list[int]:
    """Parse row numbers such as "3", "1,5,7" or "1-10". Any other text raises a `ConfigError`.

    Repeated numbers are dropped.

    >>> parse_rows("2,5-7")
    [2, 5, 6, 7]
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ConfigError(argument="rows", must="be numbers such as 3, 1,5,7 or 1-10", got=repr(text))
        numbers += range(int(first), int(last or first) + 1)
    return list(dict.fromkeys(numbers))


def check_explanation_file(path: str, overwrite: bool, source: str) -> None:
    """Raise an error if `write_explanation` could not write to `path`. Call this before a long computation.

    If `overwrite` is False, `path` must not exist. It must never be `source`, the path of the table.
    """
    if Path(path).suffix.lower() in _IMAGES:
        check_free(Path(path), overwrite, source)
    else:
        check_output(path, overwrite, source)


def write_explanation(explanation: Explanation | Contributions, path: str) -> None:
    """Write an explanation to a file: as an image or as a table, depending on the file extension.

    An existing file is replaced; `check_explanation_file` can prevent this.
    """
    ending = Path(path).suffix.lower()
    if ending in _IMAGES:
        content = BytesIO()
        # Without a figure of pyplot, which would choose a backend for windows.
        explanation.plot(figure=figure_class()()).savefig(content, format=ending[1:], dpi=150)
        write_bytes(Path(path), content.getvalue())
        return
    write_file(explanation.to_frame(), path)


# New rows against the training rows -----------------------------------------------------------------------------------


def monitor(
    folder: ModelFolder,
    table: Table | pl.DataFrame,
    alpha: float = 0.01,
    effect: float = 0.1,
    ignore: Sequence[str] = (),
    max_rows: int | None = MAX_ROWS,
) -> Monitoring:
    """Compare new rows with the training rows of a model, to detect drift.

    Parameters
    ----------
    folder : ModelFolder
        The model.
    table : Table or polars DataFrame
        The new rows. Their counts may be missing.
    alpha : float
        The probability of at least one false alarm if new rows are like the training rows.
    effect : float
        The smallest difference that counts as drift, from 0 to 1. For the coverage of intervals, half of it is used.
    ignore : sequence of str
        Columns that are compared but never count as drift, such as dates. A string that is not itself the name of a
        column is split at commas.
    max_rows : int or None
        The maximum number of rows to compare. If the table has more, a random sample of this size is compared. None
        compares all rows.

    Returns
    -------
    Monitoring
        The comparisons, and which of them are drift. If the rows have counts, these are compared with predictions as
        well.
    """
    table = Table.from_rows(table)
    folder = folder.for_table(table)
    roles = folder.roles
    names = resolve_names(ignore, [column.name for column in roles.columns], "ignore")
    ignored = {part for column in roles.columns if column.name in names for part in column.inputs}
    rows, notes = _choose_rows_with_counts(folder, table, max_rows)
    result = compare(
        folder.model.predictor_,
        roles.parse(table.take_rows(draw_rows(table.rows, max_rows).positions)),
        None if rows is None else rows.sample,
        alpha=alpha,
        effect=effect,
        ignored=ignored,
        days=roles.dates.days,
        max_rows=None,
        total=table.rows,
        total_with_counts=None if rows is None else rows.total,
    )
    return replace(result, not_compared=(*result.not_compared, *notes))


def _choose_rows_with_counts(
    folder: ModelFolder, table: Table, max_rows: int | None
) -> tuple[RowsToScore | None, list[str]]:
    """Choose rows that have a count and to which the model was not fitted; coverage and PIT are checked on these rows.

    Return the rows and a list of notes for the user. If there are too few rows, return None and the reasons.
    """
    target = folder.roles.target
    if target is None or target not in table.schema:
        what = "the model does not know its target" if target is None else f"the table has no column {target!r}"
        return None, [f"Coverage and PIT: {what}."]
    n_known = count_targets(folder, table)
    if n_known < MIN_ROWS_TO_COMPARE:
        return None, [f"Coverage and PIT: only {n_known:,} of at least {MIN_ROWS_TO_COMPARE} rows have a count so far."]
    rows = choose_rows_to_score(folder, table, max_rows)
    if rows.folds is not None:
        return None, ["Coverage and PIT: the model was fitted to all rows of this table, so there are no new rows."]
    notes = [rows.note] if rows.note else []
    if len(rows.sample) < MIN_ROWS_TO_COMPARE:
        few = f"only {len(rows.sample):,} of at least {MIN_ROWS_TO_COMPARE} rows with counts are new"
        return None, [*notes, f"Coverage and PIT: {few}."]
    return rows, notes
