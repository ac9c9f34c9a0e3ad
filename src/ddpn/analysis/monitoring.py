"""Compare new rows with the training rows of a model: columns, out-of-distribution rows and, with counts, intervals.

Each comparison is a `Check` with a p-value and a difference. It is drift by one rule (`decide_drift`): the adjusted
p-value is below `alpha`, and the difference reaches the threshold, because with many rows differences that do not
matter are more than chance, too.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats
from scipy.special import ndtr

from ddpn.analysis.plots import Pit
from ddpn.analysis.row_scores import COVERAGE
from ddpn.calibration.columns import ColumnProfile
from ddpn.calibration.intervals import IntervalLevels, measure_shares_inside
from ddpn.distributions import discretize
from ddpn.distributions.limits import censor_rows
from ddpn.metrics import pit_distance
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.checks import get_row_count
from ddpn.rows.count_rows import CountRows, take_rows
from ddpn.runtime.display import format_day, plural, value_text
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.threads import single_thread
from ddpn.runtime.validation import is_number, join_words
from ddpn.statistics import adjust_p_values
from ddpn.storage.contents import JsonObject
from ddpn.tables.columns import Column
from ddpn.tables.row_draw import MAX_ROWS, describe_draw, draw_rows, draw_sample, draw_to_json
from ddpn.tables.row_hashes import hash_texts

#: The fewest rows that are compared. With fewer, only gross differences could be found.
MIN_ROWS_TO_COMPARE = 20
#: The smallest expected number of rows of a level that is compared separately. Rarer levels are pooled.
_MIN_EXPECTED_ROWS = 5.0


class Check(NamedTuple):
    """One comparison.

    Parameters
    ----------
    kind : str
        "values" of a column, "ood", "coverage" or "pit".
    name : str
        The name of the column, or of the quantity that is compared.
    effect : float
        The size of the difference, as a difference of shares from 0 to 1.
    p_value : float
        The probability of a difference at least as large if new rows are like the training rows.
    before, now : str
        The value in the training rows (or the expected value), and the value in the new rows.
    ignored : bool
        True if the check is shown but never reports drift.
    adjusted_p_value : float
        The p-value for all checks together.
    threshold : float
        The least difference that is drift.
    more_than_chance : bool
        Whether the adjusted p-value is below the level of all checks together.
    """

    kind: str
    name: str
    effect: float
    p_value: float
    before: str
    now: str
    ignored: bool = False
    adjusted_p_value: float = 1.0
    threshold: float = 1.0
    more_than_chance: bool = False

    @property
    def drift(self) -> bool:
        """Whether the difference is more than chance and large enough to matter."""
        return self.more_than_chance and self.effect >= self.threshold

    @property
    def title(self) -> str:
        """The title of the check."""
        return f"values of {self.name}" if self.kind == "values" else self.name

    @property
    def cells(self) -> tuple[str, ...]:
        """What tables show: title, before, now, difference, threshold, adjusted p-value and result."""
        texts = self.title, self.before, self.now, f"{self.effect:.3f}"
        if self.ignored:
            return *texts, "-", "-", "ignored"
        p_value = f"{self.adjusted_p_value:.2g}" if self.adjusted_p_value >= 0.001 else "<0.001"
        result = "drift" if self.drift else "below threshold" if self.more_than_chance else "chance"
        return *texts, f"{self.threshold:.3f}", p_value, result


@dataclass(frozen=True)
class Monitoring:
    """All checks of a table. Those with drift come first.

    Parameters
    ----------
    rows, total : int
        The number of new rows that were compared, and the number from which they were drawn.
    training_rows : int
        The number of training rows that were summarised.
    rows_with_counts, total_with_counts : int
        The number of new rows whose counts were compared with predictions, and the number from which they were drawn:
        rows with known counts that were not training rows.
    alpha, effect : float
        The significance level of all tests together, and the smallest difference that matters.
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
        """The result in a sentence."""
        drifting = [check.title for check in self.checks if check.drift]
        checked = f"{len(self.checks)} checks of {self.total:,} rows"
        if not drifting:
            return f"No drift: {checked}."
        return f"Drift in {len(drifting)} of {checked}: {join_words(drifting, 5)}."

    @property
    def rule(self) -> str:
        """What counts as drift, and which checks have a difference that is more than chance but too small for it."""
        compared = sum(not check.ignored for check in self.checks)
        rule = (
            f"Drift is a difference of at least {self.effect:g} ({0.5 * self.effect:g} for coverage) whose p-value, "
            f"adjusted for {plural(compared, 'check')} by Holm's method, is below {self.alpha:g}."
        )
        small = [check.title for check in self.checks if check.more_than_chance and not check.drift]
        return f"{rule} More than chance but smaller: {join_words(small, 5)}." if small else rule

    @property
    def draws(self) -> str:
        """Sentences that say how many rows were drawn; empty if all rows were used."""
        columns = describe_draw("Columns and out-of-distribution rows are checked on", self.rows, self.total)
        counts = describe_draw("Coverage and PIT are checked on", self.rows_with_counts, self.total_with_counts)
        return f"{columns} {counts}".strip()

    @property
    def detectable(self) -> str:
        """A sentence about the smallest difference that this number of rows can show."""
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
        words = {"headline": self.headline, "rule": self.rule}
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
        The probability of a false alarm if rows are like the training rows (Holm's method over all checks).
    effect : float
        The smallest difference of shares that matters, from 0 to 1. For the coverage of intervals it is half of that.
    ignored : collection of str
        Columns of X that are compared but never count as drift, such as dates.
    days : collection of str
        Columns of X with days since 1970, which are shown as dates.
    max_rows : int or None
        The most rows of each kind, with and without counts. From more rows, some are drawn at random, always the same
        ones. None uses all rows.
    total, total_with_counts : int, optional
        The number of rows from which X and the sample were already drawn.

    Returns
    -------
    Monitoring
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
        checks.append(_compare_ood(predictor, predictor.calibration.ood_pvalue(X)))
    counts = 0
    if sample is not None:
        total_with_counts = len(sample) if total_with_counts is None else total_with_counts
        sample = draw_sample(sample, max_rows).take(sample)
        checks, counts = [*checks, *_compare_counts(predictor, sample)], len(sample)
    sizes = rows, total, profile.rows, counts, total_with_counts or 0
    return Monitoring(*sizes, float(alpha), float(effect), decide_drift(checks, alpha, effect), tuple(notes))


def decide_drift(checks: Sequence[Check], alpha: float, effect: float) -> tuple[Check, ...]:
    """Adjust p-values (Holm's method over all checks that count) and decide each check; checks with drift come first.

    A check is drift if its adjusted p-value is below `alpha` and its effect at least its threshold: `effect`, or half
    of that for coverage.

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


# Columns -------------------------------------------------------------------------------------------------------------


def compare_column(profile: ColumnProfile, column: Column, shown: Callable[[float], str] = value_text) -> Check:
    """Compare the values of a column, missing ones included, with the training; `shown` writes one of its numbers."""
    if len(profile.keys):
        return _compare_levels(profile, column)
    # Kolmogorov-Smirnov: the largest difference of the two cdfs at the quantiles in the summary. The summary has three
    # quantiles per doubling of the rank, so that the distance is rather too small than too large. Missing values count
    # as smaller than all others.
    absent, before, now = column.is_missing, profile.rows[0], len(column.values)
    old, new, values = profile.missing_share, float(absent.mean()), np.sort(column.values[~absent])
    distance = abs(old - new)
    medians = "", ""
    if len(profile.edges) and len(values):
        ranks = sum(np.searchsorted(values, profile.edges, side) for side in ("left", "right"))
        cdfs = old + (1.0 - old) * ndtr(profile.normal), new + (1.0 - new) * 0.5 * ranks / len(values)
        distance = max(distance, float(np.abs(cdfs[0] - cdfs[1]).max()))
        both = float(np.interp(0.0, profile.normal, profile.edges)), float(np.median(values))
        medians = f"median {shown(both[0])}", f"median {shown(both[1])}"
    p_value = float(stats.kstwobign.sf(distance * np.sqrt(before * now / (before + now))))
    p_value = _combine_with_missing(p_value, profile, absent)
    missing = (f"{old:.1%} missing", f"{new:.1%} missing") if old or new else ("", "")
    first, second = (", ".join(filter(None, pair)) for pair in zip(medians, missing, strict=True))
    return Check("values", column.name, distance, p_value, first, second)


def _combine_with_missing(p_value: float, profile: ColumnProfile, absent: np.ndarray) -> float:
    """Combine the p-value of a test of values with Fisher's exact test of missing values, if any are missing.

    Fisher's test detects the first missing values of a column even among few rows.
    """
    present = profile.rows[0] - profile.rows[1]
    table = np.array([[profile.rows[1], present], [absent.sum(), (~absent).sum()]]).round().astype(int)
    if not table[:, 0].any():
        return p_value
    return min(1.0, 2.0 * min(p_value, float(stats.fisher_exact(table)[1])))


def _compare_levels(profile: ColumnProfile, column: Column) -> Check:
    """Test whether the shares of frequent levels have changed, and name the level that has changed most.

    Levels that are rare in the training rows are pooled with unseen levels, because it is chance in which of two
    similar tables a rare level occurs.
    """
    before, number, absent = profile.rows[0], len(column.values), column.is_missing
    index = profile.find_positions(column.rows(~absent))
    counts = np.append(np.bincount(index[index >= 0], minlength=len(profile.keys)), absent.sum())
    old = np.append(_key_shares(profile) * (1.0 - profile.missing_share), profile.missing_share)
    now, unseen = counts / number, float((index < 0).sum() / number)
    chosen = old * min(before, number) >= _MIN_EXPECTED_ROWS
    cells = [np.append(shares[chosen], max(0.0, 1.0 - shares[chosen].sum())) for shares in (old, now)]
    effect = 0.5 * float(np.abs(cells[0] - cells[1]).sum())
    table = np.stack([before * cells[0], number * cells[1]])
    if chosen.sum() > 1 and table[:, -1].sum() * min(before, number) < _MIN_EXPECTED_ROWS * (before + number):
        # The pooled cell has too few rows in both tables together, so it is merged with the rarest level.
        table[:, int(np.argmin(table[0, :-1]))] += table[:, -1]
        table = table[:, :-1]
    used = table[:, table.sum(0) > 0.0]
    p_value = 1.0
    if used.shape[1] == 2:
        p_value = float(stats.fisher_exact(used.round().astype(int))[1])
    elif used.shape[1] > 2:
        p_value = float(stats.chi2_contingency(used, correction=False)[1])
    p_value = _combine_with_missing(p_value, profile, absent)
    # The summary has only hashes of levels, so names are known only for levels of the new rows.
    names, keys = [f"{value:g}" for value in profile.keys.view(np.float64)], np.arange(len(profile.keys))
    if column.is_category:
        names, keys = list(column.levels), profile.find_keys(hash_texts(column.levels))
    if old[-1] or now[-1]:
        names, keys = [*names, "missing"], np.append(keys, len(profile.keys))
    if not (keys >= 0).any():
        return Check("values", column.name, effect, p_value, f"{len(profile.keys)} levels", f"{unseen:.1%} unseen")
    most = int(np.where(keys >= 0, np.abs(now - old)[keys], -1.0).argmax())
    name, key = names[most] if len(names[most]) <= 20 else f"{names[most][:17]}...", keys[most]
    words = f"{name} {now[key]:.1%}" + (f", {unseen:.1%} unseen" if unseen else "")
    return Check("values", column.name, effect, p_value, f"{name} {old[key]:.1%}", words)


def _key_shares(profile: ColumnProfile) -> np.ndarray:
    """Return the share of each level or value (`keys`) among the training values that are not missing.

    The surprise of a level is -log of the total share of all levels that are at most as frequent, so shares are
    differences of these totals.

    >>> from ddpn.tables.columns import Kind
    >>> profile = ColumnProfile(Kind.CATEGORY, np.ones(2), np.zeros(2), keys=np.arange(3, dtype=np.uint64),
    ...                         key_surprise=-np.log([0.4, 1.0, 0.4]))
    >>> _key_shares(profile).round(3).tolist()
    [0.2, 0.6, 0.2]
    """
    as_rare = np.exp(-profile.key_surprise).round(12)
    level, index, number = np.unique(as_rare, return_inverse=True, return_counts=True)
    return (np.diff(level, prepend=0.0) / number)[index]


# Predictions ---------------------------------------------------------------------------------------------------------


def _compare_ood(predictor: Predictor, pvalues: np.ndarray) -> Check:
    """Compare the share of flagged rows with the share that is expected for ordinary rows.

    For rows like the calibration rows, the number of flagged rows has a Beta-Binomial distribution, because the
    calibration set is finite.
    """
    ood = predictor.calibration.require_ood()
    size, rows = len(ood.scores), len(pvalues)
    flagged = int(ood.is_ood(pvalues).sum())
    first = max(1, int(np.floor(ood.alpha * (size + 1) + 1e-9)))
    p_value = float(stats.betabinom.sf(flagged - 1, rows, first, size + 1 - first))
    share = flagged / rows
    words = f"{ood.alpha:.1%} expected", f"{share:.1%} flagged"
    return Check("ood", "out-of-distribution rows", max(0.0, share - ood.alpha), p_value, *words)


def _compare_counts(predictor: Predictor, sample: CountRows) -> list[Check]:
    """Compare the coverage of intervals with that of the held-out rows, and the PIT with a uniform distribution.

    Held-out rows are new to the model as well: a model that was never quite right is no drift. They are a sample
    themselves, so that a distance is as uncertain as between two samples.
    """
    with single_thread():
        # All rows are predicted at once, because there are few of them.
        arguments = predictor.counts.arguments(sample)
        prediction = predictor.predict(sample.X, arguments["exposure"], arguments["upper"])
        dist = discretize(censor_rows(prediction.distribution, sample.limit))
        y = torch.from_numpy(sample.y)
        distance, pit = pit_distance(dist, y), Pit.from_counts(dist, y, np.ones(len(sample)))
        levels = predictor.calibration.intervals.get(MIXTURE)
        level = COVERAGE if levels is None else min(levels.at(COVERAGE), 1.0)
        covered = float(measure_shares_inside(dist, y, level).mean())
    sizes = 1.0 / len(sample) + (0.0 if levels is None else 1.0 / float(levels.rows[0]))
    uniform = float(stats.kstwobign.sf(distance / np.sqrt(sizes)))
    pit_check = Check("pit", "PIT of the counts", distance, uniform, "uniform", pit.meaning)
    return [_compare_coverage(covered, len(sample), level, levels), pit_check]


def _compare_coverage(covered: float, rows: int, level: float, levels: IntervalLevels | None) -> Check:
    """Compare the share of counts inside the intervals with that of the held-out rows.

    The number inside has a Beta-Binomial distribution if new rows are like the held-out rows. More counts inside than
    before are no drift that harms.
    """
    name, inside = f"coverage of {COVERAGE:.0%} intervals", round(covered * rows)
    if levels is None:
        p_value, expected, before = float(stats.binom.cdf(inside, rows, level)), level, f"{level:.1%} asked"
    else:
        expected, size = levels.measure_held_out(level)
        before = f"{expected:.1%} of held-out rows"
        p_value = float(stats.betabinom.cdf(inside, rows, max(expected * size, 1.0), size + 1.0 - expected * size))
    return Check("coverage", name, max(0.0, expected - covered), p_value, before, f"{covered:.1%} covered")
