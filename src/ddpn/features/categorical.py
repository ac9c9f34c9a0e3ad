"""A column of text as inputs of a network: one per frequent level, one for all rare ones, one for missing."""

from dataclasses import dataclass

import numpy as np

#: Names of the inputs of rare levels and of missing values.
OTHER, MISSING = "<other>", "<missing>"


@dataclass(frozen=True)
class CategoricalColumn:
    """The levels with an input of their own, most frequent first; whether rare ones and missing values have one."""

    levels: tuple[str, ...]
    has_other: bool
    has_missing: bool

    @property
    def width(self) -> int:
        return len(self.levels) + self.has_other + self.has_missing

    def names(self, name: str) -> list[str]:
        named = [*self.levels, *([OTHER] if self.has_other else []), *([MISSING] if self.has_missing else [])]
        return [f"{name} = {level}" for level in named]

    def write(self, codes: np.ndarray, levels: tuple[str, ...], out: np.ndarray) -> None:
        """Write the inputs for codes into `levels` (those of the table at hand, -1 for missing)."""
        out[...] = np.eye(self.width + 1, self.width, dtype=np.float32)[self.places(codes, levels)]

    def places(self, codes: np.ndarray, levels: tuple[str, ...]) -> np.ndarray:
        """Which input is 1 for each code; the number of inputs where none is."""
        place = {level: j for j, level in enumerate(self.levels)}
        nowhere = self.width
        other = len(self.levels) if self.has_other else nowhere
        missing = len(self.levels) + self.has_other if self.has_missing else other
        # The last entry serves code -1.
        return np.array([*(place.get(level, other) for level in levels), missing])[codes]


def fit_category(
    codes: np.ndarray,
    levels: tuple[str, ...],
    weights: np.ndarray,
    min_weight: float,
    max_levels: int,
) -> CategoricalColumn:
    """Levels of at least `min_weight`, the `max_levels` most frequent of them; equal ones in alphabetical order."""
    found = np.bincount(codes + 1, weights, minlength=len(levels) + 1)
    totals: dict[str, float] = {}
    for level, weight in zip(levels, found[1:].tolist(), strict=True):
        totals[level] = totals.get(level, 0.0) + weight
    seen = sorted((level for level in totals if totals[level] > 0.0), key=lambda level: (-totals[level], level))
    kept = tuple(level for level in seen if totals[level] >= min_weight)[:max_levels]
    return CategoricalColumn(kept, len(kept) < len(seen), bool(found[0] > 0.0))
