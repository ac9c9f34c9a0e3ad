"""Monitor a model: compare new rows with its training rows, and decide what is drift.

Each comparison is a `Check` with a p-value and a difference. `decide_drift` applies one rule to all of them: a check is
drift if its adjusted p-value is below `alpha` and its difference reaches a threshold. The threshold is needed because
with many rows even negligible differences are more than chance.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddpn.analysis.drift_checks import Check, compare_column, compare_counts, compare_ood
from ddpn.predictor import Predictor
from ddpn.rows.checks import get_row_count
from ddpn.rows.count_rows import CountRows, take_rows
from ddpn.runtime.display import format_day, plural, value_text
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import is_number, join_words
from ddpn.statistics import adjust_p_values
from ddpn.storage.contents import JsonObject
from ddpn.tables.row_draw import MAX_ROWS, describe_draw, draw_rows, draw_sample, draw_to_json

#: The fewest rows that are compared. With fewer, only gross differences could be found.
MIN_ROWS_TO_COMPARE = 20


@dataclass(frozen=True)
class Monitoring:
    """Result of `compare`: all checks of a table of new rows. Checks with drift come first.

    Parameters
    ----------
    rows : int
        The number of new rows that were compared.
    total : int
        The number of rows from which these were drawn.
    training_rows : int
        The number of training rows. New rows are compared with a summary of them.
    rows_with_counts : int
        The number of new rows whose counts were compared with predictions. The model was not fitted to them.
    total_with_counts : int
        The number of rows from which these were drawn.
    alpha : float
        The significance level of all tests together.
    effect : float
        The smallest difference that counts as drift, from 0 to 1. For the coverage of intervals, half of it is used.
    checks : tuple of Check
        The comparisons.
    not_compared : tuple of str
        Sentences about quantities that could not be compared, and why.
    """

    rows: int
    total: int
    training_rows: int
    rows_with_counts: int
    total_with_counts: int
    alpha: float
    effect: float
    checks: tuple[Check, ...]
    not_compared: tuple[str, ...] = ()

    @property
    def drift(self) -> bool:
        """True if at least one check reports drift."""
        return any(check.drift for check in self.checks)

    @property
    def headline(self) -> str:
        """A sentence that says whether there is drift, and in what."""
        drifting = [check.title for check in self.checks if check.drift]
        checked = f"{len(self.checks)} checks of {self.total:,} rows"
        if not drifting:
            return f"No drift: {checked}."
        return f"Drift in {len(drifting)} of {checked}: {join_words(drifting, 5)}."

    @property
    def drift_rule(self) -> str:
        """Sentences that explain when a difference is drift.

        They also name the checks whose difference is more than chance but too small to be drift.
        """
        compared = sum(not check.ignored for check in self.checks)
        rule = (
            f"Drift is a difference of at least {self.effect:g} ({0.5 * self.effect:g} for coverage) whose p-value, "
            f"adjusted for {plural(compared, 'check')} by Holm's method, is below {self.alpha:g}."
        )
        small = [check.title for check in self.checks if check.more_than_chance and not check.drift]
        return f"{rule} More than chance but smaller: {join_words(small, 5)}." if small else rule

    @property
    def drawn_rows_note(self) -> str:
        """Sentences that say how many rows were drawn for the checks; empty if all rows were used."""
        columns = describe_draw("Columns and out-of-distribution rows are checked on", self.rows, self.total)
        counts = describe_draw("Coverage and PIT are checked on", self.rows_with_counts, self.total_with_counts)
        return f"{columns} {counts}".strip()

    @property
    def detectable(self) -> str:
        """A sentence that names the smallest difference that this number of rows can distinguish from chance."""
        sizes = 1.0 / self.rows + 1.0 / self.training_rows
        compared = sum(not check.ignored for check in self.checks)
        least = min(1.0, float(np.sqrt(-0.5 * np.log(self.alpha / max(2 * compared, 2)) * sizes)))
        return (
            f"With {self.rows:,} rows, a difference below about {least:.2g} in the distribution of a column cannot be "
            "distinguished from chance."
        )

    def as_dict(self) -> JsonObject:
        """Return the result as a dictionary for JSON."""
        checks = [{**check._asdict(), "drift": check.drift} for check in self.checks]
        draw = {
            "rows": draw_to_json(self.rows, self.total),
            "rows_with_counts": draw_to_json(self.rows_with_counts, self.total_with_counts),
        }
        words = {"headline": self.headline, "rule": self.drift_rule}
        return {"drift": self.drift, **words, **vars(self), "draw": draw, "checks": checks}


def compare(
    predictor: Predictor,
    X: Any,
    sample: CountRows | None = None,
    *,
    alpha: float = 0.01,
    effect: float = 0.1,
    ignored: Collection[str] = (),
    days: Collection[str] = (),
    max_rows: int | None = MAX_ROWS,
    total: int | None = None,
    total_with_counts: int | None = None,
) -> Monitoring:
    """Compare new rows with the training rows of a model.

    Parameters
    ----------
    predictor : Predictor
        The model, with a summary of its training rows.
    X : table
        New rows.
    sample : CountRows, optional
        Rows with counts to which the model was not fitted, for checks of coverage and PIT.
    alpha : float
        The probability of at least one false alarm if new rows are like the training rows (Holm's method).
    effect : float
        The smallest difference that matters, from 0 to 1. For the coverage of intervals, half of it is used.
    ignored : collection of str
        Columns of X that are compared but never count as drift, such as dates.
    days : collection of str
        Columns of X that contain days since 1970, which are shown as dates.
    max_rows : int or None
        The largest number of rows to use, both of X and of `sample`. If there are more, some are drawn at random,
        always the same ones. None uses all rows.
    total, total_with_counts : int, optional
        The numbers of rows from which X and `sample` were drawn. Default: their own numbers of rows.

    Returns
    -------
    Monitoring
        All checks, and which of them are drift. A quantity that cannot be compared is listed in `not_compared`.

    Raises
    ------
    InputError
        If there are too few new rows, or if the model has no summary of its training rows.
    """
    for name, value in (("alpha", alpha), ("effect", effect)):
        if not is_number(value) or not 0.0 < value < 1.0:
            raise ConfigError(argument=name, must="lie between 0 and 1", got=repr(value))
    profile, rows = predictor.calibration.profile, get_row_count(X)
    if profile is None:
        raise InputError("The model has no summary of its training rows to compare with. Fit it again with ddpn fit.")
    if rows < MIN_ROWS_TO_COMPARE:
        raise InputError(f"Monitoring needs at least {MIN_ROWS_TO_COMPARE} rows, got {rows}. Collect more rows.")
    draw = draw_rows(rows, max_rows)
    X, rows, total = take_rows(X, draw.positions), len(draw), rows if total is None else total
    checks, notes = list[Check](), list[str]()
    for column_profile, column, name in zip(profile.columns, profile.schema.parse(X), profile.names, strict=True):
        check = compare_column(column_profile, column._replace(name=name), format_day if name in days else value_text)
        checks.append(check._replace(ignored=name in {*profile.ignored, *ignored}))
        if not len(column_profile.keys) and not len(column_profile.edges) and column_profile.missing_share < 1.0:
            notes.append(f"Values of {name!r}: the training rows had too many levels to store them.")
    if predictor.calibration.ood is None:
        notes.append("The share of out-of-distribution rows: the model was fitted without calibration rows.")
    else:
        checks.append(compare_ood(predictor, predictor.calibration.ood_pvalue(X)))
    counts = 0
    if sample is not None:
        total_with_counts = len(sample) if total_with_counts is None else total_with_counts
        sample = draw_sample(sample, max_rows).take(sample)
        checks, counts = [*checks, *compare_counts(predictor, sample)], len(sample)
    sizes = rows, total, profile.rows, counts, total_with_counts or 0
    return Monitoring(*sizes, float(alpha), float(effect), decide_drift(checks, alpha, effect), tuple(notes))


def decide_drift(checks: Sequence[Check], alpha: float, effect: float) -> tuple[Check, ...]:
    """Decide which checks are drift, and return them with their adjusted p-values; checks with drift come first.

    P-values are adjusted by Holm's method over all checks that are not ignored. A check is drift if its adjusted
    p-value is below `alpha` and its difference is at least its threshold: `effect`, or half of it for coverage.

    >>> one, other = Check("ood", "a", 0.3, 0.001, "", ""), Check("ood", "b", 0.01, 1e-9, "", "")
    >>> [(check.name, check.adjusted_p_value, check.drift) for check in decide_drift([one, other], 0.01, 0.1)]
    [('a', 0.001, True), ('b', 2e-09, False)]
    """
    counted, decisions = [check for check in checks if not check.ignored], []
    for check, adjusted in zip(counted, adjust_p_values([check.p_value for check in counted]), strict=True):
        threshold = 0.5 * effect if check.kind == "coverage" else effect
        decisions.append(
            check._replace(adjusted_p_value=adjusted, threshold=threshold, more_than_chance=adjusted < alpha)
        )
    decisions += [check for check in checks if check.ignored]
    return tuple(sorted(decisions, key=lambda check: (not check.drift, check.ignored, -check.effect)))
