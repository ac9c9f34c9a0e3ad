"""A column of text as inputs of a network: one per frequent level, one for all rare ones, one for missing.

Columns with many levels have one more, the effect of the level (`ddpn.tables.encoding.level_effects`).
"""

from dataclasses import dataclass

import numpy as np

from ddpn.tables.encoding.level_effects import LevelEffects

#: Names of the inputs of rare levels and of missing values.
OTHER, MISSING = "<other>", "<missing>"


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
