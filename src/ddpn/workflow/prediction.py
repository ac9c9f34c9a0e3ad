"""Use a saved model on another table: predictions, scores, and what a report needs."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ddpn.analysis.leaderboard import leaderboard
from ddpn.calibration.ood import TableSummary
from ddpn.predictor import Predictor
from ddpn.runtime.errors import InputError
from ddpn.sample import Sample, rows_named
from ddpn.tables.reading import polars
from ddpn.workflow.model_folder import ModelFolder
from ddpn.workflow.plan import plan_from
from ddpn.workflow.prediction_request import Request
from ddpn.workflow.prediction_table import prediction_table
from ddpn.workflow.preparing import fingerprint
from ddpn.workflow.seen_rows import unseen_rows
from ddpn.workflow.splitting import split_rows

_NUMBERING = "Rows are numbered as in the file: the first below the header is 1."

#: Rows that are predicted at a time: as fast as more (65,536 rows took 13.9 s; 14.4 s in one piece) in half the memory
#: (0.5 GB; 1.1 GB), and Ctrl-C is answered within a second.
BLOCK = 4096
#: Below so many rows, flagged rows are counted: a percentage would say little.
_FEW_ROWS = 100


class Findings:
    """What is unusual about a table, counted block by block; counts of blocks that were predicted before are merged."""

    def __init__(self, predictor: Predictor, request: Request) -> None:
        self._predictor = predictor
        self.summary = None if predictor.profile is None else TableSummary(predictor.profile)
        self._uncalibrated = request.member if request.member not in predictor.intervals else None
        self._alpha = None if predictor.ood is None else predictor.ood.alpha if request.ood is None else request.ood
        self._rows = self._flagged = 0
        self._groups: Counter[str] = Counter()
        self._notes: dict[str, str] = {}

    def add(self, predictions: Any, groups: np.ndarray | None) -> None:
        """Count the predictions of a block, and the groups of its rows."""
        self._rows += predictions.height
        if self._alpha is not None and self._predictor.ood is not None:
            flags = self._predictor.ood.is_ood(predictions["ood_pvalue"].to_numpy(), self._alpha)
            self._flagged += int(flags.sum())
        self._groups.update([] if groups is None else groups.tolist())

    def note(self, sentence: str) -> None:
        """Keep a sentence about how the cells of a column were read: the first about each column."""
        self._notes.setdefault(sentence.partition(":")[0], sentence)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        states = None if self.summary is None else self.summary.states.tolist()
        return {
            "rows": self._rows,
            "flagged": self._flagged,
            "groups": dict(self._groups),
            "notes": self._notes,
            "states": states,
        }

    def merge(self, known: dict[str, Any]) -> None:
        """Add the counts of `as_dict` of other blocks, which come after those that were counted before."""
        self._rows, self._flagged = self._rows + known["rows"], self._flagged + known["flagged"]
        self._groups.update(known["groups"])
        self._notes = known["notes"] | self._notes
        if self.summary is not None:
            self.summary.add(np.asarray(known["states"], dtype=np.int64))

    def sentences(self) -> list[str]:
        """Sentences about what is unusual in the table, and the share of rows that is flagged."""
        found = list(self._notes.values())
        if self._uncalibrated is not None:
            found.append(f"The intervals of the member {self._uncalibrated} are not calibrated.")
        if self._predictor.groups is not None and self._groups:
            labels = np.array(list(self._groups.elements()), dtype=object)
            found.append(self._predictor.groups.unseen(labels))
        found += [] if self.summary is None else self.summary.sentences()
        if self._alpha is not None and self._rows:
            expected = f"{100 * self._alpha:.3g}% expected of rows like the training data"
            few = self._rows < _FEW_ROWS
            share = f"{self._flagged} of {self._rows}" if few else f"{self._flagged / self._rows:.1%} of"
            found.append(f"{share} rows are flagged as out-of-distribution ({expected}).")
        return [sentence for sentence in found if sentence]


def predict(
    folder: ModelFolder,
    frame: Any,
    request: Request,
    done: Callable[[int], None] = lambda rows: None,
    on_finding: Callable[[str], None] = lambda sentence: None,
) -> Any:
    """Predict every row of a table.

    Parameters
    ----------
    folder : ModelFolder
        The model.
    frame : polars DataFrame
        The table.
    request : Request
        Which columns to predict.
    done : callable
        Called with the number of rows of each block.
    on_finding : callable
        Called with every sentence about unusual rows.

    Returns
    -------
    polars DataFrame
    """
    request = checked_request(folder.model.predictor_, request)
    findings = Findings(folder.model.predictor_, request)
    found = predict_block(folder, frame, request, findings, done, note=None)
    for sentence in findings.sentences():
        on_finding(sentence)
    return found


def checked_request(predictor: Predictor, request: Request) -> Request:
    """The request for a model; raises an error for what it cannot do, before the work."""
    request = request.for_model(predictor.members, predictor.ood is not None)
    if request.ood is not None:
        predictor.calibrated_ood.is_ood(np.ones(1), request.ood)  # a level that is too small for the calibration rows
    return request


def predict_block(
    folder: ModelFolder,
    frame: Any,
    request: Request,
    findings: Findings,
    done: Callable[[int], None] = lambda rows: None,
    first: int = 0,
    note: Callable[[str], None] | None = None,
) -> Any:
    """Predict some rows of a table; what is unusual about them is added to `findings`.

    `first` is the number of rows before them, and `note` takes sentences about cells that cannot be read, which are
    warnings by default.
    """
    roles, predictor = folder.roles, folder.model.predictor_
    with rows_named(np.arange(first, first + frame.height) + 1):
        X, groups = roles.features(frame, note), roles.group_labels(frame)
        exposure, upper = roles.exposures(frame, first), roles.uppers(frame, first)
    parts = []
    for start in range(0, frame.height, BLOCK):
        rows = slice(start, start + BLOCK)
        known = (None if values is None else values[rows] for values in (exposure, upper, groups))
        with rows_named(np.arange(first + start, first + frame.height) + 1):
            columns = prediction_table(predictor, X[rows], request, *known, summary=findings.summary, days=roles.days)
        parts.append(_frame(columns))
        done(parts[-1].height)
    predictions = polars().concat(parts)
    findings.add(predictions, groups)
    return _beside(frame, predictions) if request.keep else predictions


def _frame(columns: dict[str, Any]) -> Any:
    """The columns as a data frame: reasons as text, null where there are none."""
    if "ood_reason" in columns:
        words = ["; ".join(own) or None for own in columns["ood_reason"]]
        columns = columns | {"ood_reason": polars().Series(words, dtype=polars().String)}
    return polars().DataFrame(columns)


def _beside(frame: Any, predictions: Any) -> Any:
    """The table followed by the predictions, whose names get a prefix where the table has them already."""
    names: dict[str, str] = {}
    for name in predictions.columns:
        new = name
        while new in frame.columns or new in names.values():
            new = f"predicted_{new}"
        names[name] = new
    return polars().concat([frame, predictions.rename(names)], how="horizontal")


class Scored(NamedTuple):
    """Rows to score a model on; `note` says which where these are not all rows, `meaning` what their scores mean."""

    sample: Sample
    note: str
    meaning: str = ""


def rows_to_score(folder: ModelFolder, frame: Any) -> Scored:
    """The rows of a table that has the target, without those that the model was fitted to.

    For the training table, these are the test rows.
    """
    sample = folder.roles.sample(frame, folder.model.fractional, counts=folder.model.predictor_.counts)
    missing = " ".join(folder.roles.without_target(frame.height - len(sample)))
    sample = sample.rows(sample.is_used)
    frame = frame[sample.labels - 1]
    if fingerprint(sample) != folder.task.get("fingerprint"):
        sample, note = (sample, "") if folder.seen is None else unseen_rows(folder.seen, sample)
        return Scored(sample, f"{missing} {note}".strip())
    plan = plan_from(folder.task["plan"])
    for name in (plan.split_column, plan.time):
        if name is not None and name not in frame.columns:
            raise InputError(
                f"No column named {name!r}, which says which rows are test rows: the model was fitted to this table. "
                "Add the column, or use other rows."
            )
    split = split_rows(folder.roles.times(frame, plan.time), plan, sample.labels, sample.group)
    test = sample.rows(split.rows.test)
    note = f"{missing} The model was fitted to this table: only its {len(test):,} test rows are scored.".strip()
    return Scored(test, note, split.meaning)


def evaluate(folder: ModelFolder, frame: Any) -> dict[str, Any]:
    """The leaderboard on a table that has the target, ready for JSON.

    Parameters
    ----------
    folder : ModelFolder
        The model.
    frame : polars DataFrame
        The table. Rows that the model was fitted to are left out.
    """
    sample, note, meaning = rows_to_score(folder, frame)
    found = leaderboard(folder.model.predictor_, sample, folder.task["leaks"], meaning)
    return {"note": note, **found.to_dict(), "warnings": folder.task["leaks"] + folder.task["warnings"]}


def report_parts(folder: ModelFolder, frame: Any) -> dict[str, Any]:
    """What a report is written from, as keyword arguments of `write_report`."""
    (sample, note, meaning), task, predictor = rows_to_score(folder, frame), folder.task, folder.model.predictor_
    shown = {"target": folder.roles.target, "command": task.get("command"), "data": task.get("data")}
    shown |= {"split": task.get("split"), "seed": task.get("plan", {}).get("seed"), "fitted": task.get("date")}
    shown |= {"exposure": folder.roles.exposure, "note": note, "numbering": _NUMBERING}
    known = predictor.counts.arguments(sample)
    name = folder.roles.identifier
    return {
        "model": folder.model,
        "X": sample.X,
        "y": sample.y,
        **known,
        "weight": sample.weight,
        "groups": sample.group,
        "interval_groups": sample.interval_groups,
        "leak": " ".join(task["leaks"]),
        "meaning": meaning,
        "warnings": task["warnings"],
        "labels": sample.labels,
        # Labels are the rows of the file from 1.
        "ids": (name, frame[name][sample.labels - 1].to_list()) if name in frame.columns else None,
        "task": {key: value for key, value in shown.items() if value not in (None, "")},
    }
