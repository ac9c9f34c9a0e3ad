"""Checks of new rows against the training rows: column values, out-of-distribution rows, interval coverage and PIT."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from scipy import stats
from scipy.special import ndtr

from ddpn.analysis.pit import Pit
from ddpn.analysis.row_scores import COVERAGE
from ddpn.calibration.columns import ColumnProfile
from ddpn.calibration.intervals import IntervalLevels, measure_shares_inside
from ddpn.distributions import discretize
from ddpn.distributions.limits import censor_rows
from ddpn.metrics import pit_distance
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.display import value_text
from ddpn.runtime.threads import single_thread
from ddpn.statistics import effective_rows, weighted_mean
from ddpn.tables.columns import Column
from ddpn.tables.row_hashes import hash_texts

#: The smallest expected number of rows of a level that is compared separately. Rarer levels are pooled.
_MIN_EXPECTED_ROWS = 5.0


class Check(NamedTuple):
    """Result of comparing one property of new rows with the training rows: a difference, its p-value, and a decision.

    Parameters
    ----------
    kind : str
        The property: "values" of a column, "ood", "coverage" or "pit".
    name : str
        The name of the column, or a name of the property for tables and sentences.
    effect : float
        The size of the difference, from 0 to 1. For numbers and for "pit", it is the largest difference of two cdfs.
        For categories and for numbers with few distinct values, it is half of the sum of the absolute differences of
        shares. For "ood" and "coverage", it is the difference of two shares of rows, or 0 if the new share is no worse.
    p_value : float
        The probability of a difference at least as large if new rows are like the training rows.
    before : str
        The value in the training rows, or the expected value, as text.
    now : str
        The value in the new rows, as text.
    ignored : bool
        True if the check is shown but never counts as drift.
    adjusted_p_value : float
        The p-value after Holm's correction for the number of checks.
    threshold : float
        The smallest difference that counts as drift.
    more_than_chance : bool
        True if the adjusted p-value is below the significance level.
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
        """True if the difference is more than chance and at least the threshold."""
        return self.more_than_chance and self.effect >= self.threshold

    @property
    def title(self) -> str:
        """The name of the check for tables and sentences, such as "values of age"."""
        return f"values of {self.name}" if self.kind == "values" else self.name

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of a table row: title, before, now, difference, threshold, adjusted p-value and result."""
        texts = self.title, self.before, self.now, f"{self.effect:.3f}"
        if self.ignored:
            return *texts, "-", "-", "ignored"
        p_value = f"{self.adjusted_p_value:.2g}" if self.adjusted_p_value >= 0.001 else "<0.001"
        result = "drift" if self.drift else "below threshold" if self.more_than_chance else "chance"
        return *texts, f"{self.threshold:.3f}", p_value, result


def compare_column(profile: ColumnProfile, column: Column, format_value: Callable[[float], str] = value_text) -> Check:
    """Compare a column of new rows, including its missing values, with the training column.

    `profile` is the summary of the training column. The result reports the medians of a numeric column as text.
    `format_value` converts these medians to text.
    """
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
        medians = f"median {format_value(both[0])}", f"median {format_value(both[1])}"
    p_value = float(stats.kstwobign.sf(distance * np.sqrt(before * now / (before + now))))
    p_value = _combine_with_missing(p_value, profile, absent)
    missing = (f"{old:.1%} missing", f"{new:.1%} missing") if old or new else ("", "")
    first, second = (", ".join(filter(None, pair)) for pair in zip(medians, missing, strict=True))
    return Check("values", column.name, distance, p_value, first, second)


def _combine_with_missing(p_value: float, profile: ColumnProfile, is_missing: np.ndarray) -> float:
    """Combine two p-values: of a test of a column's values, and of a test of its number of missing values.

    The second test is Fisher's exact test. It detects the first missing values of a column even in few rows. The two
    p-values are combined by a Bonferroni correction: the result is twice the smaller one, at most 1. If neither
    training rows nor new rows have missing values, `p_value` is returned unchanged. `is_missing` is True for new rows
    with a missing value.
    """
    present = profile.rows[0] - profile.rows[1]
    table = np.array([[profile.rows[1], present], [is_missing.sum(), (~is_missing).sum()]]).round().astype(int)
    if not table[:, 0].any():
        return p_value
    return min(1.0, 2.0 * min(p_value, float(stats.fisher_exact(table)[1])))


def _compare_levels(profile: ColumnProfile, column: Column) -> Check:
    """Test whether the shares of frequent levels have changed; the result names the level that has changed most.

    Levels that are rare in the training rows are pooled with unseen levels, because rare levels occur in a table or not
    by chance.
    """
    before, number, absent = profile.rows[0], len(column.values), column.is_missing
    index = profile.find_positions(column.rows(~absent))
    counts = np.append(np.bincount(index[index >= 0], minlength=len(profile.keys)), absent.sum())
    old = np.append(_compute_key_shares(profile) * (1.0 - profile.missing_share), profile.missing_share)
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


def _compute_key_shares(profile: ColumnProfile) -> np.ndarray:
    """Return the share of each level or value in `profile.keys` among the training values that are not missing.

    For each level, the profile stores only -log of the total share of all levels that are at most as frequent
    (`key_surprise`). So the shares are computed as differences of these totals.

    >>> from ddpn.tables.columns import Kind
    >>> profile = ColumnProfile(Kind.CATEGORY, np.ones(2), np.zeros(2), keys=np.arange(3, dtype=np.uint64),
    ...                         key_surprise=-np.log([0.4, 1.0, 0.4]))
    >>> _compute_key_shares(profile).round(3).tolist()
    [0.2, 0.6, 0.2]
    """
    as_rare = np.exp(-profile.key_surprise).round(12)
    level, index, number = np.unique(as_rare, return_inverse=True, return_counts=True)
    return (np.diff(level, prepend=0.0) / number)[index]


def compare_ood(predictor: Predictor, pvalues: np.ndarray) -> Check:
    """Test whether more new rows than expected are flagged as out-of-distribution.

    `predictor` has the significance level of the flags and their calibration rows. `pvalues` are the
    out-of-distribution p-values of the new rows. They are computed from finitely many calibration rows. Therefore, if
    new rows are like the calibration rows, the number of flagged rows has a Beta-Binomial distribution.
    """
    ood = predictor.calibration.require_ood()
    size, rows = len(ood.scores), len(pvalues)
    flagged = int(ood.is_ood(pvalues).sum())
    first = max(1, int(np.floor(ood.alpha * (size + 1) + 1e-9)))
    p_value = float(stats.betabinom.sf(flagged - 1, rows, first, size + 1 - first))
    share = flagged / rows
    words = f"{ood.alpha:.1%} expected", f"{share:.1%} flagged"
    return Check("ood", "out-of-distribution rows", max(0.0, share - ood.alpha), p_value, *words)


def compare_counts(predictor: Predictor, sample: CountRows) -> list[Check]:
    """Compare predictions with the counts of new rows: the coverage of intervals and the distribution of the PIT.

    `predictor` is the model. The coverage is compared with the coverage of held-out rows, so that intervals that were
    never quite right do not count as drift. The PIT is compared with a uniform distribution by its Kolmogorov-Smirnov
    distance. The p-value is that of a two-sample test whose second sample is as large as the calibration rows, because
    the model was calibrated on finitely many rows. If rows have weights, shares are weighted, and the number of rows in
    the tests is their effective number (`effective_rows`).
    """
    with single_thread():
        # All rows are predicted at once, because there are few of them.
        arguments = predictor.counts.to_arguments(sample)
        prediction = predictor.predict(sample.X, arguments["exposure"], arguments["upper"])
        dist = discretize(censor_rows(prediction.distribution, sample.limit))
        y, weight = torch.from_numpy(sample.y), sample.weight_or_ones
        distance, pit = pit_distance(dist, y, weight), Pit.from_counts(dist, y, weight)
        levels = predictor.calibration.intervals.get(MIXTURE)
        level = COVERAGE if levels is None else min(levels.at(COVERAGE), 1.0)
        covered = weighted_mean(measure_shares_inside(dist, y, level), weight)
    size = effective_rows(weight)
    sizes = 1.0 / size + (0.0 if levels is None else 1.0 / float(levels.rows[0]))
    uniform = float(stats.kstwobign.sf(distance / np.sqrt(sizes)))
    pit_check = Check("pit", "PIT of the counts", distance, uniform, "uniform", pit.meaning)
    return [_compare_coverage(covered, max(1, round(size)), level, levels), pit_check]


def _compare_coverage(coverage: float, n_rows: int, level: float, levels: IntervalLevels | None) -> Check:
    """Test whether intervals cover fewer of the new counts than of the held-out counts. Higher coverage is no drift.

    `coverage` is the weighted share of the new counts that lie inside their intervals, and `n_rows` is the effective
    number of new rows. `level` is the minimum probability of these intervals by the predicted distributions. `levels`
    holds the scores of the held-out rows, from which their coverage at this level follows. If `levels` is None, the
    coverage is compared with `level`. If new rows are like the held-out rows, the number of counts inside has a
    Beta-Binomial distribution.
    """
    name, inside = f"coverage of {COVERAGE:.0%} intervals", round(coverage * n_rows)
    if levels is None:
        p_value, expected, before = float(stats.binom.cdf(inside, n_rows, level)), level, f"{level:.1%} asked"
    else:
        expected, size = levels.measure_coverage(level)
        before = f"{expected:.1%} of held-out rows"
        p_value = float(stats.betabinom.cdf(inside, n_rows, max(expected * size, 1.0), size + 1.0 - expected * size))
    return Check("coverage", name, max(0.0, expected - coverage), p_value, before, f"{coverage:.1%} covered")
