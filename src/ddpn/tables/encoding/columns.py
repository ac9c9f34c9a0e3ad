"""Encode a column as inputs of a network: numbers, text, and all columns at once.

All statistics of numbers are computed from sorted distinct values with summed weights (`weigh_distinct`). So a row of
weight 3 gives, bit for bit, the same as three such rows in any order.

Text with many levels has one input more, the effect of the level on the target. It is target encoding by credibility:
the mean of a level is shrunk towards that of all rows by the credibility of Bühlmann and Straub (1970), the more the
fewer rows it has and the less levels differ. Unlike `sklearn.preprocessing.TargetEncoder` it knows weights and
exposures, and is on the scale of the logarithm, as the likelihoods are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ddpn.tables.columns import Column, ColumnTable

# Numbers: the standardised value, and optionally bins, steps and codes ------------------------------------------------

#: Largest standardised value: its square still fits in float32.
LARGEST = 1e18
#: Standard deviations up to which a standardised number is linear; beyond, it is logarithmic.
SOFT_CLIP_LIMIT = 10.0
#: Integer codes (hour, weekday, month) with at most that many values also get one input per value.
MAX_CODES = 32


#: The same array for all columns, so that a file holds it once.
_EMPTY = np.empty(0)


def _make_empty() -> np.ndarray:
    return _EMPTY


@dataclass(frozen=True)
class NumberEncoding:
    """The encoding of a column of numbers: value, missing indicator, then bins, steps and codes if any."""

    fill: float = 0.0
    center: float = 0.0
    scale: float = 1.0
    has_missing: bool = False
    edges: np.ndarray = field(default_factory=_make_empty)
    steps: np.ndarray = field(default_factory=_make_empty)
    codes: np.ndarray = field(default_factory=_make_empty)

    @property
    def width(self) -> int:
        return 1 + self.has_missing + max(len(self.edges) - 1, 0) + len(self.steps) + len(self.codes)

    def list_input_names(self, name: str) -> list[str]:
        edges = self.edges.tolist()
        return [
            name,
            *([f"{name} is missing"] if self.has_missing else []),
            *(f"{name} in {low:.12g}..{high:.12g}" for low, high in pairwise(edges)),
            *(f"{name} > {step:.12g}" for step in self.steps.tolist()),
            *(f"{name} = {code:.12g}" for code in self.codes.tolist()),
        ]


def soft_clip(z: np.ndarray) -> np.ndarray:
    """Keep z up to the limit, and grow logarithmically beyond it: an outlier cannot drive a network out of bounds.

    >>> soft_clip(np.array([-3.0, 10.0, 1e12])).round(2).tolist()
    [-3.0, 10.0, 37.63]
    """
    z = np.clip(z, -LARGEST, LARGEST)
    far = np.abs(z) > SOFT_CLIP_LIMIT
    if far.any():
        z[far] = np.sign(z[far]) * (SOFT_CLIP_LIMIT + np.log1p(np.abs(z[far]) - SOFT_CLIP_LIMIT))
    return z


class Distinct(NamedTuple):
    """The distinct values of a column in ascending order, each with its weight."""

    values: np.ndarray
    weights: np.ndarray


def weigh_distinct(x: np.ndarray, weights: np.ndarray) -> Distinct:
    """Return the distinct values of x, which has no NaN, and the weight of each."""
    values, inverse = np.unique(x, return_inverse=True)
    return Distinct(values, np.bincount(inverse, weights, minlength=len(values)))


def quantiles(column: Distinct, levels: np.ndarray) -> np.ndarray:
    """Return for each level the smallest value with at least this share of the weight at or below it.

    >>> quantiles(Distinct(np.array([1.0, 5.0, 9.0]), np.array([1.0, 1.0, 8.0])), np.array([0.1, 0.5]))
    array([1., 9.])
    """
    reached = np.cumsum(column.weights)
    position = np.searchsorted(reached, levels * reached[-1])
    return column.values[np.minimum(position, len(column.values) - 1)]


def center_and_scale(column: Distinct) -> tuple[float, float]:
    """Compute mean and standard deviation; the latter is inf if all values are equal, so that dividing gives zeros.

    Deviations are taken from a value of the column, so that a large common offset does not cancel. They are halved, so
    that values of both signs near the largest float do not overflow, and divided by the largest before they are
    squared.
    """
    values, weights = column
    shift = quantiles(column, np.array([0.5]))[0]
    deviation = 0.5 * values - 0.5 * shift
    largest = np.abs(deviation).max()
    if largest == 0.0:
        return float(shift), np.inf
    deviation = deviation / largest
    share = weights / weights.sum()
    mean = share @ deviation
    spread = np.sqrt(share @ np.square(deviation - mean))
    scale = float(2.0 * (largest * spread))
    return float(shift + 2.0 * (largest * mean)), scale if scale > 0.0 else np.inf


def find_midpoints(values: np.ndarray) -> np.ndarray:
    """Find a threshold t between each two neighbours a < b with a <= t < b, so that `x > t` separates them.

    >>> find_midpoints(np.array([0.0, 1.0, 4.0]))
    array([0.5, 2.5])
    """
    below, above = values[:-1], values[1:]
    middle = 0.5 * below + 0.5 * above
    # Between neighbouring floats the middle rounds to one of them.
    return np.where((middle >= below) & (middle < above), middle, below)


def fit_number(x: np.ndarray, weights: np.ndarray) -> tuple[NumberEncoding, Distinct]:
    """Fit the median, mean and scale of a column of numbers; also return its distinct values."""
    is_known = ~np.isnan(x)
    if not is_known.any():
        return NumberEncoding(scale=np.inf), Distinct(np.zeros(1), np.ones(1))
    column = weigh_distinct(x[is_known], weights[is_known])
    fill = float(quantiles(column, np.array([0.5]))[0])
    some_missing = not is_known.all()
    filled = column
    if some_missing:
        more = np.where(column.values == fill, weights[~is_known].sum(), 0.0)
        filled = Distinct(column.values, column.weights + more)
    center, scale = center_and_scale(filled)
    return NumberEncoding(fill, center, scale, some_missing), column


def fit_boolean(x: np.ndarray, weights: np.ndarray) -> NumberEncoding:
    """Fit a boolean, which stays 0 or 1; a missing one becomes the more frequent of the two."""
    is_known = ~np.isnan(x)
    if not is_known.any():
        return NumberEncoding()
    fill = quantiles(weigh_distinct(x[is_known], weights[is_known]), np.array([0.5]))[0]
    return NumberEncoding(float(fill), has_missing=not is_known.all())


def find_bin_edges(column: Distinct, bins: int) -> np.ndarray:
    """Find the edges of quantile bins; if a column has few values, every value is an edge."""
    values = column.values
    if len(values) > bins + 1:
        values = np.unique(quantiles(column, np.linspace(0.0, 1.0, bins + 1)))
    # A bin so narrow that half its width is no float cannot be filled in parts.
    wide = np.append(True, 0.5 * values[1:] > 0.5 * values[:-1])
    return values[wide] if wide.sum() > 2 else _make_empty()


def find_integer_codes(column: Distinct, most: int = MAX_CODES) -> np.ndarray:
    """Return the values if there are 3 to `most` and all are integers, else none; two values need one input only."""
    values = column.values
    is_code = 3 <= len(values) <= most and np.array_equal(values, np.floor(values))
    return values if is_code else _make_empty()


def list_all_steps(column: Distinct) -> np.ndarray:
    """List a step between each two values; none for two values, which the standardised value separates."""
    return find_midpoints(column.values) if len(column.values) > 2 else _make_empty()


# Text: one input per frequent level, one for all rare ones, one for missing -------------------------------------------

#: Names of the inputs of rare levels and of missing values.
OTHER, MISSING = "<other>", "<missing>"
#: Levels with an input of their own: the most frequent ones, if they have this share of the weight.
MAX_CATEGORIES, _MIN_SHARE = 100, 5e-4
#: Levels with an effect, at most; the others have that of unseen ones, 0.
MAX_LEVELS = 50_000
#: The least shrinkage, in rows, so that a level without variance does not have a mean of 0.
_MIN_SHRINKAGE_ROWS = 0.1
#: Variances below this share of the mean square are rounding errors.
_ROUNDING = 1e-12


class Targets(NamedTuple):
    """Per row: the target per unit of exposure, the volume (weight times exposure), and the weight."""

    rate: np.ndarray
    volume: np.ndarray
    weight: np.ndarray

    def rows(self, index: np.ndarray) -> "Targets":
        """Take some of the rows."""
        return Targets(self.rate[index], self.volume[index], self.weight[index])


class LevelEffects(NamedTuple):
    """The effect of each level and of missing values, in units of `scale`, the effects' standard deviation."""

    values: Mapping[str, float]
    missing: float
    scale: float

    def look_up(self, column: Column) -> np.ndarray:
        """Look up the effect of each row's level; 0 for unseen levels."""
        return column.map_levels(self.values, 0.0, self.missing).astype(np.float32)


@dataclass(frozen=True)
class CategoryEncoding:
    """The encoding of a category: one-hot levels, most frequent first, and inputs for rare levels and missing values.

    `effects` is the target encoding, which gives the last input, or None.

    `effects` are those of all levels, of which the input is the last, or None.
    """

    levels: tuple[str, ...]
    has_other: bool
    has_missing: bool
    effects: LevelEffects | None = None

    @property
    def indicators(self) -> int:
        """The number of inputs that are 0 or 1."""
        return len(self.levels) + self.has_other + self.has_missing

    @property
    def width(self) -> int:
        return self.indicators + (self.effects is not None)

    @property
    def known_levels(self) -> tuple[str, ...]:
        """All levels that are encoded differently from an unseen one, most frequent first."""
        return self.levels if self.effects is None else tuple(dict.fromkeys((*self.levels, *self.effects.values)))

    def list_input_names(self, name: str) -> list[str]:
        named = [*self.levels, *([OTHER] if self.has_other else []), *([MISSING] if self.has_missing else [])]
        return [f"{name} = {level}" for level in named] + ([f"{name} effect"] if self.effects is not None else [])


def fit_category(column: Column, weights: np.ndarray, effects: LevelEffects | None = None) -> CategoryEncoding:
    """Choose the most frequent levels for an input each; ties are broken in alphabetical order."""
    totals, least = _weigh_levels(column, weights), _MIN_SHARE * weights.sum()
    kept = tuple(level for level, weight in totals.items() if weight >= least)[:MAX_CATEGORIES]
    return CategoryEncoding(kept, len(kept) < len(totals), bool(weights[column.is_missing].any()), effects)


def _weigh_levels(column: Column, weights: np.ndarray) -> dict[str, float]:
    """Return the weight of each level that has rows, most frequent first; ties are in alphabetical order."""
    totals = np.bincount(column.values + 1, weights, len(column.levels) + 1)[1:].tolist()
    weighed = ((level, total) for level, total in zip(column.levels, totals, strict=True) if total > 0.0)
    return dict(sorted(weighed, key=lambda item: (-item[1], item[0])))


# Effects of levels -------------------------------------------------------------------------------------------------


def make_targets(y: np.ndarray, weights: np.ndarray, exposure: np.ndarray | None) -> Targets:
    """Make targets per unit of exposure; weights of a mean below 1 are scaled to 1, others count as repeated rows."""
    scale = np.ones(len(y)) if exposure is None else exposure / exposure.mean()
    weight = weights * max(1.0, np.count_nonzero(weights) / weights.sum())
    return Targets(y / scale, weight * scale, weight)


def estimate_credible_effects(index: np.ndarray, count: int, target: Targets) -> np.ndarray | None:
    """Estimate the logarithm of each level's credible mean relative to the overall mean; 0 for levels without rows.

    Returns None if levels do not differ by more than chance.

    >>> rows = Targets(np.array([1.0, 2.0, 8.0, 9.0, 4.0, 6.0]), np.ones(6), np.ones(6))
    >>> estimate_credible_effects(np.array([0, 0, 1, 1, 2, 2]), 4, rows).round(2)
    array([-1.1 ,  0.51,  0.  ,  0.  ])
    """
    volume = np.bincount(index, target.volume, count)
    total = np.bincount(index, target.volume * target.rate, count)
    seen = volume > 0.0
    whole, levels, freedom = volume.sum(), int(seen.sum()), target.weight.sum() - seen.sum()
    if levels < 2 or freedom <= 0.0 or (mean := total.sum() / whole) == 0.0:
        return None
    level_means = np.divide(total, volume, out=np.full(count, mean), where=seen)
    squares = float((target.volume * np.square(target.rate)).sum())
    within = max(squares - float((total * level_means)[seen].sum()), 0.0) / freedom
    spread = float((volume * np.square(level_means - mean)).sum()) - (levels - 1) * within
    between = spread / (whole - float(np.square(volume).sum()) / whole)
    if between <= _ROUNDING * squares / whole:
        return None
    shrinkage = max(within / between, _MIN_SHRINKAGE_ROWS * whole / target.weight.sum())
    credible = mean + (level_means - mean) * volume / (volume + shrinkage)
    return np.log(credible / mean)


def fit_effects(column: Column, target: Targets, scale: float | None = None) -> LevelEffects | None:
    """Fit the effects of a column's levels; return None if levels do not differ by more than chance.

    Some levels may be without rows. With the `scale` of an earlier fit, levels that do not differ get effects of 0
    instead.
    """
    names = list(_weigh_levels(column, target.weight))[:MAX_LEVELS]
    positions = {level: j for j, level in enumerate(names)}
    # Levels beyond the most frequent ones count as one, and so do missing values.
    index = column.map_levels(positions, other=len(names), missing=len(names) + 1)
    effects = estimate_credible_effects(index, len(names) + 2, target)
    if effects is None and scale is None:
        return None
    effects = np.zeros(len(names) + 2) if effects is None else effects
    if scale is None:
        volume = np.bincount(index, target.volume, len(effects))
        scale = float(np.sqrt((volume * np.square(effects)).sum() / volume.sum()))
    values = (effects / scale).astype(np.float32).tolist()
    return LevelEffects(dict(zip(names, values, strict=False)), values[-1], scale)


# All columns at once --------------------------------------------------------------------------------------------------

Encoded = NumberEncoding | CategoryEncoding
#: Rows whose numbers are encoded together, so that they stay in cache.
_BLOCK_ROWS = 512


class ColumnPlan:
    """The encodings of all columns as flat arrays, so that one row takes as few NumPy calls as many rows."""

    def __init__(self, columns: Sequence[Encoded]) -> None:
        starts = np.cumsum([0, *(column.width for column in columns)])
        self.width = int(starts[-1])
        numbers = [(j, column) for j, column in enumerate(columns) if isinstance(column, NumberEncoding)]
        self._numbers = [j for j, _ in numbers]
        self._fill = np.array([column.fill for _, column in numbers])
        self._center = np.array([0.5 * column.center for _, column in numbers])
        self._scale = np.array([0.5 * column.scale for _, column in numbers])
        self._values = starts[self._numbers]
        encodings = [column for _, column in numbers]
        widths = [
            (int(encoding.has_missing), max(len(encoding.edges) - 1, 0), len(encoding.steps), len(encoding.codes))
            for encoding in encodings
        ]
        # The inputs of a column are its value, then these in their order.
        targets = [np.cumsum([starts[j] + 1, *width]) for j, width in zip(self._numbers, widths, strict=True)]
        self._missing, self._bins, self._steps, self._codes = (_index_inputs(widths, targets, i) for i in range(4))
        self._low = 0.5 * _concatenate([encoding.edges[:-1] for encoding in encodings])
        self._length = 0.5 * _concatenate([encoding.edges[1:] for encoding in encodings]) - self._low
        self._cuts, self._equal = (
            _concatenate([encoding.steps for encoding in encodings]),
            _concatenate([encoding.codes for encoding in encodings]),
        )
        #: Of each category: inputs of its levels, of other levels, and of missing values; -1 where there is none.
        self._categories: list[tuple[int, dict[str, int], int, int]] = []
        self._effects: list[tuple[int, int, LevelEffects]] = []
        for j, column in enumerate(columns):
            if isinstance(column, CategoryEncoding):
                positions = {level: int(starts[j]) + at for at, level in enumerate(column.levels)}
                end = int(starts[j]) + len(positions)
                other = end if column.has_other else -1
                self._categories.append((j, positions, other, end + column.has_other if column.has_missing else other))
                if column.effects is not None:
                    self._effects.append((j, int(starts[j + 1]) - 1, column.effects))

    @property
    def numeric_inputs(self) -> list[int]:
        """Positions of inputs that can be any number (values, bins, level effects); all others are 0 or 1."""
        return sorted([*self._values.tolist(), *self._bins[1].tolist(), *(target for _, target, _ in self._effects)])

    def encode(self, table: ColumnTable) -> np.ndarray:
        """Encode rows in float32. Shape: (rows, width)."""
        rows = len(table)
        out = np.zeros((rows, self.width), dtype=np.float32)
        for top in range(0, rows if self._numbers else 0, _BLOCK_ROWS):
            part = slice(top, top + _BLOCK_ROWS)
            x = np.array([table[j].values[part] for j in self._numbers], dtype=np.float64).T
            self._write_numbers(x, out[part])
        for j, positions, other, missing in self._categories:
            position = table[j].map_levels(positions, other, missing)
            rows_with_input = np.flatnonzero(position >= 0)
            out[rows_with_input, position[rows_with_input]] = 1.0
        for j, target, effects in self._effects:
            out[:, target] = effects.look_up(table[j])
        return out

    def _write_numbers(self, x: np.ndarray, out: np.ndarray) -> None:
        missing = np.isnan(x)
        x = np.where(missing, self._fill, x)
        half = 0.5 * x
        with np.errstate(over="ignore"):
            out[:, self._values] = soft_clip((half - self._center) / self._scale)
            if len(self._low):
                source, target = self._bins
                part = half[:, source]
                part -= self._low
                part /= self._length
                out[:, target] = np.clip(part, 0.0, 1.0, out=part)
        if len(self._missing[0]):
            out[:, self._missing[1]] = missing[:, self._missing[0]]
        if len(self._cuts):
            out[:, self._steps[1]] = x[:, self._steps[0]] > self._cuts
        if len(self._equal):
            out[:, self._codes[1]] = x[:, self._codes[0]] == self._equal


def _index_inputs(
    widths: Sequence[tuple[int, ...]], targets: list[np.ndarray], part: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return source and target indices of one group of derived inputs (missing indicators, bins, steps or codes).

    The source is a position among the columns of numbers, the target a position among all inputs.
    """
    source = np.repeat(np.arange(len(widths)), [width[part] for width in widths])
    ranges = [np.arange(at[part], at[part] + width[part]) for at, width in zip(targets, widths, strict=True)]
    return source, np.concatenate([np.empty(0, dtype=np.int64), *ranges])


def _concatenate(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0), *parts])
