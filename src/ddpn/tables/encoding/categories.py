"""Encode a categorical column as one-hot levels, with inputs for rare levels and missing values, and as level effects.

A column with many levels gets one more input, the effect of the level on the target. This is target encoding: the mean
count of a level is shrunk towards the overall mean by the credibility of Bühlmann and Straub (1970). Levels with few
rows are shrunk more than others. All levels are shrunk more if they differ little. Unlike
`sklearn.preprocessing.TargetEncoder`, the encoding supports weights and exposures. Effects are logarithms, like the
location of the likelihoods.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ddpn.tables.columns import Column

#: Names of the inputs of rare levels and of missing values.
OTHER, MISSING = "<other>", "<missing>"
#: The most levels with an input of their own, and the least share of the weight of such a level.
MAX_CATEGORIES, _MIN_SHARE = 100, 5e-4
#: The most levels with an effect. Rarer levels have the effect 0, like unseen levels.
MAX_LEVELS = 50_000
#: The least shrinkage, in rows, so that the mean of a level without variance is not 0.
_MIN_SHRINKAGE_ROWS = 0.1
#: Variances below this share of the mean square are rounding errors.
_ROUNDING = 1e-12


class Targets(NamedTuple):
    """What level effects are estimated from. Each field is an array of shape (rows,).

    `rate` is the count per exposure, `weight` is the weight of the row, and `volume` is the weight times the exposure.
    """

    rate: np.ndarray
    volume: np.ndarray
    weight: np.ndarray

    def rows(self, index: np.ndarray) -> "Targets":
        """Return the targets of the rows at these positions, or where this mask is True."""
        return Targets(self.rate[index], self.volume[index], self.weight[index])


class LevelEffects(NamedTuple):
    """The level effects (target encoding) of a column.

    Attributes
    ----------
    values : mapping of str to float
        The effect of each level, divided by `scale`.
    missing : float
        The effect of missing values, divided by `scale`. It is 0 if no training row had a missing value.
    scale : float
        The standard deviation of the effects over the training rows.
    """

    values: Mapping[str, float]
    missing: float
    scale: float

    def look_up(self, column: Column) -> np.ndarray:
        """Return the effect of each row's level, divided by `scale`. Shape: (rows,).

        Unseen levels have the effect 0, and missing values the effect `missing`.
        """
        return column.map_levels(self.values, 0.0, self.missing).astype(np.float32)


@dataclass(frozen=True)
class CategoryEncoding:
    """The encoding of a categorical column as several inputs.

    The inputs are, in this order: one for each of the `levels` (1 in rows with this level, 0 otherwise), one for all
    other levels (if `has_other`), one for missing values (if `has_missing`), and the level effect (if `effects` is not
    None). Without an input for missing values, they are encoded like other levels. Without an input for other levels,
    these have zeros in all inputs that are 0 or 1.
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
        """The number of inputs."""
        return self.indicators + (self.effects is not None)

    @property
    def known_levels(self) -> tuple[str, ...]:
        """The levels with an input or an effect of their own, most frequent first.

        All other levels are encoded like unseen levels.
        """
        return self.levels if self.effects is None else tuple(dict.fromkeys((*self.levels, *self.effects.values)))

    def list_input_names(self, name: str) -> list[str]:
        """List the names of the inputs of a column, such as "ward = B"."""
        named = [*self.levels, *([OTHER] if self.has_other else []), *([MISSING] if self.has_missing else [])]
        return [f"{name} = {level}" for level in named] + ([f"{name} effect"] if self.effects is not None else [])


def fit_category(column: Column, weights: np.ndarray, effects: LevelEffects | None = None) -> CategoryEncoding:
    """Fit an encoding with a one-hot input for each of the most frequent levels.

    Parameters
    ----------
    column : Column
        A categorical column.
    weights : array, shape (rows,)
        The row weights, by which the frequency of a level is measured. Ties are in alphabetical order.
    effects : LevelEffects, optional
        The level effects of the column. Default: the column gets none.
    """
    totals, min_weight = weigh_levels(column, weights), _MIN_SHARE * weights.sum()
    kept = tuple(level for level, weight in totals.items() if weight >= min_weight)[:MAX_CATEGORIES]
    return CategoryEncoding(kept, len(kept) < len(totals), bool(weights[column.is_missing].any()), effects)


def weigh_levels(column: Column, weights: np.ndarray) -> dict[str, float]:
    """Return the sum of the weights of each level, largest first. Ties are in alphabetical order.

    Levels without rows of positive weight are left out.
    """
    totals = np.bincount(column.values + 1, weights, len(column.levels) + 1)[1:].tolist()
    weighed = ((level, total) for level, total in zip(column.levels, totals, strict=True) if total > 0.0)
    return dict(sorted(weighed, key=lambda item: (-item[1], item[0])))


def make_targets(y: np.ndarray, weights: np.ndarray, exposure: np.ndarray | None) -> Targets:
    """Make the targets of level effects: divide counts by exposures, and scale weights with a mean below 1 to mean 1.

    Weights with a larger mean are not scaled, because they may count repeated rows.
    """
    scale = np.ones(len(y)) if exposure is None else exposure / exposure.mean()
    weight = weights * max(1.0, np.count_nonzero(weights) / weights.sum())
    return Targets(y / scale, weight * scale, weight)


def estimate_credible_effects(level_codes: np.ndarray, n_levels: int, target: Targets) -> np.ndarray | None:
    """Estimate the effect of each level: the log of its mean, shrunk towards the overall mean, over the overall mean.

    Parameters
    ----------
    level_codes : array of int, shape (rows,)
        The level of each row, from 0 to `n_levels` - 1.
    n_levels : int
        The number of levels. Levels without rows have the effect 0.
    target : Targets
        For each row, the count per exposure (`rate`), the weight times the exposure (`volume`) and the weight.

    Returns
    -------
    array, shape (n_levels,), or None
        The effects. None if the means of levels vary no more than the noise within levels explains, if fewer than two
        levels have rows, or if all counts are 0.

    Examples
    --------
    >>> rows = Targets(rate=np.array([1.0, 2.0, 8.0, 9.0, 4.0, 6.0]), volume=np.ones(6), weight=np.ones(6))
    >>> estimate_credible_effects(np.array([0, 0, 1, 1, 2, 2]), 4, rows).round(2)
    array([-1.1 ,  0.51,  0.  ,  0.  ])
    """
    volume = np.bincount(level_codes, target.volume, n_levels)
    total = np.bincount(level_codes, target.volume * target.rate, n_levels)
    seen = volume > 0.0
    whole, levels, freedom = volume.sum(), int(seen.sum()), target.weight.sum() - seen.sum()
    if levels < 2 or freedom <= 0.0 or (mean := total.sum() / whole) == 0.0:
        return None
    level_means = np.divide(total, volume, out=np.full(n_levels, mean), where=seen)
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
    """Fit the level effects of a column, divided by their standard deviation over the rows.

    An effect is the log of a level's shrunk mean relative to the overall mean. Return None if the means of levels vary
    no more than the noise within levels explains (see `estimate_credible_effects`).

    If `scale` is given, effects are divided by it instead of their standard deviation, and effects of 0 are returned
    instead of None. This makes the effects of several folds comparable.
    """
    names = list(weigh_levels(column, target.weight))[:MAX_LEVELS]
    positions = {level: j for j, level in enumerate(names)}
    # All levels beyond the most frequent ones share one effect, and missing values another.
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
