"""A column of numbers as inputs of a network: its standardised value, and optionally bins, steps and codes."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ddpn.features.weighted import Distinct, center_and_scale, distinct, midpoints, quantiles

#: Largest standardised value: its square still fits in float32.
LARGEST = 1e18
#: Values, and edges between bins, for which comparing with all edges is faster than a search.
_COUNTED, _FEW_EDGES = range(256, 2**14 + 1), 64
#: Integer codes (hour, weekday, month) with at most that many values also get one input per value.
MAX_CODES = 32


#: The same array for all columns, so that a file holds it once.
_EMPTY = np.empty(0)


def _none() -> np.ndarray:
    return _EMPTY


@dataclass(frozen=True)
class NumericColumn:
    """How one column of numbers is written: value, missing indicator, then bins, steps and codes if any."""

    fill: float = 0.0
    center: float = 0.0
    scale: float = 1.0
    has_missing: bool = False
    edges: np.ndarray = field(default_factory=_none)
    steps: np.ndarray = field(default_factory=_none)
    codes: np.ndarray = field(default_factory=_none)

    @property
    def width(self) -> int:
        return 1 + self.has_missing + max(len(self.edges) - 1, 0) + len(self.steps) + len(self.codes)

    def names(self, name: str) -> list[str]:
        edges = self.edges.tolist()
        return [
            name,
            *([f"{name} is missing"] if self.has_missing else []),
            *(f"{name} in {low:.12g}..{high:.12g}" for low, high in pairwise(edges)),
            *(f"{name} > {step:.12g}" for step in self.steps.tolist()),
            *(f"{name} = {code:.12g}" for code in self.codes.tolist()),
        ]

    def write(self, x: np.ndarray, out: np.ndarray, limit: float) -> None:
        """Write the inputs for values x into out, of shape (len(x), width)."""
        missing = np.isnan(x)
        x = np.where(missing, self.fill, x)
        out[:, 0] = bounded(self.standardised(x), limit)
        blocks = [missing[:, None]] if self.has_missing else []
        if len(self.edges):
            blocks.append(piecewise(x, self.edges))
        if len(self.steps):
            blocks.append(_staircase(len(self.steps))[np.searchsorted(self.steps, x)])
        if len(self.codes):
            blocks.append(_one_hot(x, self.codes))
        start = 1
        for block in blocks:
            out[:, start : start + block.shape[1]] = block
            start += block.shape[1]

    def code_of(self, x: np.ndarray) -> np.ndarray:
        """The place of each value among the codes; of any other, the number of codes."""
        return _code_of(x, self.codes)

    def standardised(self, x: np.ndarray) -> np.ndarray:
        """Values in units of the scale from the center; infinite where these overflow."""
        with np.errstate(over="ignore"):  # infinity is bounded next
            return (0.5 * x - 0.5 * self.center) / (0.5 * self.scale)


def bounded(z: np.ndarray, limit: float) -> np.ndarray:
    """z up to the limit, logarithmic beyond it: an outlier cannot drive a network out of bounds.

    >>> bounded(np.array([-3.0, 10.0, 1e12]), 10.0).round(2).tolist()
    [-3.0, 10.0, 37.63]
    """
    z = np.clip(z, -LARGEST, LARGEST)
    far = np.abs(z) > limit
    if far.any():
        z[far] = np.sign(z[far]) * (limit + np.log1p(np.abs(z[far]) - limit))
    return z


def piecewise(x: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How far x has filled each bin, from 0 to 1 (the piecewise-linear encoding of Gorishniy et al., 2022).

    >>> piecewise(np.array([-1.0, 0.5, 3.0, 9.0]), np.array([0.0, 1.0, 5.0]))
    array([[0. , 0. ],
           [0.5, 0. ],
           [1. , 0.5],
           [1. , 1. ]], dtype=float32)
    """
    position, part = bin_and_share(x, edges)
    filled = _staircase(len(edges) - 1)[position]
    filled[np.arange(len(x)), position] = part
    return filled


def bin_and_share(x: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bin that x lies in, the nearest where it lies in none, and how far x has filled it."""
    half, inner = 0.5 * edges, edges[1:-1]
    if len(x) in _COUNTED and len(inner) < _FEW_EDGES:
        position = np.add.reduce(inner[:, None] <= x, axis=0, dtype=np.int8).astype(np.intp)
    else:
        position = np.searchsorted(inner, x, side="right")
    with np.errstate(over="ignore"):  # far outside a narrow bin: infinity, clipped to 0 or 1
        return position, np.clip((0.5 * x - half.take(position)) / (half[1:] - half[:-1]).take(position), 0.0, 1.0)


def _staircase(n: int) -> np.ndarray:
    """Row i has i ones and then zeros."""
    return np.tri(n + 1, n, k=-1, dtype=np.float32)


def _one_hot(x: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """One input per code; any other value gets zeros."""
    return np.eye(len(codes) + 1, len(codes), dtype=np.float32)[_code_of(x, codes)]


def _code_of(x: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The place of each code; of any other value, their number."""
    position = np.minimum(np.searchsorted(codes, x), len(codes) - 1)
    return np.where(codes[position] == x, position, len(codes))


def fit_number(x: np.ndarray, weights: np.ndarray) -> tuple[NumericColumn, Distinct]:
    """Median, mean and scale of one column, and its different values."""
    known = ~np.isnan(x)
    if not known.any():
        return NumericColumn(scale=np.inf), Distinct(np.zeros(1), np.ones(1))
    column = distinct(x[known], weights[known])
    fill = float(quantiles(column, np.array([0.5]))[0])
    some_missing = not known.all()
    filled = column
    if some_missing:
        more = np.where(column.values == fill, weights[~known].sum(), 0.0)
        filled = Distinct(column.values, column.weights + more)
    center, scale = center_and_scale(filled)
    return NumericColumn(fill, center, scale, some_missing), column


def fit_flag(x: np.ndarray, weights: np.ndarray) -> NumericColumn:
    """A boolean stays 0 or 1; a missing one becomes the more frequent of the two."""
    known = ~np.isnan(x)
    if not known.any():
        return NumericColumn()
    fill = quantiles(distinct(x[known], weights[known]), np.array([0.5]))[0]
    return NumericColumn(float(fill), has_missing=not known.all())


def bin_edges(column: Distinct, bins: int) -> np.ndarray:
    """Edges of quantile bins; if a column has few values, every value is an edge."""
    values = column.values
    if len(values) > bins + 1:
        values = np.unique(quantiles(column, np.linspace(0.0, 1.0, bins + 1)))
    # A bin so narrow that half its width is no float cannot be filled in parts.
    wide = np.append(True, 0.5 * values[1:] > 0.5 * values[:-1])
    return values[wide] if wide.sum() > 2 else _none()


def integer_codes(column: Distinct, most: int = MAX_CODES) -> np.ndarray:
    """The values, if there are 3 to `most` and all are integers; two values need one input only."""
    values = column.values
    is_code = 3 <= len(values) <= most and np.array_equal(values, np.floor(values))
    return values if is_code else _none()


def every_step(column: Distinct) -> np.ndarray:
    """A step between each two values; none for two values, which the standardised value separates."""
    return midpoints(column.values) if len(column.values) > 2 else _none()
