"""Interactions: pairs of columns whose joint effect on the mean is not the sum of their own effects."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from ddpn.analysis.explanations.grid import EffectGrid, grid_of
from ddpn.analysis.explanations.inputs import Inputs, screened
from ddpn.analysis.explanations.results import ExplanationResult
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_integer
from ddpn.tables.encoding.table import Column

#: Columns whose pairs are measured, and rows they are measured on.
TOP, ROWS = 5, 300
#: Bins of numbers and levels of categories: few, so that most cells of the grid have rows.
_BINS, _LEVELS, _SAMPLES = 6, 6, 50
#: An interaction is found if its strength is so many times its noise, such a share of the standard deviation of all
#: predictions and, on the log scale, at least this: 3% of the mean.
_RATIO, _SHARE, _LEAST = 2.0, 0.08, 0.03
#: The sides of the four corners of a cell: of the first column, and of the second.
_CORNERS = ((0, 0, 1, 1), (0, 1, 0, 1))


@dataclass(frozen=True, eq=False, repr=False)
class Interaction(ExplanationResult):
    """The joint effect of two columns on the mean, beyond the sum of their own effects.

    Attributes
    ----------
    names : tuple of str
        The two columns.
    points : tuple of list
        Where it is measured: quantiles, values or levels of each.
    effect : array, shape (points of the first, points of the second)
        The second-order accumulated local effect, without the effects of either column alone; on the log scale
        (`log`), 0.1 multiplies the mean by 1.1.
    total : array of the same shape
        The predicted (log) mean of a typical row at each pair of points: both columns' own effects and this one.
    share : array of the same shape
        The share of rows around each point.
    strength : float
        The standard deviation of the effect over the rows.
    noise : float
        The part of the strength that rows by chance and disagreement of the mixture's components may explain.
    scale : float
        The standard deviation of the predicted (log) means of all rows, to compare the strength with.
    log : bool
        Whether effects are on the log scale, as they are for all likelihoods but the Gaussian.
    """

    names: tuple[str, str]
    points: tuple[list[Any], list[Any]]
    effect: np.ndarray
    total: np.ndarray
    share: np.ndarray
    strength: float
    noise: float
    scale: float
    log: bool

    @property
    def is_found(self) -> bool:
        """Whether it is twice its noise, 8% of the standard deviation of all predictions, and 3% of the mean."""
        return self.strength > max(_RATIO * self.noise, _SHARE * self.scale, _LEAST if self.log else 0.0)

    @property
    def level(self) -> np.ndarray:
        """The predicted mean of a typical row at each pair of points, in counts."""
        return np.exp(self.total) if self.log else self.total

    def table(self) -> dict[str, list[Any]]:
        """A long table by columns, one row per pair of points."""
        first, second = self.points
        return {
            self.names[0]: [point for point in first for _ in second],
            self.names[1]: [point for _ in first for point in second],
            "share": self.share.ravel().tolist(),
            "effect": self.effect.ravel().tolist(),
            "mean": self.level.ravel().tolist(),
        }

    def plot(self) -> Any:
        """Draw the interaction as a map; needs `ddpn[plot]`.

        Returns
        -------
        matplotlib Figure
        """
        from ddpn.analysis.plots import interaction_figure

        return interaction_figure(self)


def interactions(
    model: Any,
    X: Any,
    exposure: Any = None,
    upper: Any = None,
    columns: Iterable[str] | None = None,
    top: int = TOP,
    max_rows: int = ROWS,
    every: bool = False,
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
) -> list[Interaction]:
    """Measure which pairs of columns interact in the predicted mean.

    Parameters
    ----------
    model : estimator or Predictor
        A fitted model.
    X, exposure, upper
        As for `effects`.
    columns : list of str, optional
        The columns whose pairs are measured. Default: the `top` ones that change the predicted mean most when they are
        shuffled.
    top : int
        The number of columns, if none are named; the work grows with its square.
    max_rows : int
        A random draw of so many rows is used.
    every : bool
        Return all measured pairs. By default these are the ones that are found (`Interaction.is_found`).
    seed : int
        Seed of the draws.
    progress : callable, optional
        Called with the name of each step.

    Returns
    -------
    list of Interaction
        The strongest first.

    Examples
    --------
    >>> from ddpn import CountGLM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = rng.poisson(np.exp(0.5 * X[:, 0] + 0.3 * X[:, 1]))
    >>> interactions(CountGLM(likelihood="poisson").fit(X, y), X)  # a GLM has none on the log scale
    []
    """
    check_integer("top", top, 2)
    check_integer("max_rows", max_rows, 1)
    inputs = Inputs(model, X, exposure, upper)
    chosen = None if columns is None else inputs.positions(columns)
    if chosen is not None and len(chosen) < 2:
        raise InputError(f"columns must name two columns or more, got {len(chosen)}.")
    pairs = measured_interactions(inputs, chosen, top, max_rows, seed, progress)
    return pairs if every else [pair for pair in pairs if pair.is_found]


def measured_interactions(
    inputs: Inputs,
    positions: list[int] | None = None,
    top: int = TOP,
    max_rows: int = ROWS,
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
) -> list[Interaction]:
    """All pairs of the columns at these positions, or of the `top` most important ones, the strongest pair first."""
    rng = np.random.default_rng(seed)
    inputs = inputs.rows(inputs.draw(max_rows, rng))
    if positions is None:
        positions = screened(inputs, inputs.positions(None), top, rng, of="mean")
    grids = {position: grid_of(inputs.columns, position, _BINS, _LEVELS) for position in positions}
    pairs = list(combinations([position for position in positions if len(grids[position].points) > 1], 2))
    now = inputs.moments(np.arange(len(inputs)), variance=False).quantities(inputs.log)
    found = []
    for place, (a, b) in enumerate(pairs, 1):
        if progress is not None:
            progress(f"Interactions: {place} of {len(pairs)}")
        pair = _interaction(inputs, a, b, (grids[a], grids[b]), float(now[0, :, 0].std()), rng)
        found += [] if pair is None else [pair]
    return sorted(found, key=lambda one: -one.strength)


class _Cells(NamedTuple):
    """The rows in the cells of a grid: `number` per cell, and the cell of every row as one integer."""

    shape: tuple[int, int]
    of: np.ndarray
    number: np.ndarray


def _interaction(
    inputs: Inputs, a: int, b: int, grids: tuple[EffectGrid, EffectGrid], scale: float, rng: np.random.Generator
) -> Interaction | None:
    first, second = grids
    rows = np.flatnonzero((first.code >= 0) & (second.code >= 0))
    if not len(rows):
        return None
    i, j = first.steps[rows], second.steps[rows]
    # The four corners of every row's cell, which differ by the second difference of the prediction.
    at_a = first.source[np.concatenate([i, i - 1, i, i - 1])]
    at_b = second.source[np.concatenate([j, j, j - 1, j - 1])]
    moments = inputs.moments(np.tile(rows, 4), {a: at_a, b: at_b}, variance=False)
    values = moments.quantities(inputs.log)[0].reshape(4, len(rows), -1)
    delta = values[0] - values[1] - values[2] + values[3]
    shape = (len(first.points) - 1, len(second.points) - 1)
    cells = _Cells(shape, (i - 1) * shape[1] + (j - 1), np.zeros(shape))
    cells = cells._replace(number=np.bincount(cells.of, minlength=shape[0] * shape[1]).reshape(shape).astype(float))
    sides = [_sides(grid, inputs.columns[j], rows) for grid, j in ((first, a), (second, b))]
    places = tuple(np.stack([side[0][k] for k in ks]) for side, ks in zip(sides, _CORNERS, strict=True))
    parts = np.prod([[side[1][k] for k in ks] for side, ks in zip(sides, _CORNERS, strict=True)], axis=0)
    share = np.zeros((shape[0] + 1, shape[1] + 1))
    np.add.at(share, places, parts / len(rows))
    effect, *each = (_surface(cells, delta[:, k], np.ones(len(rows))) for k in range(delta.shape[1]))
    own = [
        _own(i, (values[0] - values[1] + values[2] - values[3])[:, 0] / 2.0, first),
        _own(j, (values[0] - values[2] + values[1] - values[3])[:, 0] / 2.0, second),
    ]
    total = float(values[..., 0].mean()) + own[0][:, None] + own[1][None] + effect
    n = len(rows)
    drawn = rng.multinomial(n, np.full(n, 1.0 / n), size=_SAMPLES).astype(float)
    by_rows = np.stack([_surface(cells, delta[:, 0], weight) for weight in drawn]).var(0)
    apart = np.stack(each) - np.einsum("k,kij->ij", moments.weights, np.stack(each))
    noise = by_rows + np.einsum("k,kij->ij", moments.weights, apart**2)
    return Interaction(
        (inputs.names[a], inputs.names[b]),
        (list(first.points), list(second.points)),
        effect,
        total,
        share,
        float(np.sqrt(((parts * effect[places]).sum(0) ** 2).mean())),
        float(np.sqrt((share * noise).sum())),
        scale,
        inputs.log,
    )


def _sides(grid: EffectGrid, column: Column, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points before and after every row's value, and how near it is to each. Shape: (2, rows) each."""
    after = grid.code[rows]
    if grid.discrete:
        return np.stack([after, after]), np.stack([np.zeros(len(rows)), np.ones(len(rows))])
    edges = np.array(grid.points)
    low, high = edges[after - 1], edges[after]
    part = np.clip((column.values[rows] - low) / (high - low), 0.0, 1.0)
    return np.stack([after - 1, after]), np.stack([1.0 - part, part])


def _own(step: np.ndarray, delta: np.ndarray, grid: EffectGrid) -> np.ndarray:
    """The first-order effect at each point, from differences over the steps of the rows; centred over these steps."""
    size = len(grid.points)
    number = np.bincount(step, minlength=size)[1:].astype(float)
    total = np.bincount(step, delta, minlength=size)[1:]
    curve = np.append(0.0, (total / np.maximum(number, 1.0)).cumsum())
    return curve - number @ ((curve[1:] + curve[:-1]) / 2.0) / number.sum()


def _corners(number: np.ndarray) -> np.ndarray:
    """The rows of each cell divided among its four corners."""
    found = np.zeros((number.shape[0] + 1, number.shape[1] + 1))
    for rows in (slice(None, -1), slice(1, None)):
        for columns in (slice(None, -1), slice(1, None)):
            found[rows, columns] += number / 4.0
    return found


def _surface(cells: _Cells, delta: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Second differences, averaged per cell and accumulated, without what either column explains alone."""
    size = cells.shape[0] * cells.shape[1]
    number = np.bincount(cells.of, weight, minlength=size)
    total = np.bincount(cells.of, weight * delta, minlength=size)
    mean = np.divide(total, number, out=np.full(size, np.nan), where=number > 0)
    mean = _filled(mean.reshape(cells.shape))
    surface = np.pad(mean.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    first, second = _main(surface, cells.number), _main(surface.T, cells.number.T)
    surface = surface - first[:, None] - second[None]
    return surface - (_corners(cells.number) * surface).sum() / cells.number.sum()


def _main(surface: np.ndarray, number: np.ndarray) -> np.ndarray:
    """The first-order effect of the first axis of a surface, accumulated from 0."""
    steps = np.diff(surface, axis=0)
    steps = (steps[:, 1:] + steps[:, :-1]) / 2.0
    rows = number.sum(1)
    mean = np.where(rows > 0, (steps * number).sum(1) / np.maximum(rows, 1.0), steps.mean(1))
    return np.append(0.0, mean.cumsum())


def _filled(mean: np.ndarray) -> np.ndarray:
    """Cells without rows have the value of the nearest cell that has some."""
    known = np.argwhere(~np.isnan(mean))
    every = np.argwhere(np.ones_like(mean, dtype=bool))
    scale = np.array(mean.shape, dtype=float)
    apart = (((every[:, None] - known[None]) / scale) ** 2).sum(-1)
    return mean[tuple(known[apart.argmin(1)].T)].reshape(mean.shape)
