"""Predict the rows of a table with a saved model, and collect what is unusual about them.

A `PredictionSpec` says which columns the result has. Long tables are predicted in blocks of successive rows. A row is
flagged if it is unlike the training rows (out-of-distribution, OOD).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl

from ddpn.calibration.columns import STATES
from ddpn.calibration.ood import check_alpha
from ddpn.calibration.unusual_cells import describe_states
from ddpn.prediction.prediction import Prediction
from ddpn.prediction.spec import PredictionSpec
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.checks import label_row_errors
from ddpn.rows.count_rows import BLOCK, take_rows
from ddpn.storage.contents import JsonObject
from ddpn.tables.roles import Roles
from ddpn.workflow.model_folder import ModelFolder

#: The fewest rows for which the share of flagged rows is written in percent.
_MIN_PERCENT_ROWS = 100


class Findings:
    """Counters of unusual cells, flagged rows and unknown interval groups in a table.

    A table is predicted in blocks of rows: `add` counts the rows of one block. `merge` adds the counts of another
    process. `predictor` is the model, and `spec` says which outputs are predicted.
    """

    def __init__(self, predictor: Predictor, spec: PredictionSpec) -> None:
        self._calibration = calibration = predictor.calibration
        # The numbers of cells of each column in each state, such as missing.
        n_columns = 0 if calibration.profile is None else len(calibration.profile.columns)
        self._states = np.zeros((n_columns, len(STATES)), dtype=np.int64)
        self._uncalibrated = spec.member if spec.member not in calibration.intervals else None
        self._alpha = spec.ood if calibration.ood is None or spec.ood is not None else calibration.ood.alpha
        self._rows = self._flagged = 0
        self._groups: Counter[str] = Counter()
        self._notes: dict[str, str] = {}

    def add(self, prediction: Prediction) -> None:
        """Count the rows of a predicted block, its flagged rows, the rows of each group, and its unusual cells."""
        self._rows += len(prediction)
        if self._alpha is not None and self._calibration.ood is not None:
            self._flagged += int(self._calibration.ood.is_ood(prediction.ood_pvalue, self._alpha).sum())
        if self._calibration.profile is not None:
            self._states += prediction.table_scores.states
        self._groups.update([] if prediction.groups is None else prediction.groups.tolist())

    def add_note(self, sentence: str) -> None:
        """Store a sentence about cells that could not be read. Only the first sentence about each column is kept."""
        self._notes.setdefault(sentence.partition(":")[0], sentence)

    def as_dict(self) -> JsonObject:
        """Return the counts, ready for JSON."""
        return {
            "rows": self._rows,
            "flagged": self._flagged,
            "groups": dict(self._groups),
            "notes": self._notes,
            "states": self._states.tolist(),
        }

    def merge(self, counts: JsonObject) -> None:
        """Add the counts and the sentences of another process, as returned by `as_dict` there, to this object."""
        self._rows, self._flagged = self._rows + counts["rows"], self._flagged + counts["flagged"]
        self._groups.update(counts["groups"])
        self._notes = counts["notes"] | self._notes
        if self._calibration.profile is not None:
            self._states += np.asarray(counts["states"])

    def to_sentences(self) -> list[str]:
        """Return sentences for the user about unusual cells, unknown interval groups and the share of flagged rows.

        The sentences of `add_note` come first. The list is empty if there is nothing to report.
        """
        sentences = list(self._notes.values())
        if self._uncalibrated is not None:
            sentences.append(f"The intervals of member {self._uncalibrated!r} are not calibrated.")
        if self._calibration.groups is not None and self._groups:
            labels = np.array(list(self._groups.elements()), dtype=object)
            sentences.append(self._calibration.groups.describe_unseen(labels))
        if self._calibration.profile is not None:
            sentences += describe_states(self._calibration.profile, self._states)
        ood = self._calibration.ood
        if ood is not None and ood.warning and self._alpha == ood.alpha:
            sentences.append(ood.warning)
        elif self._alpha is not None and self._rows:
            expected = f"{100 * self._alpha:.3g}% expected for rows like the training data"
            few = self._rows < _MIN_PERCENT_ROWS
            share = f"{self._flagged} of {self._rows}" if few else f"{self._flagged / self._rows:.1%} of"
            verb = "is" if few and self._flagged == 1 else "are"
            sentences.append(f"{share} rows {verb} flagged as out-of-distribution ({expected}).")
        return [sentence for sentence in sentences if sentence]


def predict(
    folder: ModelFolder,
    frame: pl.DataFrame,
    spec: PredictionSpec,
    on_finding: Callable[[str], None] = lambda sentence: None,
) -> pl.DataFrame:
    """Predict every row of a data frame.

    Parameters
    ----------
    folder : ModelFolder
        The model.
    frame : polars DataFrame
        The table.
    spec : PredictionSpec
        The columns of the result.
    on_finding : callable
        Called with each sentence about unusual cells and flagged rows.

    Returns
    -------
    polars DataFrame
        One row per row of `frame`, with the columns that `spec` asks for.
    """
    spec = check_spec(folder.model.predictor_, spec)
    findings = Findings(folder.model.predictor_, spec)
    predictions = predict_block(folder.model.predictor_, folder.roles, frame, spec, findings)
    for sentence in findings.to_sentences():
        on_finding(sentence)
    return predictions


def check_spec(predictor: Predictor, spec: PredictionSpec) -> PredictionSpec:
    """Raise an error if the model cannot predict what `spec` asks for; return the spec with its member's full name.

    For example, the model may lack the member, or have too few calibration rows to flag out-of-distribution rows.
    """
    spec = spec.for_model(predictor.members, predictor.calibration.ood is not None)
    if spec.ood is not None:
        check_alpha(spec.ood, len(predictor.calibration.require_ood().scores))
    return spec


def predict_block(
    predictor: Predictor,
    roles: Roles,
    frame: pl.DataFrame,
    spec: PredictionSpec,
    findings: Findings,
    start: int = 0,
    on_note: Callable[[str], None] | None = None,
) -> pl.DataFrame:
    """Predict a block of rows of a table, and count its unusual cells and flagged rows in `findings`.

    `roles` says how the columns of `frame` are used. Return one row per row of `frame`, with the columns that `spec`
    asks for. If `spec.keep` is True, they follow the columns of `frame`.

    `start` is the number of rows before this block, so that error messages can number rows. `on_note` is called with
    sentences about cells that cannot be read and become missing; by default, they are shown as warnings.
    """
    with label_row_errors(np.arange(start, start + frame.height) + 1):
        X, groups = roles.parse(frame, on_note), roles.read_interval_groups(frame)
        exposure, upper = roles.read_exposure(frame, start), roles.read_upper(frame, start)
    parts = []
    for block_start in range(0, frame.height, BLOCK):
        rows = slice(block_start, block_start + BLOCK)
        block_exposure, block_upper, block_groups = (
            None if values is None else values[rows] for values in (exposure, upper, groups)
        )
        with label_row_errors(np.arange(start + block_start, start + frame.height) + 1):
            prediction = predictor.predict(
                take_rows(X, rows), block_exposure, block_upper, block_groups, spec.member or MIXTURE
            )
            prediction = replace(prediction, days=roles.dates.days)
            parts.append(prediction.to_frame(spec))
        findings.add(prediction)
    predictions = pl.concat(parts)
    return _append_predictions(frame, predictions) if spec.keep else predictions


def _append_predictions(frame: pl.DataFrame, predictions: pl.DataFrame) -> pl.DataFrame:
    """Append the columns of `predictions` to `frame`. Columns whose names exist get the prefix "predicted_"."""
    names: dict[str, str] = {}
    for name in predictions.columns:
        new = name
        while new in frame.columns or new in names.values():
            new = f"predicted_{new}"
        names[name] = new
    return pl.concat([frame, predictions.rename(names)], how="horizontal")
