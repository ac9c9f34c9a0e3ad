"""Accumulated local effects (ALE) of every column on the mean and on the spread of the predicted distributions.

A partial dependence curve averages predictions for rows that do not exist, such as a child of 80 kg. Accumulated local
effects (Apley and Zhu, 2020) move each row only to the nearest points of the grid, average these differences bin by
bin, and add them up.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from ddpn.analysis.explanations.inputs import MISSING, Inputs
from ddpn.analysis.explanations.results import ByColumn, Table
from ddpn.runtime.validation import check_integer
from ddpn.tables.columns import Column, Kind
from ddpn.tables.levels import parse_number_level

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Rows that effects are measured on by default: each is predicted twice per column.
MAX_EFFECT_ROWS = 500
#: Half the width of a 90% band in standard errors.
_Z = 1.6449
#: Levels of a category that are measured, the most frequent ones.
_LEVELS = 20
#: Values of a number that figures show as bars, and bars that they have at most.
_BARS, _SHOWN = 6, 12
#: Bootstrap samples of the rows.
_SAMPLES = 100
#: Predictions of rows without a value, at most.
_MISSING = 200
#: Quantities that are explained, on the log scale and not.
QUANTITIES = {True: ("mean", "variance / mean"), False: ("mean", "standard deviation")}


@dataclass(frozen=True, eq=False)
class Curve:
    """The effect of a column on one quantity, at the points of an `Effect`.

    Attributes
    ----------
    quantity : str
        "mean", "variance / mean" (1 for a Poisson) or, for a Gaussian likelihood, "standard deviation".
    effect : array, shape (points,)
        The accumulated local effect, with a mean of 0 over the rows. With `log` it is that on the natural logarithm of
        the quantity: 0.69 doubles it.
    error : array, shape (points,)
        Its standard error: what a bootstrap over the rows and the disagreement of the mixture's components add up to.
    base : float
        The mean of the quantity over the rows, or with `log` of its logarithm.
    log : bool
        Whether effects are on the log scale, as they are for all likelihoods but the Gaussian.
    """

    quantity: str
    effect: np.ndarray
    error: np.ndarray
    base: float
    log: bool

    def _at(self, effect: np.ndarray) -> np.ndarray:
        return np.exp(self.base + effect) if self.log else self.base + effect

    @property
    def level(self) -> np.ndarray:
        """The quantity itself at each point, for a typical row; in counts for the mean."""
        return self._at(self.effect)

    @property
    def low(self) -> np.ndarray:
        """The lower end of the 90% band of `level`."""
        return self._at(self.effect - _Z * self.error)

    @property
    def high(self) -> np.ndarray:
        """The upper end of the 90% band of `level`."""
        return self._at(self.effect + _Z * self.error)

    @property
    def typical(self) -> float:
        """The quantity of a typical row, where the effect is 0."""
        return float(self._at(np.zeros(1))[0])


@dataclass(frozen=True, eq=False)
class Effect:
    """The effect of one column on the mean and on the spread of the prediction.

    Attributes
    ----------
    name : str
        The column.
    kind : str
        The kind of the column: "number", "boolean", "category" or "category of numbers".
    points : list
        Where the effect is measured: quantiles of a number (each bin between two of them has about the same number of
        rows), or all values where there are few; levels of a category, by their effect on the mean, or by size where
        all are numbers; "missing" last, if values are missing.
    share : array, shape (points,)
        The share of rows at or around each point.
    mean, spread : Curve
        The effects.
    continuous : bool
        Whether the points are quantiles of a number, so that values lie between them.
    has_missing : bool
        Whether the last point is that of a missing value.
    """

    name: str
    kind: Kind
    points: list[float | bool | str]
    share: np.ndarray
    mean: Curve
    spread: Curve
    continuous: bool
    has_missing: bool

    def strength(self, of: str = "mean") -> float:
        """Return the standard deviation of the effect over the rows.

        Parameters
        ----------
        of : {"mean", "spread"}
            Whether to use the effect on the mean or on the spread.
        """
        return float(np.sqrt(self.share @ getattr(self, of).effect ** 2))

    @property
    def is_line(self) -> bool:
        """Whether a figure shows a line: that of a number with more than a few values; others have bars."""
        return self.kind == Kind.NUMBER and len(self.points) - self.has_missing > _BARS

    @property
    def frequent(self) -> list[int]:
        """The positions of the most frequent points, in their order, as many as a figure has bars for."""
        return np.sort(np.argsort(-self.share, kind="stable")[:_SHOWN]).tolist()


@dataclass(frozen=True, eq=False, repr=False)
class Effects(ByColumn[Effect]):
    """The effects of several columns; a sequence of `Effect` that also takes names.

    Attributes
    ----------
    results : list of Effect
        In the order of the columns.
    rows, total : int
        The number of rows that they were measured on, and of how many these were drawn.
    """

    results: list[Effect]
    rows: int
    total: int
    measures: ClassVar[tuple[str, ...]] = ("mean", "spread")

    def table(self) -> Table:
        """Return a long table by columns, one row per point, ready for a data frame or for JSON."""
        table: Table = {"column": [], "value": [], "share": []}
        for one in self.results:
            table["column"] += [one.name] * len(one.points)
            table["value"] += one.points
            table["share"] += one.share.tolist()
            for name, curve in (("mean", one.mean), ("spread", one.spread)):
                for key, values in (("", curve.level), ("_low", curve.low), ("_high", curve.high)):
                    table.setdefault(f"{name}{key}", []).extend(values.tolist())
                table.setdefault(f"{name}_effect", []).extend(curve.effect.tolist())
        return table

    def plot(self, columns: Iterable[str] | None = None, most: int = 6) -> "Figure":
        """Draw the effects on the mean and on the spread, side by side.

        Parameters
        ----------
        columns : list of str, optional
            Which to draw. Default: those with the strongest effects on the mean.
        most : int
            The largest number of columns that are drawn by default.

        Returns
        -------
        matplotlib Figure
        """
        from ddpn.analysis.plots import draw_effects

        chosen = self.by("mean")[:most] if columns is None else [self[name] for name in columns]
        return draw_effects(chosen)


def effects(
    inputs: Inputs,
    columns: str | Iterable[str | int] | None = None,
    bins: int = 20,
    max_rows: int | None = MAX_EFFECT_ROWS,
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
) -> Effects:
    """Measure how the predicted mean and the predicted spread change with each column.

    Curves are accumulated local effects: rows are moved only to values close to their own, so that no unlikely
    combination of columns is predicted. Distributions are those before recalibration.

    Parameters
    ----------
    inputs : Inputs
        A fitted model and rows.
    columns : list of str, optional
        Which to measure. Default: all; of more than 40, those that change predictions most when they are shuffled.
    bins : int
        Bins of a column of numbers.
    max_rows : int or None
        Of more rows, so many are drawn at random; None uses all.
    seed : int
        Seed of the draws.
    progress : callable, optional
        Called with the name of each step.

    Examples
    --------
    >>> from ddpn import CountGLM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> model = CountGLM(likelihood="poisson").fit(X, rng.poisson(np.exp(1 + 0.5 * X[:, 0])))
    >>> result = effects(Inputs(model, X))
    >>> result.by("mean")[0].name, round(result["x0"].spread.typical, 3)
    ('x0', 1.0)
    """
    check_integer("bins", bins, 1)
    if max_rows is not None:
        check_integer("max_rows", max_rows, 1)
    rng = np.random.default_rng(seed)
    inputs = inputs.draw(max_rows, seed)
    positions = inputs.select_columns(columns, rng)
    moments, results = inputs.moments(np.arange(len(inputs))), []
    now = moments.quantities
    for number, position in enumerate(positions, 1):
        if progress is not None:
            progress(f"Effects of columns: {number} of {len(positions)}")
        column, grid = inputs.columns[position], make_grid(inputs.columns, position, bins)
        effect, error = curves(grid, measure(inputs, position, grid, now, rng), moments.weights, rng)
        points, share, has_missing = list(grid.points), grid.shares, bool(grid.missing.any())
        if column.is_category and None in [parse_number_level(str(point)) for point in points]:
            order = np.argsort(effect[0, : len(points)], kind="stable")
            points, share = [points[i] for i in order], share[order]
            last = np.arange(len(points), effect.shape[1])
            effect, error = effect[:, [*order, *last]], error[:, [*order, *last]]
        if has_missing:
            points, share = [*points, MISSING], np.append(share, grid.missing.mean())
        mean, spread = (
            Curve(name, effect[i], error[i], float(now[i, :, 0].mean()), moments.log)
            for i, name in enumerate(QUANTITIES[moments.log])
        )
        results.append(Effect(column.name, column.kind, points, share, mean, spread, not grid.discrete, has_missing))
    return Effects(results, len(inputs), inputs.total)


# The points of a column, and how rows lie among them ------------------------------------------------------------------


class EffectGrid(NamedTuple):
    """Points in their order, and for each of them a row that has this value.

    `code` says for every row which point it has (`discrete`), or at which point the bin ends that it is in; -1 where
    its value is missing or not among the points.
    """

    points: list[float | bool | str]
    source: np.ndarray
    code: np.ndarray
    missing: np.ndarray
    discrete: bool

    @property
    def shares(self) -> np.ndarray:
        """Fraction of rows at each grid point; the rows of a bin are divided equally between its two ends."""
        size, used = len(self.points), self.code[self.code >= 0]
        counts = np.bincount(used, minlength=size).astype(float)
        if not self.discrete:
            counts = (counts + np.append(counts[1:], 0.0)) / 2.0
        return counts / len(self.code)


def make_grid(columns: list[Column], position: int, bins: int) -> EffectGrid:
    """Return the grid of a column: quantiles of numbers, all values if they are few, and the levels of a category."""
    column = columns[position]
    missing = column.is_missing
    if column.is_category:
        order = _order_levels(columns, position)
        lookup = np.full(len(column.levels) + 1, -1)  # the last entry serves code -1
        lookup[order] = np.arange(len(order))
        code = lookup[column.values.astype(int)]
        source = np.array([int(np.argmax(code == point)) for point in range(len(order))], dtype=int)
        return EffectGrid([column.levels[level] for level in order], source, code, missing, True)
    values = np.unique(column.values[~missing])
    discrete = len(values) <= bins * 3 // 2 + 1  # hours and months are better shown one by one
    edges = values
    if not discrete:  # the smallest value and quantiles, all of which occur; equal ones once
        edges = np.unique(np.quantile(column.values[~missing], np.arange(bins + 1) / bins, method="inverted_cdf"))
    code = np.where(missing, -1, np.minimum(np.searchsorted(edges, column.values), len(edges) - 1))
    if not discrete:
        code = np.where(missing, -1, np.maximum(code, 1))
    source = np.array([int(np.argmax(column.values == edge)) for edge in edges], dtype=int)
    points = [bool(edge) for edge in edges] if column.kind == Kind.BOOLEAN else edges.tolist()
    return EffectGrid(points, source, code, missing, discrete)


def _order_levels(columns: list[Column], position: int) -> np.ndarray:
    """Return the most frequent levels: numbers by size, others so that neighbours are alike in the other columns.

    Effects are accumulated from each level to the next one. Rows of neighbours then are rows for which both levels are
    plausible (Apley and Zhu, 2020). The order is that of the first principal component of what the rows of each level
    have in the other columns: mean ranks of numbers, shares of levels.
    """
    column = columns[position]
    number = column.count_levels()
    # The number of rows decides, then the name: the order of rows does not matter.
    ranked = sorted(np.flatnonzero(number).tolist(), key=lambda level: (-number[level], column.levels[level]))
    levels = np.array(ranked[:_LEVELS], dtype=int)
    if len(levels) < 3:
        return levels
    numbers = [parse_number_level(column.levels[level]) for level in levels]
    if None not in numbers:
        return levels[np.argsort(np.array(numbers, dtype=float), kind="stable")]
    profiles = []  # shape: (levels, features) each
    for other in (candidate for index, candidate in enumerate(columns) if index != position):
        if other.is_category:
            size, codes = len(other.levels) + 1, other.values.astype(int)
            codes = np.where(codes < 0, size - 1, codes)
            counts = (np.bincount(codes[column.values == level], minlength=size) for level in levels)
            profiles.append(np.stack([level_counts / level_counts.sum() for level_counts in counts]))
        else:
            values = np.unique(other.values, return_inverse=True)[1] / len(other.values)
            profiles.append(np.stack([values[column.values == level].mean(keepdims=True) for level in levels]))
    if not profiles:
        return levels
    profile = np.hstack(profiles)
    first = np.linalg.svd(profile - profile.mean(0), full_matrices=False)[0][:, 0]
    return levels[np.argsort(first * np.sign(first[np.abs(first).argmax()]), kind="stable")]


# Curves and their uncertainty -----------------------------------------------------------------------------------------


class Steps(NamedTuple):
    """Differences of predictions: `delta` is that of `row` over `step`, from one point of the grid to the next.

    Shape: row and step (n,), delta (quantities, n, 1 + components). `missing_rows` have no value, and `gap` is how much
    their prediction exceeds that with the value of the grid's point `at`.
    """

    row: np.ndarray
    step: np.ndarray
    delta: np.ndarray
    missing_rows: np.ndarray
    at: np.ndarray
    gap: np.ndarray


def measure(inputs: Inputs, position: int, grid: EffectGrid, now: np.ndarray, rng: np.random.Generator) -> Steps:
    """Predict the rows at both ends of their steps; `now` are the quantities of the rows as they are."""
    last, row = len(grid.points) - 1, np.flatnonzero(grid.code >= 0)
    step = grid.code[row]
    if grid.discrete:  # to the point before, and to the next one
        step, row = np.concatenate([step, step + 1]), np.tile(row, 2)
        inside = (step >= 1) & (step <= last)
        row, step = row[inside], step[inside]
    # Rows without a value, each as often as a value is drawn for it; none where there is no value at all.
    absent = np.flatnonzero(grid.missing)
    if len(absent) and len(grid.points):
        absent = absent if len(absent) <= _MISSING else np.sort(rng.choice(absent, _MISSING, replace=False))
        absent = np.repeat(absent, max(1, min(10, _MISSING // len(absent))))
        points = rng.choice(last + 1, len(absent), p=grid.shares / grid.shares.sum())
    else:
        absent = points = absent[:0]
    asked, target = np.concatenate([row, row, absent]), np.concatenate([step - 1, step, points])
    if not len(asked):
        nothing = np.zeros((len(now), 0, now.shape[-1]))
        return Steps(row, step, nothing, absent, points, nothing)
    predicted = inputs.moments(asked, {position: grid.source[target]}).quantities
    lower, upper, drawn = np.split(predicted, [len(row), 2 * len(row)], 1)
    return Steps(row, step, upper - lower, absent, points, now[:, absent] - drawn)


def accumulate(grid: EffectGrid, steps: Steps, delta: np.ndarray, gap: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Effects at every point, and of a missing value where there is one, centred to a mean of 0 over the rows.

    Shape: delta (n,) and gap (m,) for one quantity, weight of the rows (samples, rows) -> (samples, points [+ 1]).
    """
    size = len(grid.points)
    in_step = (steps.step[:, None] == np.arange(1, size)).astype(float)
    share = weight[:, steps.row]
    total, rows = (share * delta) @ in_step, share @ in_step
    # A bootstrap sample without rows in a step has the mean difference of all rows there.
    usual = (delta @ in_step) / np.maximum(in_step.sum(0), 1.0)
    mean = np.where(rows > 0, total / np.maximum(rows, 1e-300), usual)
    curve = np.concatenate([np.zeros((len(weight), min(size, 1))), mean.cumsum(1)], 1)
    used = grid.code >= 0
    format_rows = curve[:, grid.code[used]]
    if not grid.discrete:
        format_rows = (format_rows + curve[:, grid.code[used] - 1]) / 2.0
    inside = weight[:, used].sum(1)
    curve = curve - _mean(format_rows, weight[:, used])[:, None]
    if not len(steps.missing_rows):
        return np.append(curve, np.zeros((len(weight), 1)), 1) if grid.missing.any() else curve
    missing = _mean(gap + curve[:, steps.at], weight[:, steps.missing_rows])
    outside = weight[:, grid.missing].sum(1)
    shift = outside * missing / np.maximum(outside + inside, 1e-300)
    return np.concatenate([curve, missing[:, None]], 1) - shift[:, None]


def _mean(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weighted means of the last axis; plain ones where all weights are 0."""
    if not values.shape[-1]:
        return np.zeros(len(weight))
    total = weight.sum(1)
    return np.where(total > 0, (values * weight).sum(1) / np.maximum(total, 1e-300), values.mean(1))


def curves(
    grid: EffectGrid, steps: Steps, weights: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Compute effects and their standard errors. Shape: (quantities, points) each.

    Two errors add up. The rows: the effect of a bootstrap sample varies. The components: a network, or another member,
    alone has another effect than the mixture.
    """
    n = len(grid.code)
    once, drawn = np.ones((1, n)), rng.multinomial(n, np.full(n, 1.0 / n), size=_SAMPLES).astype(float)
    effects, errors = [], []
    for delta, gap in zip(steps.delta, steps.gap, strict=True):
        effect, *by_component = (
            accumulate(grid, steps, delta[:, k], gap[:, k], once)[0] for k in range(delta.shape[-1])
        )
        by_rows = accumulate(grid, steps, delta[:, 0], gap[:, 0], drawn).std(0)
        apart = np.stack(by_component) - weights @ np.stack(by_component)
        effects.append(effect)
        errors.append(np.hypot(by_rows, np.sqrt(weights @ apart**2)))
    return np.stack(effects), np.stack(errors)
