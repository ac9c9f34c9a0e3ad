"""Compare new rows with the training rows of a model: every column, out-of-distribution rows and, with counts, scores.

Each comparison is a `Check` with a p-value and a size. It says drift where both do: with many rows, differences that do
not matter are significant, too.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from scipy import stats
from scipy.special import ndtr

from ddpn.analysis.explanations.inputs import is_missing
from ddpn.analysis.gains import holm
from ddpn.analysis.leaderboard import COVERAGE, score_rows
from ddpn.analysis.plots import Pit
from ddpn.calibration.columns import ColumnProfile, hashed, key_shares
from ddpn.calibration.ood import TableSummary, shown_day
from ddpn.distributions import discretized
from ddpn.metrics import pit_distance
from ddpn.predictor import MIXTURE, Predictor
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.threads import single_thread
from ddpn.runtime.validation import is_number
from ddpn.sample import Sample, row_count, take_rows
from ddpn.tables.encoding.table import Column

#: Rows that are predicted at most: a random draw of more of them says as much as all.
_MOST_ROWS = 20_000
#: Fewer rows are not compared: only the grossest differences would be found.
LEAST_ROWS = 20
#: Rows that a level must be expected in to be compared on its own; others are compared together.
_LEAST_EXPECTED = 5.0


@dataclass(frozen=True)
class Check:
    """One comparison.

    Parameters
    ----------
    kind : str
        "values" or "missing" of a column, "ood", "coverage" or "pit".
    name : str
        The column, or what is compared.
    effect : float
        The size of the difference, from 0 to 1: of shares of rows.
    p_value : float
        The probability of such a difference, or a larger one, where new rows are like the training rows.
    before, now : str
        What was in the training or is expected, and what the new rows have.
    is_ignored : bool
        Whether it is shown only.
    adjusted : float
        The p-value for all checks together.
    drift : bool
        Whether the difference is more than chance and large enough to matter.
    """

    kind: str
    name: str
    effect: float
    p_value: float
    before: str
    now: str
    is_ignored: bool = False
    adjusted: float = 1.0
    drift: bool = False

    @property
    def title(self) -> str:
        """What is compared, in words."""
        words = {"values": "values of {}", "missing": "missing values of {}"}
        return words.get(self.kind, "{}").format(self.name)

    @property
    def cells(self) -> tuple[str, ...]:
        """What tables show: title, before, now, difference, adjusted p-value and decision."""
        p_value = f"{self.adjusted:.2g}" if self.adjusted >= 0.001 else "<0.001"
        decision = "drift" if self.drift else ""
        if self.is_ignored:
            p_value, decision = "-", "ignored"
        return self.title, self.before, self.now, f"{self.effect:.3f}", p_value, decision

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        known = {"kind": self.kind, "name": self.name, "drift": self.drift, "ignored": self.is_ignored}
        numbers = {"effect": self.effect, "p_value": self.p_value, "adjusted_p_value": self.adjusted}
        return {**known, **numbers, "before": self.before, "now": self.now}


@dataclass(frozen=True)
class Monitoring:
    """All checks of a table, those with drift first.

    Parameters
    ----------
    rows : int
        New rows.
    training_rows : int
        Rows that the summary of the training is of.
    rows_with_counts : int
        New rows whose counts are known and were not trained on.
    alpha, effect : float
        The level of all tests together, and the least difference that matters.
    checks : tuple of Check
        The comparisons.
    not_compared : tuple of str
        Sentences about what could not be compared, and why.
    findings : tuple of str
        Sentences about unusual values.
    scores : dict
        Mean scores of the new rows with counts, and those of the test rows of the fit.
    """

    rows: int
    training_rows: int
    rows_with_counts: int
    alpha: float
    effect: float
    checks: tuple[Check, ...]
    not_compared: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    scores: dict[str, Any] = field(default_factory=dict)

    @property
    def drift(self) -> bool:
        """Whether some check says drift."""
        return any(check.drift for check in self.checks)

    @property
    def shown(self) -> tuple[Check, ...]:
        """The checks without those of columns that are never missing, before or now."""
        return tuple(check for check in self.checks if check.kind != "missing" or check.effect > 0.0)

    @property
    def headline(self) -> str:
        """The result in a sentence."""
        found = [check.title for check in self.checks if check.drift]
        if not found:
            return f"No drift: {len(self.checks)} checks of {self.rows:,} rows."
        shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        return f"Drift in {len(found)} of {len(self.checks)} checks of {self.rows:,} rows: {shown}."

    @property
    def detectable(self) -> str:
        """A sentence about the differences that so many rows can show."""
        sizes = 1.0 / self.rows + 1.0 / self.training_rows
        least = min(1.0, float(np.sqrt(-0.5 * np.log(self.alpha / max(2 * len(self.checks), 2)) * sizes)))
        return (
            f"With {self.rows:,} rows, a difference below about {least:.2g} in the distribution of a column cannot be "
            "distinguished from chance."
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        checks = [check.as_dict() for check in self.checks]
        return {"drift": self.drift, "headline": self.headline, **vars(self), "checks": checks}


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
    summary, checks, notes = TableSummary(profile), list[Check](), list[str]()
    summary.add(profile.measure(X).states)
    for own, column, name in zip(profile.columns, profile.reader.read(X), profile.names, strict=True):
        shown = shown_day if name in days else "{:.4g}".format
        more, note = column_checks(own, column._replace(name=name), shown)
        checks += [replace(check, is_ignored=name in {*profile.ignored, *ignored}) for check in more]
        notes += [note] if note else []
    progress("Predicting rows")
    if predictor.ood is None:
        notes.append("The share of out-of-distribution rows: the model was fitted without calibration rows.")
    else:
        index = _drawn(rows)
        if len(index) < rows:
            notes.append(f"All rows: of the predictions, a random draw of {_MOST_ROWS:,} rows is compared.")
        checks.append(_ood(predictor, predictor.ood_pvalue(take_rows(X, index))))
    scores: dict[str, Any] = {}
    if sample is not None:
        progress("Scoring predictions")
        sample = sample.rows(_drawn(len(sample)))
        more, scores = _count_checks(predictor, sample)
        checks += more
    counts, found = 0 if sample is None else len(sample), decided(checks, alpha, effect)
    sentences = tuple(summary.sentences())
    return Monitoring(rows, profile.rows, counts, float(alpha), float(effect), found, tuple(notes), sentences, scores)


def decided(checks: Sequence[Check], alpha: float, effect: float) -> tuple[Check, ...]:
    """Checks with adjusted p-values (Holm over all that count) and decisions, those with drift first.

    A check says drift if its adjusted p-value is below `alpha` and its effect is at least `effect`, half of that for
    coverage.

    >>> one, other = Check("ood", "a", 0.3, 0.001, "", ""), Check("ood", "b", 0.01, 1e-9, "", "")
    >>> [(check.name, check.adjusted, check.drift) for check in decided([one, other], 0.01, 0.1)]
    [('a', 0.001, True), ('b', 2e-09, False)]
    """
    counted, found = [check for check in checks if not check.is_ignored], []
    for check, adjusted in zip(counted, holm([check.p_value for check in counted]), strict=True):
        least = 0.5 * effect if check.kind == "coverage" else effect
        found.append(replace(check, adjusted=adjusted, drift=adjusted < alpha and check.effect >= least))
    found += [check for check in checks if check.is_ignored]
    return tuple(sorted(found, key=lambda check: (not check.drift, check.is_ignored, -check.effect)))


def _drawn(rows: int) -> np.ndarray:
    return np.sort(np.random.default_rng(0).choice(rows, min(rows, _MOST_ROWS), replace=False))


# Columns -------------------------------------------------------------------------------------------------------------


def column_checks(
    profile: ColumnProfile, column: Column, shown: Callable[[float], str] = "{:.4g}".format
) -> tuple[list[Check], str]:
    """The checks of a column, and a sentence if its values cannot be compared; `shown` writes a number of it."""
    absent = is_missing(column)
    table = np.array([[profile.rows[1], profile.rows[0] - profile.rows[1]], [absent.sum(), (~absent).sum()]])
    old, new = table[:, 0] / table.sum(1)
    p_value = float(stats.fisher_exact(table.round().astype(int))[1])
    missing = Check("missing", column.name, abs(old - new), p_value, f"{old:.1%} missing", f"{new:.1%} missing")
    before, now = table[:, 1]
    if not now or not before:
        return [missing], f"Values of {column.name!r}: all are missing {'now' if not now else 'in the training'}."
    if not len(profile.keys) and not len(profile.edges):
        return [missing], f"Values of {column.name!r}: the training had too many levels to keep track of them."
    values = column.values[~absent]
    if len(profile.keys):
        return [_levels(profile, column, values, before), missing], ""
    return [_numbers(profile, column.name, values, before, shown), missing], ""


def _numbers(
    profile: ColumnProfile, name: str, values: np.ndarray, before: float, shown: Callable[[float], str]
) -> Check:
    """Kolmogorov-Smirnov: the largest difference of the two cdfs, at the quantiles that the summary keeps.

    These are three per doubling of the rank, so that the distance is a little too small rather than too large.
    """
    ordered = np.sort(values)
    ranks = np.searchsorted(ordered, profile.edges, "left") + np.searchsorted(ordered, profile.edges, "right")
    distance = float(np.abs(0.5 * ranks / len(values) - ndtr(profile.normal)).max())
    p_value = float(stats.kstwobign.sf(distance * np.sqrt(before * len(values) / (before + len(values)))))
    old, new = float(np.interp(0.0, profile.normal, profile.edges)), float(np.median(values))
    return Check("values", name, distance, p_value, f"median {shown(old)}", f"median {shown(new)}")


def _levels(profile: ColumnProfile, column: Column, values: np.ndarray, before: float) -> Check:
    """Chi-square test of homogeneity over frequent levels.

    Levels that are rare in the training are one cell with those that it did not have, so that it makes no difference in
    which of two alike tables a rare level happens to occur.
    """
    place, shares, number = profile.places(column, values), key_shares(profile), len(values)
    now = np.bincount(place[place >= 0], minlength=len(shares)) / number
    chosen = shares * min(before, number) >= _LEAST_EXPECTED
    old = np.append(shares[chosen], max(0.0, 1.0 - shares[chosen].sum()))
    new = np.append(now[chosen], max(0.0, 1.0 - now[chosen].sum()))
    effect = 0.5 * float(np.abs(old - new).sum())
    table = np.stack([before * old, number * new])
    if len(old) > 1 and table[:, -1].sum() * min(before, number) < _LEAST_EXPECTED * (before + number):
        # Too few in both tables together: with the rarest of the others.
        rarest = int(np.argmin(table[0, :-1]))
        table[:, rarest] += table[:, -1]
        table = table[:, :-1]
    used = table[:, table.sum(0) > 0.0]
    p_value = float(stats.chi2_contingency(used, correction=False)[1]) if used.shape[1] > 1 else 1.0
    return Check("values", column.name, effect, p_value, *_level_words(profile, column, shares, now))


def _level_words(profile: ColumnProfile, column: Column, before: np.ndarray, now: np.ndarray) -> tuple[str, str]:
    """The share of the level that has changed most, as far as levels are known by name, and that of unseen ones."""
    if column.kind == "category":
        place = profile.place(hashed(column.levels)) if column.levels else np.empty(0, dtype=np.int64)
        names = {int(key): level for key, level in zip(place, column.levels, strict=True) if key >= 0}
    else:
        names = {i: f"{value:g}" for i, value in enumerate(profile.keys.view(np.float64).tolist())}
    unseen = 1.0 - now.sum()
    more = f", {unseen:.1%} unseen" if unseen > 1e-9 else ""
    most = max(names, key=lambda key: abs(now[key] - before[key]), default=None)
    if most is None:
        return f"{len(before):,} levels", more.removeprefix(", ")
    name = names[most] if len(names[most]) <= 20 else f"{names[most][:17]}..."
    return f"{name} {before[most]:.1%}", f"{name} {now[most]:.1%}{more}"


# Predictions ---------------------------------------------------------------------------------------------------------


def _ood(predictor: Predictor, pvalues: np.ndarray) -> Check:
    """The share of rows that are flagged, against what is expected of rows like the calibration rows.

    Among rows like these, the number of flagged ones has a Beta-Binomial distribution: the share that a finite
    calibration set leaves for new rows varies itself.
    """
    ood = predictor.calibrated_ood
    size, rows = len(ood.scores), len(pvalues)
    flagged = int(ood.is_ood(pvalues).sum())
    first = max(1, int(np.floor(ood.alpha * (size + 1) + 1e-9)))
    p_value = float(stats.betabinom.sf(flagged - 1, rows, first, size + 1 - first))
    share = flagged / rows
    words = f"{ood.alpha:.1%} expected", f"{share:.1%} flagged"
    return Check("ood", "out-of-distribution rows", max(0.0, share - ood.alpha), p_value, *words)


def _count_checks(predictor: Predictor, sample: Sample) -> tuple[list[Check], dict[str, Any]]:
    """Coverage of the intervals and uniformity of the PIT, and mean scores."""
    scores, rows = score_rows(predictor, sample), len(sample)
    with torch.no_grad(), single_thread():
        (dist,) = (discretized(dist) for dist, _ in predictor.recorded_blocks(sample))
        y, mean = torch.from_numpy(sample.y), float(dist.mean.double().mean())
        distance, pit = pit_distance(dist, y), Pit.of(dist, y, np.ones(rows))
    p_value = float(stats.kstwobign.sf(distance * np.sqrt(rows)))
    shape = Check("pit", "PIT of the counts", distance, p_value, "uniform", pit.meaning)
    # Whether intervals cover less than asked. Intervals of counts cover more by nature: that is not drift.
    covered, levels = int((scores.coverage > 0).sum()), predictor.intervals.get(MIXTURE)
    if levels is None:
        p_value = float(stats.binom.cdf(covered, rows, COVERAGE))
    else:
        size = int(levels.rows[0])
        rank = min(size, int(np.ceil(COVERAGE * (size + 1) - 1e-9)))
        p_value = float(stats.betabinom.cdf(covered, rows, rank, size + 1 - rank))
    name, words = f"coverage of {COVERAGE:.0%} intervals", (f"{COVERAGE:.0%} asked", f"{covered / rows:.1%} covered")
    coverage = Check("coverage", name, max(0.0, COVERAGE - covered / rows), p_value, *words)
    found = {name: value for name, value in scores.means(None).items() if name in ("crps", "mae", "nll", "coverage")}
    found |= {"mean_count": float(sample.y.mean()), "mean_prediction": mean, "pit": pit.heights.tolist()}
    return [coverage, shape], found
