"""Find target leaks: columns that determine the count, and are unknown when a prediction is needed."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ddpn.validation import listed

#: A column above this correlation is suspected; several together above that R^2.
LEAK, _TOGETHER = 0.95, 0.999
#: Columns that are tried together, at most and per row.
_MAX_COLUMNS, _COLUMNS_PER_ROW = 200, 0.1
#: So is a column of which any function has an R^2 above this.
_SHARE = 0.9
#: But a predictor may be that strong where counts are large. It then leaves the noise of Poisson counts or more, a leak
#: less than this share of it.
_NOISE = 0.5
#: The share of rows in which a part of the target, such as visits of one kind, is all of it.
_ALL_OF_IT = 0.01
#: Levels of at least so many rows, most of the table, that explain so much, are suspected if they are ranges of the
#: count: they do not overlap, the gaps between them are small, and near their ends there are not many fewer counts than
#: elsewhere, unlike in the tails of a distribution.
_GROUP_ROWS, _GROUP_TABLE, _GROUP_SHARE = 5, 0.9, 0.5
_GAP, _EDGE, _EDGE_SHARE = 0.25, 0.1, 0.6
#: Distinct rows that are looked at; more change nothing. Fewer than the least show nothing.
_MAX_ROWS, _MIN_ROWS = 50_000, 20
#: A table is not copied more often than this share of different rows says.
_COPIED = 0.1
_SEED = 0


def leak_warnings(
    X: Any, y: np.ndarray, dates: Mapping[str, str] | None = None, exposure: np.ndarray | None = None
) -> list[str]:
    """Warnings about columns that determine the target, or the target per exposure; `X` is a polars frame.

    `dates` has, for columns that are parts of a date, the name of the date. Alone these are not suspected, as a date is
    usually known, but two dates may be as far apart as the target says.
    """
    dates = dates or {}
    rows = _distinct_rows(X, y)
    X, y = X[rows], y[rows]
    if len(y) < _MIN_ROWS or not np.ptp(y):
        return []
    columns = {name: _numbers(X[name]) for name in X.columns if X[name].dtype.is_numeric()}
    centred = {name: _unit(values) for name, values in columns.items()}
    targets = [_Target("the target", y, np.ones(len(y)))]
    if exposure is not None and np.ptp(exposure[rows]):
        targets.append(_Target("the target per exposure", y / exposure[rows], 1.0 / exposure[rows]))
    alone = [name for name in X.columns if name not in dates]
    sentences = ([_alone(name, X[name], name in columns, target) for target in targets] for name in alone)
    found = [next(filter(None, each)) for each in sentences if any(each)]
    for target in targets:
        together = _together(centred, _unit(target.values))
        if len(together) > 1:
            names = list(dict.fromkeys(dates.get(name, name) for name in together))
            found.append(
                f"Columns {listed(together)} together determine {target.name}: a weighted sum of them equals it. "
                f"If they are known only after the count, leave them out with --drop {','.join(names)}."
            )
            break
    return found


class _Target(NamedTuple):
    """Counts, or counts per exposure; `unit` is the step of each value, 1 or 1 / exposure."""

    name: str
    values: np.ndarray
    unit: np.ndarray


def _alone(name: str, series: Any, is_number: bool, target: _Target) -> str:
    """The warning about one column; "" if there is none."""
    remedy = f"If it is known only after the count, leave it out with --drop {name}, else keep it with --use {name}."
    codes, y = _numbers(series) if is_number else _level_codes(series), target.values
    found = _left_over(codes, target, is_number)
    r = float(_unit(codes) @ _unit(y)) if is_number else 0.0
    if abs(r) > LEAK and (found.noise < _NOISE or _is_part(codes, y)):
        return f"Column {name} nearly determines {target.name} (correlation {r:.2f}). {remedy}"
    if found.share > _SHARE and found.noise < _NOISE:
        return f"Column {name} nearly determines {target.name} (R² {found.share:.2f} by its values alone). {remedy}"
    # Ranges of integers: the ends of ranges of rates say nothing.
    if (target.unit == 1.0).all() and found.share > _GROUP_SHARE and _are_ranges(codes, y):
        return f"Column {name} seems to be made of the target: each value stands for a range of counts. {remedy}"
    return ""


def _is_part(values: np.ndarray, y: np.ndarray) -> bool:
    """Whether the values may be a part of the target, such as visits of one kind: never more, and often all of it."""
    return bool(((values >= 0) & (values <= y)).all() and (values == y).mean() > _ALL_OF_IT)


def _distinct_rows(X: Any, y: np.ndarray) -> np.ndarray:
    """Positions of different rows in random order: the neighbours of a row are then no copies of it.

    Where rows are repeated very often, the table has few values, and all rows are kept.
    """
    marked = X.with_columns(**{"\0count": y}).with_row_index("\0row")
    rows = marked.unique([*X.columns, "\0count"], keep="first", maintain_order=True)["\0row"].to_numpy()
    rows = rows if len(rows) > _COPIED * len(y) else np.arange(len(y))
    return np.random.default_rng(_SEED).permutation(rows)[:_MAX_ROWS].astype(np.int64)


def _numbers(series: Any) -> np.ndarray:
    """The values as float64; missing ones are a value of their own, below all others."""
    values = series.cast(float).to_numpy().astype(np.float64)
    known = values[~np.isnan(values)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
    return np.where(np.isnan(values), low - (high - low) - 1.0, values)


def _level_codes(series: Any) -> np.ndarray:
    """An integer per level; missing values are a level of their own."""
    return series.rank("dense").fill_null(0).to_numpy().astype(np.int64)


class _LeftOver(NamedTuple):
    """What a column explains of the variance (`share`), and the noise it leaves relative to that of Poisson counts."""

    share: float
    noise: float


def _left_over(codes: np.ndarray, target: _Target, is_number: bool) -> _LeftOver:
    """Each count compared with those of the rows nearest in the column, or of the same level.

    For numbers the difference is that of Gasser, Sroka and Jennen-Steinmetz (1986, Biometrika 73): the line through the
    neighbours on both sides. No function is fitted, so nothing is too optimistic. `share` is the larger one of the
    counts and of their ranks, as a few large counts may dominate the variance. A Poisson count of mean m, divided by an
    exposure, has the variance m times the square of its unit, that is its mean times the unit.
    """
    order = np.argsort(codes, kind="stable")
    x, counts, ranks, unit = (
        codes[order].astype(float),
        target.values[order],
        _ranks(target.values)[order],
        target.unit[order],
    )
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
        return _LeftOver(0.0, np.inf)
    shares = [1 - np.mean(r**2 / scale) / v.var() for r, v in zip(rest, (counts, ranks), strict=True)]
    # Two standard deviations at most: a few wrong rows must not hide the others.
    noise = np.minimum(rest[0] ** 2 / units / np.maximum(level, step), 4.0)
    return _LeftOver(float(max(shares)), float(noise.mean()))


def _ranks(y: np.ndarray) -> np.ndarray:
    """Ranks, equal counts sharing their mean rank."""
    _, place, number = np.unique(y, return_inverse=True, return_counts=True)
    return (np.cumsum(number) - 0.5 * number)[place]


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


def _together(centred: dict[str, np.ndarray], goal: np.ndarray) -> list[str]:
    """Columns whose weighted sum is the target, and of which none can be left out; empty if there are none."""
    most = min(_MAX_COLUMNS, int(_COLUMNS_PER_ROW * len(goal)))
    names = sorted(centred, key=lambda name: -abs(centred[name] @ goal))[:most]
    if not names:
        return []
    basis = np.column_stack([centred[name] for name in names])
    products, effects = basis.T @ basis, basis.T @ goal

    def explains(some: list[int]) -> bool:
        """Whether the regression on these columns has a large enough R^2."""
        return bool(effects[some] @ np.linalg.lstsq(products[np.ix_(some, some)], effects[some])[0] > _TOGETHER)

    chosen = list(range(len(names)))
    if not explains(chosen):
        return []
    for column in reversed(range(len(names))):  # the least correlated first
        fewer = [each for each in chosen if each != column]
        chosen = fewer if fewer and explains(fewer) else chosen
    return [names[column] for column in chosen]


def _unit(values: np.ndarray) -> np.ndarray:
    """Centred, of length 1 (or 0)."""
    moved = values - values.mean()
    length = np.linalg.norm(moved)
    return moved / length if length > 0 else moved
