"""compare: from a predictor and a table of new rows to checks."""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ddpn.analysis.monitoring.columns import column_checks
from ddpn.analysis.monitoring.predictions import count_checks, ood_check
from ddpn.analysis.monitoring.result import Check, Monitoring, decided
from ddpn.calibration.reasons import TableSummary, shown_day
from ddpn.predictor import Predictor
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import is_number
from ddpn.sample import Sample, row_count, take_rows

#: Rows that are predicted at most: a random draw of more of them says as much as all.
MOST_ROWS = 20_000
#: Fewer rows are not compared: only the grossest differences would be found.
LEAST_ROWS = 20


def compare(
    predictor: Predictor,
    X: Any,
    sample: Sample | None = None,
    *,
    alpha: float = 0.01,
    effect: float = 0.1,
    ignored: Collection[str] = (),
    days: Collection[str] = (),
    progress: Callable[[str], object] = lambda step: None,
) -> Monitoring:
    """Compare new rows with the training rows of a model.

    Parameters
    ----------
    predictor : Predictor
        The model, with a summary of its training rows.
    X : table
        New rows.
    sample : Sample, optional
        Rows with counts that the model was not fitted to, by which coverage and PIT are checked.
    alpha : float
        The probability of any false alarm where rows are like the training rows (Holm over all checks).
    effect : float
        The least difference of shares that matters, from 0 to 1; half of that for the coverage of intervals.
    ignored : collection of str
        Columns of X that are compared but never count as drift, such as dates.
    days : collection of str
        Columns of X that hold days since 1970, which are shown as dates.
    progress : callable
        Called with the name of each step.

    Returns
    -------
    Monitoring
    """
    for name, value in (("alpha", alpha), ("effect", effect)):
        if not is_number(value) or not 0.0 < value < 1.0:
            raise ConfigError(argument=name, must="lie between 0 and 1", got=repr(value))
    profile, rows = predictor.profile, row_count(X)
    if profile is None:
        raise InputError("The model has no summary of its training rows to compare with. Fit it again with ddpn fit.")
    if rows < LEAST_ROWS:
        raise InputError(f"The table must have at least {LEAST_ROWS} rows to be compared, got {rows}.")
    progress("Comparing columns")
    summary, notes = TableSummary(profile), list[str]()
    summary.add(profile.measure(X).states)
    checks: list[Check] = []
    for own, column, name in zip(profile.columns, profile.reader.read(X), profile.names, strict=True):
        shown = shown_day if name in days else "{:.4g}".format
        more, note = column_checks(own, column._replace(name=name), name in {*profile.ignored, *ignored}, shown)
        checks += more
        notes += [note] if note else []
    progress("Predicting rows")
    checks += _ood(predictor, X, notes)
    scores: dict[str, Any] = {}
    if sample is not None:
        progress("Scoring predictions")
        more, scores = count_checks(predictor, sample.rows(_drawn(len(sample))))
        checks += more
    counts = 0 if sample is None else min(len(sample), MOST_ROWS)
    found, sentences = decided(checks, alpha, effect), tuple(summary.sentences())
    return Monitoring(rows, profile.rows, counts, float(alpha), float(effect), found, tuple(notes), sentences, scores)


def _drawn(rows: int) -> np.ndarray:
    if rows <= MOST_ROWS:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))


def _ood(predictor: Predictor, X: Any, notes: list[str]) -> list[Check]:
    """The check of the out-of-distribution share."""
    if predictor.ood is None:
        notes.append("The share of out-of-distribution rows: the model was fitted without calibration rows.")
        return []
    rows = row_count(X)
    index = _drawn(rows)
    if len(index) < rows:
        notes.append(f"All rows: of the predictions, a random draw of {MOST_ROWS:,} rows is compared.")
    return [ood_check(predictor, predictor.ood_pvalue(take_rows(X, index)))]
