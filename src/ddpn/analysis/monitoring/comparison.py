"""monitor: from a model folder and a table of new rows to checks."""

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from typing import Any

import numpy as np

from ddpn.analysis.monitoring.columns import column_checks
from ddpn.analysis.monitoring.counts import count_checks, ood_check
from ddpn.analysis.monitoring.result import Check, Monitoring, decided
from ddpn.calibration.reasons import TableSummary
from ddpn.predictor import Predictor
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import check_column, is_number
from ddpn.sample import Sample, take_rows
from ddpn.tables.cells import cleaned, is_text
from ddpn.tables.dates import DAY
from ddpn.workflow.model_folder import ModelFolder
from ddpn.workflow.prediction import rows_to_score

#: Rows that are predicted at most: a random draw of more of them says as much as all.
MOST_ROWS = 20_000
#: Fewer rows are not compared: only the grossest differences would be found.
LEAST_ROWS = 20


def monitor(
    folder: ModelFolder,
    frame: Any,
    alpha: float = 0.01,
    effect: float = 0.1,
    ignore: Sequence[str] = (),
    progress: Callable[[str], object] = lambda step: None,
) -> Monitoring:
    """Compare new rows with the training rows of a model.

    Parameters
    ----------
    folder : ModelFolder
        The model.
    frame : polars DataFrame
        New rows; their counts may be known for some, all or none of them.
    alpha : float
        The probability of any false alarm where rows are like the training rows (Holm over all checks).
    effect : float
        The least difference of shares that matters, from 0 to 1; half of that for the coverage of intervals.
    ignore : sequence of str
        Columns of the table that are compared but never count as drift, such as dates.
    progress : callable
        Called with the name of each step.

    Returns
    -------
    Monitoring
    """
    for name, value in (("alpha", alpha), ("effect", effect)):
        if not is_number(value) or not 0.0 < value < 1.0:
            raise ConfigError(argument=name, must="lie between 0 and 1", got=repr(value))
    predictor, roles = folder.model.predictor_, folder.roles
    for name in ignore:
        check_column(name, [column.name for column in roles.columns], "ignore", InputError)
    if predictor.profile is None:
        raise InputError("The model has no summary of its training rows to compare with. Fit it again with ddpn fit.")
    if frame.height < LEAST_ROWS:
        raise InputError(f"The table must have at least {LEAST_ROWS} rows to be compared, got {frame.height}.")
    progress("Comparing columns")
    X, notes = roles.features(frame), list[str]()
    summary = TableSummary(predictor.profile)
    summary.add(predictor.profile.measure(X).states)
    hidden = {*predictor.profile.ignored, *(part for c in roles.columns if c.name in ignore for part in c.inputs)}
    days = {f"{column.name} {DAY}" for column in roles.used if column.kind == "date"}
    checks = _of_columns(predictor, X, hidden, days, notes)
    progress("Predicting rows")
    checks += _of_rows(folder, frame, X, notes)
    sample = _known(folder, frame, notes)
    scores: dict[str, Any] = {}
    if sample is not None:
        progress("Scoring predictions")
        more, scores = count_checks(predictor, sample)
        checks += more
        scores["test"] = _test_scores(folder)
    return Monitoring(
        rows=frame.height,
        training_rows=predictor.profile.rows,
        counts=0 if sample is None else len(sample),
        alpha=float(alpha),
        effect=float(effect),
        checks=decided(checks, alpha, effect),
        not_compared=tuple(notes),
        findings=tuple(summary.sentences()),
        scores=scores,
    )


def _of_columns(predictor: Predictor, X: Any, hidden: set[str], days: set[str], notes: list[str]) -> list[Check]:
    profile = predictor.profile
    assert profile is not None
    found: list[Check] = []
    for own, column, name in zip(profile.columns, profile.reader.read(X), profile.names, strict=True):
        shown = _as_date if name in days else "{:.4g}".format
        checks, note = column_checks(own, column._replace(name=name), name in hidden, shown)
        found += checks
        notes += [note] if note else []
    return found


def _as_date(day: float) -> str:
    """The day of a number of days since 1970."""
    return (date(1970, 1, 1) + timedelta(days=int(np.clip(day, -700_000, 2_900_000)))).isoformat()


def _drawn(rows: int) -> np.ndarray:
    if rows <= MOST_ROWS:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))


def _of_rows(folder: ModelFolder, frame: Any, X: Any, notes: list[str]) -> list[Check]:
    """The check of the out-of-distribution share."""
    predictor, roles = folder.model.predictor_, folder.roles
    if predictor.ood is None:
        notes.append("The share of out-of-distribution rows: the model was fitted without calibration rows.")
        return []
    index = _drawn(frame.height)
    if len(index) < frame.height:
        notes.append(f"All rows: of the predictions, a random draw of {MOST_ROWS:,} rows is compared.")
    exposure, upper = roles.exposures(frame), roles.uppers(frame)
    known = (None if values is None else values[index] for values in (exposure, upper))
    return [ood_check(predictor, predictor.ood_pvalue(take_rows(X, index), *known))]


def _known(folder: ModelFolder, frame: Any, notes: list[str]) -> Sample | None:
    """The rows whose counts are known and were not trained on; None, with a note, where there are too few."""
    target = folder.roles.target
    if target is None or target not in frame.columns:
        what = "the model does not know its target" if target is None else f"the table has no column {target!r}"
        notes.append(f"Coverage and PIT: {what}.")
        return None
    series = frame[target]
    missing = cleaned(series, folder.roles.missing).is_null() if is_text(series) else series.is_null()
    if series.dtype.is_float():
        missing = missing | series.is_nan().fill_null(True)
    frame = frame.filter(~missing)
    if frame.height < LEAST_ROWS:
        notes.append(f"Coverage and PIT: {frame.height:,} rows have a count so far, {LEAST_ROWS} are needed.")
        return None
    sample, note, _ = rows_to_score(folder, frame)
    notes += [note] if note else []
    if len(sample) < LEAST_ROWS:
        notes.append(
            f"Coverage and PIT: {len(sample):,} rows with counts were not trained on, {LEAST_ROWS} are needed."
        )
        return None
    return sample.rows(_drawn(len(sample)))


def _test_scores(folder: ModelFolder) -> dict[str, Any] | None:
    """The scores of the test rows of the fit."""
    entries = folder.task.get("test", {}).get("entries", [])
    found = next((entry for entry in entries if entry["name"] == "mixture"), None)
    return None if found is None else {name: found[name] for name in ("crps", "mae", "nll", "coverage")}
