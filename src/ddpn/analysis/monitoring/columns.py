"""Checks of one column: its values and its missing values, against the summary of the training rows."""

from collections.abc import Callable

import numpy as np
from scipy import stats
from scipy.special import ndtr

from ddpn.analysis.monitoring.result import Check
from ddpn.calibration.columns import ColumnProfile, hashed, key_shares
from ddpn.tables.encoding.table import Column

#: Rows that a level must be expected in, in the training and now, to be compared on its own; others are compared
#: together.
_LEAST = 5.0
#: Rows from which on a test of two shares is not exact.
_EXACT = 10_000


def column_checks(
    profile: ColumnProfile, column: Column, is_ignored: bool = False, shown: Callable[[float], str] = "{:.4g}".format
) -> tuple[list[Check], str]:
    """The checks of a column, and a sentence if its values cannot be compared.

    Parameters
    ----------
    profile : ColumnProfile
        The summary of the training rows.
    column : Column
        The new rows.
    is_ignored : bool
        Whether the checks are shown only.
    shown : callable
        A number of the column as text.
    """
    is_missing = column.values < 0 if column.kind == "category" else np.isnan(column.values)
    checks = [_missing(profile, column.name, is_missing, is_ignored)]
    before, now = profile.rows[0] - profile.rows[1], int((~is_missing).sum())
    if not now or not before:
        return checks, f"Values of {column.name!r}: all are missing {'now' if not now else 'in the training'}."
    if not len(profile.keys) and not len(profile.edges):
        return checks, f"Values of {column.name!r}: the training had too many levels to keep track of them."
    values = column.values[~is_missing]
    if len(profile.keys):
        effect, p_value, words = _levels(profile, column, values, before)
    else:
        effect, p_value, words = _numbers(profile, values, before, shown)
    return [Check("values", column.name, effect, p_value, *words, is_ignored), *checks], ""


def _numbers(
    profile: ColumnProfile, values: np.ndarray, before: float, shown: Callable[[float], str]
) -> tuple[float, float, tuple[str, str]]:
    """Kolmogorov-Smirnov: the largest difference of the two cdfs, at the quantiles that the summary keeps.

    These are three per doubling of the rank, so that the distance is a little too small rather than too large.
    """
    ordered = np.sort(values)
    ranks = np.searchsorted(ordered, profile.edges, "left") + np.searchsorted(ordered, profile.edges, "right")
    distance = float(np.abs(0.5 * ranks / len(values) - ndtr(profile.normal)).max())
    size = before * len(values) / (before + len(values))
    median = float(np.interp(0.0, profile.normal, profile.edges))
    words = f"median {shown(median)}", f"median {shown(float(np.median(values)))}"
    return distance, float(stats.kstwobign.sf(distance * np.sqrt(size))), words


def _levels(
    profile: ColumnProfile, column: Column, values: np.ndarray, before: float
) -> tuple[float, float, tuple[str, str]]:
    """Chi-square test of homogeneity over frequent levels; rare and unseen ones are one cell.

    The number of rows with an unseen level is tested as well; the smaller p-value counts, twice.
    """
    place, shares, number = profile.places(column, values), key_shares(profile), len(values)
    counts = np.bincount(place[place >= 0], minlength=len(shares)).astype(np.float64)
    chosen = shares * min(before, number) >= _LEAST
    old = np.append(shares[chosen], max(0.0, 1.0 - shares[chosen].sum()))
    new = np.append(counts[chosen], number - counts[chosen].sum()) / number
    effect = 0.5 * float(np.abs(old - new).sum())
    unseen = int((place < 0).sum())
    by_unseen = _more_unseen(profile, unseen, number, before)
    used = old + new > 0.0
    if old[-1] * min(before, number) < _LEAST and len(old) > 1:
        # Too few to be compared on its own: with the rarest of the others.
        at = int(np.argmin(old[:-1]))
        old[at], new[at], used[-1] = old[at] + old[-1], new[at] + new[-1], False
    by_shares = _homogeneity(old[used], new[used], before, number)
    return (
        effect,
        min(1.0, 2.0 * min(by_shares, by_unseen)),
        _words(column, profile, counts / number, shares, unseen / number),
    )


def _more_unseen(profile: ColumnProfile, unseen: int, number: int, before: float) -> float:
    """The p-value of so many rows with an unseen level.

    As many rows to come have one as training rows were the only one with theirs (Good-Turing), up to the uncertainty of
    that number: a Beta-Binomial distribution.
    """
    if not unseen:
        return 1.0
    single = float(np.clip(profile.unseen[1] * (before + 1.0) - 0.5, 0.0, before))
    return float(stats.betabinom.sf(unseen - 1, number, single + 1.0, before - single + 1.0))


def _words(
    column: Column, profile: ColumnProfile, now: np.ndarray, before: np.ndarray, unseen: float
) -> tuple[str, str]:
    """The share of the level that has changed most, as far as levels are known by name, and that of unseen ones."""
    if column.kind == "category":
        place = profile.place(hashed(column.levels)) if column.levels else np.empty(0, dtype=np.int64)
        names = {int(key): level for key, level in zip(place, column.levels, strict=True) if key >= 0}
    else:
        names = {i: f"{value:g}" for i, value in enumerate(profile.keys.view(np.float64).tolist())}
    more = f", {unseen:.1%} unseen" if unseen else ""
    most = max(names, key=lambda key: abs(now[key] - before[key]), default=None)
    if most is None:
        return f"{len(before):,} levels", more.removeprefix(", ")
    name = names[most] if len(names[most]) <= 20 else f"{names[most][:17]}..."
    return f"{name} {before[most]:.1%}", f"{name} {now[most]:.1%}{more}"


def _homogeneity(old: np.ndarray, new: np.ndarray, before: float, number: float) -> float:
    """The p-value of "both samples have the same shares"."""
    if len(old) < 2:
        return 1.0
    first, second = before * old, number * new
    total = first + second
    statistic = sum(
        float((np.square(each - total * size / (before + number)) / (total * size / (before + number))).sum())
        for each, size in ((first, before), (second, number))
    )
    return float(stats.chi2.sf(statistic, len(old) - 1))


def _missing(profile: ColumnProfile, name: str, is_missing: np.ndarray, is_ignored: bool) -> Check:
    before, now = profile.rows, np.array([len(is_missing), int(is_missing.sum())], dtype=np.float64)
    shares = before[1] / before[0], now[1] / now[0]
    table = np.array([[part[1], part[0] - part[1]] for part in (before, now)])
    if not table[:, 0].any() or not table[:, 1].any():
        p_value = 1.0
    elif table.sum() <= _EXACT:
        p_value = float(stats.fisher_exact(table.round().astype(int))[1])
    else:
        p_value = _homogeneity(table[0] / before[0], table[1] / now[0], before[0], now[0])
    words = f"{shares[0]:.1%} missing", f"{shares[1]:.1%} missing"
    return Check("missing", name, abs(shares[0] - shares[1]), p_value, *words, is_ignored)
