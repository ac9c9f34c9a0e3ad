"""A column of text as inputs of a network: one per frequent level, one for all rare ones, one for missing.

Columns with many levels have one more, the effect of the level on the target. It is target encoding by credibility: the
mean of a level is shrunk towards that of all rows by the credibility of Bühlmann and Straub (1970), the more the fewer
rows it has and the less levels differ. Unlike `sklearn.preprocessing.TargetEncoder` it knows weights and exposures, and
is on the scale of the logarithm, as the likelihoods are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

#: Names of the inputs of rare levels and of missing values.
OTHER, MISSING = "<other>", "<missing>"
#: Levels with an effect, at most; the others have that of unseen ones, 0.
MAX_LEVELS = 50_000
#: Shrinkage is at least that of so many rows, so that a level without variance does not have a mean of 0.
_LEAST_ROWS = 0.1
#: Variances below this share of the mean square are rounding errors.
_ROUNDING = 1e-12


class Targets(NamedTuple):
    """Per row: the target per unit of exposure, the volume (weight times exposure), and the weight.

    `signed` targets may be negative, also where those of some rows are not: their effects are differences.
    """

    rate: np.ndarray
    volume: np.ndarray
    weight: np.ndarray
    signed: bool = False

    def rows(self, index: np.ndarray) -> "Targets":
        """Some of the rows."""
        return self._replace(rate=self.rate[index], volume=self.volume[index], weight=self.weight[index])


class LevelEffects(NamedTuple):
    """The effect of each level in standard deviations, of missing values, and the effects' standard deviation."""

    values: Mapping[str, float]
    missing: float
    scale: float

    def of(self, codes: np.ndarray, levels: tuple[str, ...]) -> np.ndarray:
        """Effects for codes into `levels`, -1 for missing ones; 0 for unseen levels."""
        return by_level(codes, levels, self.values, 0.0, self.missing).astype(np.float32)


def by_level(
    codes: np.ndarray, levels: tuple[str, ...], known: Mapping[str, float], other: float, missing: float
) -> np.ndarray:
    """What is known of the level of each code; `other` for unknown levels and `missing` for code -1."""
    if len(levels) > len(codes):  # some rows of a table with very many levels
        used, codes = np.unique(codes, return_inverse=True)
        return np.array([missing if code < 0 else known.get(levels[code], other) for code in used.tolist()])[codes]
    # The last entry serves code -1.
    return np.array([*(known.get(level, other) for level in levels), missing])[codes]


@dataclass(frozen=True)
class CategoricalColumn:
    """The levels with an input of their own, most frequent first; whether rare ones and missing values have one.

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
        """All levels that differ from an unseen one, most frequent first."""
        return self.levels if self.effects is None else tuple(dict.fromkeys((*self.levels, *self.effects.values)))

    def names(self, name: str) -> list[str]:
        named = [*self.levels, *([OTHER] if self.has_other else []), *([MISSING] if self.has_missing else [])]
        return [f"{name} = {level}" for level in named] + ([f"{name} effect"] if self.effects is not None else [])


def fit_category(
    codes: np.ndarray,
    levels: tuple[str, ...],
    weights: np.ndarray,
    min_weight: float,
    max_levels: int,
    effects: LevelEffects | None = None,
) -> CategoricalColumn:
    """Levels of at least `min_weight`, the `max_levels` most frequent of them; equal ones in alphabetical order."""
    found = np.bincount(codes + 1, weights, minlength=len(levels) + 1)
    totals: dict[str, float] = {}
    for level, weight in zip(levels, found[1:].tolist(), strict=True):
        totals[level] = totals.get(level, 0.0) + weight
    seen = sorted((level for level in totals if totals[level] > 0.0), key=lambda level: (-totals[level], level))
    kept = tuple(level for level in seen if totals[level] >= min_weight)[:max_levels]
    return CategoricalColumn(kept, len(kept) < len(seen), bool(found[0] > 0.0), effects)


# Effects of levels -------------------------------------------------------------------------------------------------


def targets_of(y: np.ndarray, weights: np.ndarray, exposure: np.ndarray | None) -> Targets:
    """Targets per unit of exposure; weights of a mean below 1 are scaled to 1, others count as repeated rows."""
    scale = np.ones(len(y)) if exposure is None else exposure / exposure.mean()
    weight = weights * max(1.0, np.count_nonzero(weights) / weights.sum())
    return Targets(y / scale, weight * scale, weight, bool((y < 0.0).any()))


def credible_effects(index: np.ndarray, count: int, target: Targets) -> np.ndarray | None:
    """The logarithm of each level's credible mean relative to the mean of all rows; 0 for levels without rows.

    None where levels do not differ by more than chance. `signed` targets have differences instead.

    >>> rows = Targets(np.array([1.0, 2.0, 8.0, 9.0, 4.0, 6.0]), np.ones(6), np.ones(6))
    >>> credible_effects(np.array([0, 0, 1, 1, 2, 2]), 4, rows).round(2)
    array([-1.1 ,  0.51,  0.  ,  0.  ])
    """
    volume = np.bincount(index, target.volume, count)
    total = np.bincount(index, target.volume * target.rate, count)
    seen = volume > 0.0
    whole, levels, freedom = volume.sum(), int(seen.sum()), target.weight.sum() - seen.sum()
    if levels < 2 or freedom <= 0.0 or (mean := total.sum() / whole) == 0.0:
        return None
    own = np.divide(total, volume, out=np.full(count, mean), where=seen)
    squares = float((target.volume * np.square(target.rate)).sum())
    within = max(squares - float((total * own)[seen].sum()), 0.0) / freedom
    spread = float((volume * np.square(own - mean)).sum()) - (levels - 1) * within
    between = spread / (whole - float(np.square(volume).sum()) / whole)
    if between <= _ROUNDING * squares / whole:
        return None
    shrinkage = max(within / between, _LEAST_ROWS * whole / target.weight.sum())
    credible = mean + (own - mean) * volume / (volume + shrinkage)
    return credible - mean if target.signed else np.log(credible / mean)


def fit_effects(codes: np.ndarray, levels: tuple[str, ...], target: Targets) -> LevelEffects | None:
    """The effects of a column's levels; None where levels do not differ by more than chance.

    Parameters
    ----------
    codes : array of int
        Each row's place in `levels`, -1 where it is missing.
    levels : tuple of str
        Names of the levels, of which some may be equal or without rows.
    target : Targets
        The rows.
    """
    names, place = level_places(codes, levels, target.weight)
    index = place[codes]
    effects = credible_effects(index, len(names) + 2, target)
    if effects is None:
        return None
    volume = np.bincount(index, target.volume, len(effects))
    scale = float(np.sqrt((volume * np.square(effects)).sum() / volume.sum()))
    return _standardised(names, effects, scale)


def refit_effects(codes: np.ndarray, levels: tuple[str, ...], target: Targets, scale: float) -> LevelEffects:
    """Effects of other rows on the scale of a fit; all are 0 where levels do not differ by more than chance."""
    names, place = level_places(codes, levels, target.weight)
    effects = credible_effects(place[codes], len(names) + 2, target)
    return _standardised(names, np.zeros(len(names) + 2) if effects is None else effects, scale)


def level_places(codes: np.ndarray, levels: tuple[str, ...], weights: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Names of the levels that have rows, most frequent first; and for each code a place among them.

    The place after them is that of levels beyond `MAX_LEVELS`, and the next, also the last entry, of missing values.
    """
    found = np.bincount(codes + 1, weights, minlength=len(levels) + 1)[1:]
    totals: dict[str, float] = {}
    for level, weight in zip(levels, found.tolist(), strict=True):
        if weight > 0.0:
            totals[level] = totals.get(level, 0.0) + weight
    names = sorted(totals, key=lambda level: (-totals[level], level))[:MAX_LEVELS]
    place = {level: j for j, level in enumerate(names)}
    return names, np.array([*(place.get(level, len(names)) for level in levels), len(names) + 1], dtype=np.int64)


def _standardised(names: list[str], effects: np.ndarray, scale: float) -> LevelEffects:
    values = (effects / scale).astype(np.float32).tolist()
    return LevelEffects(dict(zip(names, values, strict=False)), values[-1], scale)
