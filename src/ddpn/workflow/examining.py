"""Examine a saved model on another table: its scores, a report, explanations, and drift of new rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.analysis.explanations import Contributions, Explanation, Inputs, contributions, explanation_of
from ddpn.analysis.leaderboard import leaderboard, out_of_fold_leaderboard
from ddpn.analysis.monitoring import LEAST_ROWS, Monitoring, compare
from ddpn.calibration.calibrate import HeldOut, calibrate_copies
from ddpn.members.folds import Folds
from ddpn.runtime.column_lists import resolve_names
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.sample import Sample
from ddpn.storage.files import write_bytes
from ddpn.tables.files import check_free, check_output, polars, write
from ddpn.workflow.fitting import calibration_options, folds_to_score
from ddpn.workflow.model_folder import ModelFolder
from ddpn.workflow.plan import plan_from
from ddpn.workflow.preparing import fingerprint
from ddpn.workflow.splitting import split_rows

_NUMBERING = "Rows are numbered as in the file: the first below the header is 1."
#: Endings of images.
_IMAGES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class RowsToScore:
    """Rows of a table with the target that show how well a model predicts.

    `note` says which rows these are if they are not all rows, `meaning` what their scores mean. `folds` are the rows
    with their folds, where the model was fitted to all of them: they must be scored out of fold.
    """

    sample: Sample
    note: str = ""
    meaning: str = ""
    folds: Folds | None = None

    def predict_out_of_fold(self, folder: ModelFolder) -> HeldOut | None:
        """Return the rows with the calibrated copies that were fitted without them; None where these are new rows."""
        if self.folds is None:
            return None
        plan = plan_from(folder.task["plan"])
        return calibrate_copies(folder.model.predictor_, self.folds, plan.seed, calibration_options(plan))


def rows_to_score(folder: ModelFolder, frame: Any) -> RowsToScore:
    """Choose the rows of a table that has the target to score, without those that the model was fitted to.

    For the training table, these are the test rows; without test rows, all rows, which are scored out of fold.
    """
    sample = folder.roles.sample(frame, folder.model.fractional, counts=folder.model.predictor_.counts)
    missing = " ".join(folder.roles.without_target(frame.height - len(sample)))
    sample = sample.rows(sample.is_used)
    frame = frame[sample.labels - 1]
    if fingerprint(sample) != folder.task.get("fingerprint"):
        sample, note = (sample, "") if folder.seen is None else folder.seen.unseen(sample)
        return RowsToScore(sample, f"{missing} {note}".strip())
    plan = plan_from(folder.task["plan"])
    for name in (plan.split_column, plan.time):
        if name is not None and name not in frame.columns:
            raise InputError(
                f"No column named {name!r}, which says which rows are test rows: the model was fitted to this table. "
                "Add the column, or use other rows."
            )
    split = split_rows(folder.roles.times(frame, plan.time), plan, sample.labels, sample.group)
    if folder.folds is not None:
        note = f"{missing} The model was fitted to all {len(sample):,} rows of this table: they are scored out of fold."
        folds = folds_to_score(folder.model.predictor_, sample, folder.folds)
        return RowsToScore(sample, note.strip(), split.meaning, folds)
    test = sample.rows(split.rows.test)
    note = f"{missing} The model was fitted to this table: only its {len(test):,} test rows are scored.".strip()
    return RowsToScore(test, note, split.meaning)


def evaluate(folder: ModelFolder, frame: Any) -> dict[str, Any]:
    """The leaderboard on a table that has the target, ready for JSON.

    Parameters
    ----------
    folder : ModelFolder
        The model.
    frame : polars DataFrame
        The table. Rows that the model was fitted to are left out; a table that it was fitted to as a whole is scored
        out of fold.
    """
    rows, predictor, leaks = rows_to_score(folder, frame), folder.model.predictor_, folder.task["leaks"]
    held_out = rows.predict_out_of_fold(folder)
    if held_out is None:
        board = leaderboard(predictor, rows.sample, leaks, rows.meaning)
    else:
        board = out_of_fold_leaderboard(predictor, held_out, leaks, rows.meaning)
    return {"note": rows.note, **board.to_dict(), "warnings": folder.task["leaks"] + folder.task["warnings"]}


def report_parts(folder: ModelFolder, frame: Any) -> dict[str, Any]:
    """What a report is written from, as keyword arguments of `write_report`."""
    rows, task = rows_to_score(folder, frame), folder.task
    held_out = rows.predict_out_of_fold(folder)
    sample = rows.sample if held_out is None else held_out.sample
    shown = {"target": folder.roles.target, "command": task.get("command"), "data": task.get("data")}
    shown |= {"split": task.get("split"), "seed": task.get("plan", {}).get("seed"), "fitted": task.get("date")}
    shown |= {"exposure": folder.roles.exposure, "note": rows.note, "numbering": _NUMBERING}
    name = folder.roles.identifier
    return {
        "model": folder.model,
        "sample": sample,
        "held_out": held_out,
        "leak": " ".join(task["leaks"]),
        "meaning": rows.meaning,
        "warnings": task["warnings"],
        # Labels are the rows of the file from 1.
        "ids": (name, frame[name][sample.labels - 1].to_list()) if name in frame.columns else None,
        "task": {key: value for key, value in shown.items() if value not in (None, "")},
    }


# Explanations ---------------------------------------------------------------------------------------------------------


def explain_table(
    folder: ModelFolder, frame: Any, seed: int = 0, progress: Callable[[str], object] | None = None
) -> tuple[Explanation, str]:
    """Importance and effects, and a sentence about the rows that they are from; importance needs the target.

    Rows that the model was fitted to are left out where the table has the target. Where it was fitted to the whole
    table, importance is measured on a fold, with the copies that were fitted without it.
    """
    roles = folder.roles
    names = {role: name for role, name in (("exposure", roles.exposure), ("upper", roles.upper)) if name}
    if roles.target is None or roles.target not in frame.columns:
        inputs = Inputs(folder.model, roles.features(frame), roles.exposures(frame), roles.uppers(frame), names)
        return explanation_of(inputs, seed, progress), "Without the target, importance is not measured."
    rows = rows_to_score(folder, frame)
    held_out = rows.predict_out_of_fold(folder)
    if held_out is None:
        inputs = Inputs.of_sample(folder.model, rows.sample, names)
        return explanation_of(inputs, seed, progress), rows.note.replace("scored", "used")
    measured = Inputs.of_first_fold(folder.model, held_out, names)
    note = (
        f"The model was fitted to all {len(rows.sample):,} rows of this table: importance is measured on "
        f"{len(measured):,} of them, with the copies that were fitted without these."
    )
    inputs = Inputs.of_sample(folder.model, rows.sample, names)
    return explanation_of(inputs, seed, progress, measured), note


def explain_rows(folder: ModelFolder, frame: Any, rows: list[int], of: str = "mean", seed: int = 0) -> Contributions:
    """Contributions to the predictions of some rows, numbered from 1, compared with the whole table."""
    roles = folder.roles
    most = frame.height
    if bad := [row for row in rows if not 1 <= row <= most]:
        raise InputError(argument="rows", must=f"be numbers from 1 to {most:,}", got=str(bad[0]))
    table = Inputs(folder.model, roles.features(frame), roles.exposures(frame), roles.uppers(frame))
    return contributions(table.rows(np.array(rows) - 1), table, of, seed=seed)


def parse_rows(text: str) -> list[int]:
    """Row numbers such as "3", "1,5,7" or "1-10".

    >>> parse_rows("2,5-7")
    [2, 5, 6, 7]
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ConfigError(argument="rows", must="be numbers such as 3, 1,5,7 or 1-10", got=repr(text))
        found += range(int(first), int(last or first) + 1)
    return list(dict.fromkeys(found))


def check_explanation_file(path: str, overwrite: bool, source: str) -> None:
    """Raise an error if an explanation cannot be written to `path`; called before the work."""
    if Path(path).suffix.lower() in _IMAGES:
        check_free(Path(path), overwrite, source)
    else:
        check_output(path, overwrite, source)


def write_explanation(found: Explanation | Contributions, path: str, rows: list[int] | None = None) -> None:
    """Write a table or an image, by the ending; `rows` are the numbers of explained rows."""
    ending = Path(path).suffix.lower()
    if ending in _IMAGES:
        content = BytesIO()
        found.plot().savefig(content, format=ending[1:], dpi=150)
        write_bytes(Path(path), content.getvalue())
        return
    table = found.table()
    if rows is not None:
        table["row"] = [rows[row] for row in table["row"]]
    table["value"] = [f"{value:.10g}" if isinstance(value, float) else str(value) for value in table["value"]]
    write(polars().DataFrame(table), path)


def plain(found: Explanation | Contributions, rows: list[int] | None = None) -> dict[str, Any]:
    """An explanation for JSON."""
    if isinstance(found, Explanation):
        return found.to_dict()
    table = found.to_dict()
    numbers = range(len(found)) if rows is None else rows
    about = {"quantity": found.quantity, "log": found.log, "base": found.base}
    predictions = dict(zip(map(str, numbers), found.prediction.tolist(), strict=True))
    return about | {"prediction": predictions, "table": table | {"row": [numbers[row] for row in table["row"]]}}


# New rows against the training rows -----------------------------------------------------------------------------------


def monitor(
    folder: ModelFolder,
    frame: Any,
    alpha: float = 0.01,
    effect: float = 0.1,
    ignore: Sequence[str] = (),
) -> Monitoring:
    """Compare new rows with the training rows of a model.

    Parameters
    ----------
    folder : ModelFolder
        The model.
    frame : polars DataFrame
        New rows; their counts may be known for some, all or none of them.
    alpha, effect
        As for `ddpn.analysis.monitoring.compare`.
    ignore : sequence of str
        Columns of the table that are compared but never count as drift, such as dates. Commas separate names within
        a text that is not the name of a column.

    Returns
    -------
    Monitoring
    """
    roles = folder.roles
    names = resolve_names(ignore, [column.name for column in roles.columns], "ignore")
    ignored = {part for column in roles.columns if column.name in names for part in column.inputs}
    sample, notes = _with_counts(folder, frame)
    found = compare(
        folder.model.predictor_,
        roles.features(frame),
        sample,
        alpha=alpha,
        effect=effect,
        ignored=ignored,
        days=roles.days,
    )
    return replace(found, not_compared=(*found.not_compared, *notes))


def _with_counts(folder: ModelFolder, frame: Any) -> tuple[Sample | None, list[str]]:
    """The rows whose counts are known and that the model was not fitted to; None, with a note, if they are too few."""
    target = folder.roles.target
    if target is None or target not in frame.columns:
        what = "the model does not know its target" if target is None else f"the table has no column {target!r}"
        return None, [f"Coverage and PIT: {what}."]
    frame = frame.filter(folder.roles.has_target(frame))
    if frame.height < LEAST_ROWS:
        return None, [f"Coverage and PIT: {frame.height:,} rows have a count so far, {LEAST_ROWS} are needed."]
    rows = rows_to_score(folder, frame)
    if rows.folds is not None:
        return None, ["Coverage and PIT: the model was fitted to all rows of this table, which show nothing new."]
    sample, notes = rows.sample, [rows.note] if rows.note else []
    if len(sample) < LEAST_ROWS:
        few = f"{len(sample):,} rows with counts were not trained on, {LEAST_ROWS} are needed"
        return None, [*notes, f"Coverage and PIT: {few}."]
    return sample, notes
