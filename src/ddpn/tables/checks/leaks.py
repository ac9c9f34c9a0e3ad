"""Find target leaks: columns that are made of the count, and columns that predict it so well that they may be.

The former are leaks: copies, functions, parts and flags of the count, also with gaps. The latter may be honest: a
strong predictor leaves different counts for the same value, or has different values for the same count. Whether it is
known before the count is a question to the user.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from ddpn.runtime.validation import listed
from ddpn.tables.cells import DAY, import_polars
from ddpn.tables.checks.encodings import choose_levels, find_rolling_means, is_group_mean
from ddpn.tables.checks.findings import Finding, FindingKind
from ddpn.tables.checks.sampling import choose_rows

if TYPE_CHECKING:
    import polars as pl

#: Rows that repeat a count, by which a function of it is recognised, and significant digits that are compared.
_REPEATS, _DIGITS = 10, 9
#: An exact line through the counts misses them by no more than this share of their range, and this part of a count.
_OF_RANGE, _OF_COUNT = 1e-6, 0.01
#: Counts below the values of a column that Poisson counts would have at least, where there are none: e^-12 by chance.
_EXPECTED = 12.0
#: Functions of a count that are leaks.
_SHAPES = (
    lambda y: y,
    np.sqrt,
    np.log1p,
    lambda y: np.log(np.maximum(y, 0.5)),
    lambda y: 1.0 / (1.0 + y),
    np.square,
)
#: Several columns are asked about if they have this R^2 together, and are leaks if they leave less than this share of
#: the range of the target.
_TOGETHER, _EXACT = 0.999, 1e-6
#: Columns that are tried together, at most and per row.
_MAX_COLUMNS, _COLUMNS_PER_ROW = 200, 0.1
#: A column is asked about if any function of it has an R^2 above this.
_SHARE = 0.9
#: But a predictor may be that strong where counts are large. It then leaves the noise of Poisson counts or more, a leak
#: less than this share of it.
_NOISE = 0.5
#: Levels of at least so many rows, most of the table, that explain so much, are asked about if they are ranges of the
#: count: they do not overlap, the gaps between them are small, and near their ends there are not many fewer counts than
#: elsewhere, unlike in the tails of a distribution.
_GROUP_ROWS, _GROUP_TABLE, _GROUP_SHARE = 5, 0.9, 0.5
_GAP, _EDGE, _EDGE_SHARE = 0.25, 0.1, 0.6
#: Fewer distinct rows show nothing.
_MIN_ROWS = 20
#: A table is not copied more often than this share of different rows says.
_COPIED = 0.1
_SEED = 0


def find_leaks(
    X: "pl.DataFrame", y: np.ndarray, dates: Mapping[str, str] | None = None, exposure: np.ndarray | None = None
) -> list[Finding]:
    """Find columns that are made of the target, or of the target per exposure, or predict it nearly without error.

    `dates` has the name of the date for columns that are parts of one. Of these only the day is asked about on its own,
    but two dates may be as far apart as the target says.
    """
    dates = dates or {}
    if not X.columns:
        return []
    rolling = [] if not len(y) else find_rolling_means(X.select([name for name in X.columns if name not in dates]), y)
    # Different rows in random order: the neighbours of a row are then no copies of it. Where rows are repeated very
    # often, the table has few values, and all rows are kept.
    some = choose_rows(len(y), X.width, _SEED)
    marked = X[some].with_columns(**{"\0count": y[some]}).with_row_index("\0row")
    rows = some[marked.unique([*X.columns, "\0count"], keep="first", maintain_order=True)["\0row"].to_numpy()]
    rows = rows if len(rows) > _COPIED * len(some) else some
    all_rows, X, y = (X, y), X[rows], y[rows]
    if len(y) < _MIN_ROWS or not np.ptp(y):
        return []
    targets = [_Target.from_values("the target", y, np.ones(len(y)))]
    if exposure is not None and np.ptp(exposure[rows]):
        targets.append(_Target.from_values("the target per exposure", y / exposure[rows], 1.0 / exposure[rows]))
    # Dates that are missing where the count is 0, such as that of the last visit.
    gaps = {dates[name]: describe_missingness_leak(X[name], y) for name in X.columns if name in dates}
    findings = [
        _leak([name], f"{_column(name)} {way.format(target='the target')}.") for name, way in gaps.items() if way
    ]
    for name in X.columns:
        date = dates.get(name)
        if date is not None and (gaps[date] or name != f"{date} {DAY}"):
            continue
        ways = (
            []
            if date
            else [(describe_target_transform(X[name], target.values, target.is_count), target) for target in targets]
        )
        if made := next(((way, target) for way, target in ways if way), None):
            findings.append(_leak([name], f"{_column(name)} {made[0].format(target=made[1].name)}."))
        elif name in rolling:
            way = "is a weighted sum of the target over neighbouring rows, including the row itself or later rows"
            findings.append(_question([name], f"{_column(name)} {way}."))
        elif way := _nearly(X[name], targets) or _mean_of_target(name, *all_rows):
            findings.append(_question([date or name], way.format(column=date or name)))
    columns = {name: _filled(X[name]) for name in X.columns if X[name].dtype.is_numeric()}
    for target in targets:
        names, is_exact = _together(columns, target.values)
        if not names:
            continue
        named = list(dict.fromkeys(dates.get(name, name) for name in names))
        who = f"Columns {listed(names)} together"
        if is_exact:
            findings.append(_leak(named, f"{who} determine {target.name}: a weighted sum of them equals it."))
        else:
            findings.append(_question(named, f"{who} predict {target.name} nearly without error, by a weighted sum."))
        break
    return findings


def _column(name: str) -> str:
    return f"Column {name}"


def _leak(names: Sequence[str], statement: str) -> Finding:
    return Finding(FindingKind.LEAK, statement, tuple(names))


def _question(names: Sequence[str], statement: str) -> Finding:
    return Finding(FindingKind.QUESTION, statement, tuple(names))


class _Target(NamedTuple):
    """Counts, or counts per exposure, and their ranks; `unit` is the step of each value, 1 or 1 / exposure."""

    name: str
    values: np.ndarray
    unit: np.ndarray
    ranks: np.ndarray

    @classmethod
    def from_values(cls, name: str, values: np.ndarray, unit: np.ndarray) -> Self:
        return cls(name, values, unit, import_polars().Series(values).rank("average").to_numpy())

    @property
    def is_count(self) -> bool:
        return bool((self.unit == 1.0).all())


def _nearly(series: "pl.Series", targets: Sequence[_Target]) -> str:
    """Return what is asked about a column that predicts a target nearly without error; "" if it predicts none."""
    values = _filled(series)
    for target in targets:
        share, noise = _left_over(values, target, series.dtype.is_numeric())
        if share > _SHARE and noise < _NOISE:
            how = f"predicts {target.name} nearly without error (R² {share:.2f} by its values alone)"
            return f"Column {{column}} {how}."
        # Ranges of integers: the ends of ranges of rates say nothing.
        if target.is_count and share > _GROUP_SHARE and _are_ranges(values, target.values):
            return "Each value of column {column} stands for a range of counts."
    return ""


def _mean_of_target(name: str, X: "pl.DataFrame", y: np.ndarray) -> str:
    """Return what is asked about a column of means of the target; "" if it is none. All rows of a group are needed."""
    series = X[name]
    if not series.dtype.is_float() or series.null_count():
        return ""
    rows = choose_levels(series, X.width)
    values = series.cast(float).to_numpy()[rows]
    is_mean = not np.isnan(values).any() and is_group_mean(values, y[rows])
    return (
        "Column {column} equals the mean target of the rows that share its value, like a target encoding."
        if is_mean
        else ""
    )


def _values(series: "pl.Series") -> np.ndarray:
    """The values as float64, NaN where they are missing; levels and flags as numbers of their own."""
    return (series if series.dtype.is_numeric() else series.rank("dense")).cast(float).to_numpy().astype(np.float64)


def _filled(series: "pl.Series") -> np.ndarray:
    """The same; missing values are a value of their own, below all others."""
    values = _values(series)
    known = values[~np.isnan(values)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
    return np.where(np.isnan(values), low - (high - low) - 1.0, values)


def _left_over(codes: np.ndarray, target: _Target, is_number: bool) -> tuple[float, float]:
    """What a column explains of the variance (the share), and the noise it leaves relative to that of Poisson counts.

    Each count is compared with those of the rows nearest in the column, or of the same level. For numbers the
    difference is that of Gasser, Sroka and Jennen-Steinmetz (1986, Biometrika 73): the line through the neighbours on
    both sides. No function is fitted, so nothing is too optimistic. The share is the larger one of the counts and of
    their ranks, as a few large counts may dominate the variance. A Poisson count of mean m, divided by an exposure, has
    the variance m times the square of its unit, that is its mean times the unit.
    """
    order = np.argsort(codes, kind="stable")
    x, counts, unit, ranks = codes[order], target.values[order], target.unit[order], target.ranks[order]
    if is_number:
        width = x[2:] - x[:-2]
        left = np.divide(x[2:] - x[1:-1], width, out=np.full(len(width), 0.5), where=width > 0)
        rest = [(v[1:-1] - left * v[:-2] - (1 - left) * v[2:]) for v in (counts, ranks)]
        scale, level = 1 + left**2 + (1 - left) ** 2, (counts[1:-1] + counts[:-2] + counts[2:]) / 3
        units, step = (
            unit[1:-1] + left**2 * unit[:-2] + (1 - left) ** 2 * unit[2:],
            (unit[1:-1] + unit[:-2] + unit[2:]) / 3,
        )
    else:
        same = x[1:] == x[:-1]
        rest = [np.diff(v)[same] for v in (counts, ranks)]
        scale, level = np.full(len(rest[0]), 2.0), (0.5 * (counts[1:] + counts[:-1]))[same]
        units = (unit[1:] + unit[:-1])[same]
        step = 0.5 * units
    if len(level) < _MIN_ROWS:
        return 0.0, np.inf
    shares = [1 - np.mean(r**2 / scale) / v.var() for r, v in zip(rest, (counts, ranks), strict=True)]
    # Two standard deviations at most: a few wrong rows must not hide the others.
    noise = np.minimum(rest[0] ** 2 / units / np.maximum(level, step), 4.0)
    return float(max(shares)), float(noise.mean())


def _are_ranges(codes: np.ndarray, y: np.ndarray) -> bool:
    """Whether each value of a column stands for a range of counts."""
    _, place, number = np.unique(codes, return_inverse=True, return_counts=True)
    is_large = number >= _GROUP_ROWS
    if is_large.sum() < 2 or number[is_large].sum() < _GROUP_TABLE * len(y):
        return False
    groups = sorted((y[place == group] for group in np.flatnonzero(is_large)), key=lambda counts: counts.min())
    for one, other in pairwise(groups):
        gap, room = other.min() - one.max(), _GAP * max(np.ptp(one), np.ptp(other))
        if not 0 < gap <= max(room, 1.0):
            return False
    sides = [side for one, next_one in pairwise(groups) for side in (-one, next_one) if np.ptp(side)]
    found = expected = 0.0
    for counts in sides:
        size = np.ptp(counts) + 1
        edge = max(1.0, np.floor(_EDGE * size))
        # Without the count at the end, which is there by definition.
        found += (counts < counts.min() + edge).sum() - 1
        expected += (len(counts) - 1) * edge / size
    return bool(expected >= _GROUP_ROWS and found > _EDGE_SHARE * expected)


def _together(columns: Mapping[str, np.ndarray], y: np.ndarray) -> tuple[list[str], bool]:
    """Columns whose weighted sum is the target, none of which can be left out, and whether it is so exactly."""
    goal, centred = _unit(y), {name: _unit(values) for name, values in columns.items()}
    most = min(_MAX_COLUMNS, int(_COLUMNS_PER_ROW * len(goal)))
    names = sorted(centred, key=lambda name: -abs(centred[name] @ goal))[:most]
    if not names:
        return [], False
    basis = np.column_stack([centred[name] for name in names])
    products, effects = basis.T @ basis, basis.T @ goal

    def explains(some: list[int]) -> bool:
        """Whether the regression on these columns has a large enough R^2."""
        return bool(effects[some] @ np.linalg.lstsq(products[np.ix_(some, some)], effects[some])[0] > _TOGETHER)

    chosen = list(range(len(names)))
    if not explains(chosen):
        return [], False
    for column in reversed(range(len(names))):  # the least correlated first
        fewer = [each for each in chosen if each != column]
        chosen = fewer if fewer and explains(fewer) else chosen
    if len(chosen) < 2:
        return [], False
    left = goal - basis[:, chosen] @ np.linalg.lstsq(basis[:, chosen], goal)[0]
    return [names[column] for column in chosen], bool(np.abs(left).max() <= _EXACT * np.ptp(goal))


def _unit(values: np.ndarray) -> np.ndarray:
    """Centred, of length 1 (or 0)."""
    moved = values - values.mean()
    length = np.linalg.norm(moved)
    return moved / length if length > 0 else moved


# Columns that are made of the target --------------------------------------------------------------------------------


def describe_target_transform(series: "pl.Series", y: np.ndarray, is_count: bool = True) -> str:
    """How a column is made of the target, as words that follow its name; "" where it may be a predictor.

    `is_count` if `y` are counts, of which a column may be a part or a flag, and not rates.

    >>> import polars
    >>> y = np.random.default_rng(0).poisson(3.0, 400)
    >>> describe_target_transform(polars.Series(2 * y + 1), y), describe_target_transform(polars.Series(y > 0), y)
    ('is {target} times a factor plus a constant', 'says whether {target} is 0')
    """
    values, is_number = _values(series), series.dtype.is_numeric()
    known = ~np.isnan(values)
    gaps = "" if known.all() else ", with missing values"
    if is_count and (way := describe_missingness_leak(series, y)):
        return way
    if known.sum() < _MIN_ROWS or not np.ptp(values[known]) or not np.ptp(y[known]):
        return ""
    x, counts = values[known], y[known]
    if is_number and (x == counts).all():
        return f"is {{target}} itself{gaps}"
    if is_number and _is_line(x, counts):
        return f"is {{target}} times a factor plus a constant{gaps}"
    if (is_number and any(_is_line(x, shape(counts)) for shape in _SHAPES)) or _is_one_to_one(x, counts):
        return f"is a function of {{target}}{gaps}"
    if is_count and len(np.unique(x)) == 2:
        return {True: "says whether {target} is 0", False: "is set only where {target} is above 0", None: ""}[
            _tells_zeros(x == x.max(), counts)
        ]
    return f"is a part of {{target}}{gaps}" if is_count and is_number and _is_part(x, counts) else ""


def _is_line(x: np.ndarray, made: np.ndarray) -> bool:
    """Whether the column is an exact line of the target, or of a function of it."""
    if not np.ptp(made):
        return False
    centred, moved = x - x.mean(), made - made.mean()
    length = float(centred @ centred)
    if not np.isfinite(length) or not length:
        return False
    left = np.abs(moved - centred * (centred @ moved) / length).max()
    return bool(left <= min(_OF_RANGE * np.ptp(made), _OF_COUNT))


def _is_one_to_one(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether rows of the same count, of which there are enough, have the same value, and the other way round."""
    scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.maximum(np.abs(x), 1e-300))))
    values, place = np.unique(np.round(x * scale) / scale, return_inverse=True)
    counts, count = np.unique(y, return_inverse=True)
    if len(values) != len(counts) or len(y) - len(counts) < _REPEATS:
        return False
    return len(np.unique(place * len(counts) + count)) == len(counts)


def _is_part(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether the count is never below the column, although it is as low so often that a Poisson count would be.

    A count of mean m is k - 1 with k / m of the probability of k.
    """
    if (x < 0).any() or (x != np.floor(x)).any() or (x > y).any():
        return False
    _, place, number = np.unique(x, return_inverse=True, return_counts=True)
    mean = (np.bincount(place, weights=y) / number)[place]
    at_bound = (x == y) & (x > y.min())
    return bool((x[at_bound] / mean[at_bound]).sum() >= _EXPECTED)


def describe_missingness_leak(series: "pl.Series", y: np.ndarray) -> str:
    """How the missing values of a column are made of the counts, as words that follow its name; "" if they are not."""
    is_known = ~np.isnan(_values(series))
    if is_known.all() or not is_known.any():
        return ""
    found = _tells_zeros(is_known, y)
    if found is None:
        return ""
    is_low = y[is_known].mean() < y[~is_known].mean()
    what, other = ("known", "missing") if is_low else ("missing", "known")
    return f"is {what} just where {{target}} is 0" if found else f"is {other} only where {{target}} is above 0"


def _tells_zeros(is_set: np.ndarray, y: np.ndarray) -> bool | None:
    """Whether one of two values has the zeros and the other has all other counts; None if both may have zeros.

    False if the first has other counts, too.
    """
    flag = is_set if y[is_set].mean() > y[~is_set].mean() else ~is_set
    return not y[~flag].any() if _is_part(flag.astype(float), y) else None
