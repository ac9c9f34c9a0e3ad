"""Encode a column of text: an input per frequent level, one for rare levels, one for missing values, and the effect.

Text with many levels has one input more, the effect of the level on the target. It is target encoding by credibility:
the mean of a level is shrunk towards that of all rows by the credibility of Bühlmann and Straub (1970), the more the
fewer rows it has and the less levels differ. Unlike `sklearn.preprocessing.TargetEncoder` it knows weights and
exposures, and is on the scale of the logarithm, as the likelihoods are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ddpn.tables.columns import Column

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
