"""Accumulated local effects (ALE) of every column on the mean and on the spread of predicted distributions.

A partial dependence curve averages predictions for unlikely rows, such as a child of 80 kg. Accumulated local effects
(Apley and Zhu, 2020) move each row only to the nearest points of the grid, average these differences bin by bin, and
add them up. A step is the way from one point of the grid to the next.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from ddpn.analysis.explanations.inputs import MISSING, Inputs
from ddpn.analysis.explanations.results import ByColumn, Table
from ddpn.runtime.display import value_text
from ddpn.runtime.validation import check_integer
from ddpn.tables.columns import Column, Kind
from ddpn.tables.levels import parse_number_level

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The default number of rows. Each is predicted twice per column.
MAX_EFFECT_ROWS = 500
#: The half-width of a 90% band in standard errors.
_Z = 1.6449
#: The most levels of a category that are measured. The most frequent ones are chosen.
_MAX_LEVELS = 20
#: The most values of a numeric column that figures show as bars instead of a line, and the most bars of a figure.
_MAX_BAR_VALUES, _MAX_BARS = 6, 12
#: The number of bootstrap samples of the rows.
_BOOTSTRAP_SAMPLES = 100
#: The most predictions for rows with a missing value.
_MAX_MISSING_PREDICTIONS = 200
#: The explained quantities, keyed by whether effects are on the log scale.
QUANTITIES = {True: ("mean", "variance / mean"), False: ("mean", "standard deviation")}


@dataclass(frozen=True, eq=False)
class Curve:
    """The effect of a column on one quantity, at the points of an `Effect`.

    Attributes
    ----------
    quantity : str
        "mean", "variance / mean" (1 for a Poisson) or, for a Gaussian likelihood, "standard deviation".
    effect : array, shape (points,)
        The accumulated local effect, with a mean of 0 over the rows. With `log`, it is the effect on the natural
        logarithm of the quantity: 0.69 doubles the quantity.
    error : array, shape (points,)
        The standard error of the effect, which combines a bootstrap over the rows with the disagreement of the
        mixture's components.
    base : float
        The mean of the quantity (with `log`, of its logarithm) over the rows.
    log : bool
        True if effects are on the log scale, as for all likelihoods but the Gaussian.
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
        """The quantity at each point, for a row that is otherwise typical. The mean is in counts."""
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
        """The quantity of a typical row, whose effect is 0."""
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
        The values at which the effect is measured. For a numeric column they are quantiles, or all values if there are
        few. For a category they are levels, sorted by their effect on the mean, or by size if all are numbers.
        "missing" comes last, if values are missing.
    share : array, shape (points,)
        The share of rows at or around each point.
    mean, spread : Curve
        The effects on the mean and on the spread.
    continuous : bool
        True if the points are quantiles of a number, so that other values lie between them.
    has_missing : bool
        True if the last point stands for missing values.
    is_day : bool
        Whether the points are days since 1970, which are shown as dates.
    """

    name: str
    kind: Kind
    points: list[float | bool | str]
    share: np.ndarray
    mean: Curve
    spread: Curve
    continuous: bool
    has_missing: bool
    is_day: bool = False

    def format_points(self) -> list[str]:
        """Write the points as texts."""
        return [value_text(point, self.is_day) for point in self.points]

    def strength(self, of: str = "mean") -> float:
        """Return the standard deviation of the effect over the rows: how strongly the column changes predictions.

        Parameters
        ----------
        of : {"mean", "spread"}
            The effect to use: on the mean or on the spread.
        """
        return float(np.sqrt(self.share @ getattr(self, of).effect ** 2))

    @property
    def is_line(self) -> bool:
        """True if a figure shows a line (a number with more than a few values), False if it shows bars."""
        return self.kind == Kind.NUMBER and len(self.points) - self.has_missing > _MAX_BAR_VALUES

    @property
    def frequent(self) -> list[int]:
        """The positions of the most frequent points that fit into a figure with bars, in ascending order."""
        return np.sort(np.argsort(-self.share, kind="stable")[:_MAX_BARS]).tolist()


@dataclass(frozen=True, eq=False, repr=False)
class Effects(ByColumn[Effect]):
    """The effects of several columns: a sequence of `Effect` that can also be indexed by name.

    Attributes
    ----------
    results : list of Effect
        The effects, in the order of the columns.
    rows, total : int
        The number of rows that were used, and the number from which they were drawn.
    library : {"polars", "pandas"}
        What `to_frame` returns.
    """

    results: list[Effect]
    rows: int
    total: int
    library: str = "polars"
    measures: ClassVar[tuple[str, ...]] = ("mean", "spread")

    def table(self) -> Table:
        """Return a long table by columns, one row per point, ready for a data frame or for JSON."""
        table: Table = {"column": [], "value": [], "share": []}
        for one in self.results:
            table["column"] += [one.name] * len(one.points)
            table["value"] += one.format_points() if one.is_day else one.points
            table["share"] += one.share.tolist()
            for name, curve in (("mean", one.mean), ("spread", one.spread)):
                for key, values in (("", curve.level), ("_low", curve.low), ("_high", curve.high)):
                    table.setdefault(f"{name}{key}", []).extend(values.tolist())
                table.setdefault(f"{name}_effect", []).extend(curve.effect.tolist())
        return table

    def plot(self, columns: Iterable[str] | None = None, max_columns: int = 6) -> "Figure":
        """Draw the effects on the mean and on the spread, side by side.

        Parameters
        ----------
        columns : list of str, optional
            The columns to draw. Default: the columns with the strongest effects on the mean.
        max_columns : int
            The most columns to draw if `columns` is None.

        Returns
        -------
        matplotlib Figure
        """
        from ddpn.analysis.plots import draw_effects

        chosen = self.by("mean")[:max_columns] if columns is None else [self[name] for name in columns]
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

    Curves are accumulated local effects: rows are moved only to nearby values, so that no unlikely combination of
    columns is predicted. Distributions before recalibration are used.

    Parameters
    ----------
    inputs : Inputs
        A fitted model and rows.
    columns : list of str, optional
        The columns to measure. Default: all, or the 40 columns that change predictions most when they are shuffled.
    bins : int
        The number of bins of a numeric column.
    max_rows : int or None
        The most rows to use. From more rows, some are drawn at random. None uses all rows.
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
        effect, error = compute_curves(grid, predict_steps(inputs, position, grid, now, rng), moments.weights, rng)
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
        is_day = column.name in inputs.day_columns
        results.append(
            Effect(column.name, column.kind, points, share, mean, spread, not grid.discrete, has_missing, is_day)
        )
    return Effects(results, len(inputs), inputs.total, inputs.library)


# The points of a column, and how rows lie among them ------------------------------------------------------------------


class EffectGrid(NamedTuple):
    """The values of a column at which its effect is measured, and how the rows lie among them.

    `points` are the values, and `source` has for each of them the position of a row with this value. `code` has for
    every row the index of the point that is its value (if `discrete`) or the upper end of its bin. It is -1 if the
    value is missing or not among the points. `missing` is True for rows with a missing value.
    """

    points: list[float | bool | str]
    source: np.ndarray
    code: np.ndarray
    missing: np.ndarray
    discrete: bool

    @property
    def shares(self) -> np.ndarray:
        """The share of rows at each point. The rows of a bin are divided equally between its two ends."""
        size, used = len(self.points), self.code[self.code >= 0]
        counts = np.bincount(used, minlength=size).astype(float)
        if not self.discrete:
            counts = (counts + np.append(counts[1:], 0.0)) / 2.0
        return counts / len(self.code)


def make_grid(columns: list[Column], position: int, bins: int) -> EffectGrid:
    """Make the grid of the column at `position`: all values or `bins` quantiles of a number, or levels of a category.

    Of many levels, the most frequent are chosen.
    """
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
    discrete = len(values) <= bins * 3 // 2 + 1  # so that hours and months are shown one by one
    edges = values
    if not discrete:  # distinct quantiles, each of which is the value of a row
        edges = np.unique(np.quantile(column.values[~missing], np.arange(bins + 1) / bins, method="inverted_cdf"))
    code = np.where(missing, -1, np.minimum(np.searchsorted(edges, column.values), len(edges) - 1))
    if not discrete:
        code = np.where(missing, -1, np.maximum(code, 1))
    source = np.array([int(np.argmax(column.values == edge)) for edge in edges], dtype=int)
    points = [bool(edge) for edge in edges] if column.kind == Kind.BOOLEAN else edges.tolist()
    return EffectGrid(points, source, code, missing, discrete)


def _order_levels(columns: list[Column], position: int) -> np.ndarray:
    """Return the codes of a category's most frequent levels, in the order in which effects are accumulated.

    Numbers are sorted by size, other levels so that neighbouring levels are similar.

    Effects are accumulated from each level to the next. If neighbours are similar in the other columns, both levels are
    plausible for their rows (Apley and Zhu, 2020). Levels are sorted by the first principal component of their rows'
    values in the other columns: mean ranks of numbers, and shares of levels.
    """
    column = columns[position]
    number = column.count_levels()
    # Sorted by the number of rows, then by name, so that the order of rows does not matter.
    ranked = sorted(np.flatnonzero(number).tolist(), key=lambda level: (-number[level], column.levels[level]))
    levels = np.array(ranked[:_MAX_LEVELS], dtype=int)
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
    """How predictions change when rows are moved from one grid point to the next, from which effects are accumulated.

    `delta` is the change of the prediction of `row` from the point before `step` to the point `step`. Shape: row and
    step (n,), delta (quantities, n, 1 + components). `missing_rows` have a missing value, and `gap` is the difference
    between their prediction and the prediction with the value of the grid point `at`.
    """

    row: np.ndarray
    step: np.ndarray
    delta: np.ndarray
    missing_rows: np.ndarray
    at: np.ndarray
    gap: np.ndarray


def predict_steps(inputs: Inputs, position: int, grid: EffectGrid, now: np.ndarray, rng: np.random.Generator) -> Steps:
    """Predict rows at both ends of the grid steps that they lie next to, and return the differences.

    `position` is that of the column, and `now` has the explained quantities of the unchanged rows.
    """
    last, row = len(grid.points) - 1, np.flatnonzero(grid.code >= 0)
    step = grid.code[row]
    if grid.discrete:  # each row is moved to the previous and to the next point
        step, row = np.concatenate([step, step + 1]), np.tile(row, 2)
        inside = (step >= 1) & (step <= last)
        row, step = row[inside], step[inside]
    # Rows with a missing value, repeated so that several values are drawn for each of them.
    absent = np.flatnonzero(grid.missing)
    if len(absent) and len(grid.points):
        absent = (
            absent
            if len(absent) <= _MAX_MISSING_PREDICTIONS
            else np.sort(rng.choice(absent, _MAX_MISSING_PREDICTIONS, replace=False))
        )
        absent = np.repeat(absent, max(1, min(10, _MAX_MISSING_PREDICTIONS // len(absent))))
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
    """Add up the differences of one quantity from step to step: the effect at every point, and of a missing value.

    Effects are centred to a mean of 0 over the rows. `delta` and `gap` are those of `steps`, for one quantity and for
    the mixture or one component. `weight` has the weights of the rows in one or more bootstrap samples. Shape: delta
    (n,), gap (m,), weight (samples, rows) -> (samples, points [+ 1]).
    """
    size = len(grid.points)
    in_step = (steps.step[:, None] == np.arange(1, size)).astype(float)
    share = weight[:, steps.row]
    total, rows = (share * delta) @ in_step, share @ in_step
    # If a bootstrap sample has no rows in a step, the mean difference of all rows is used.
    usual = (delta @ in_step) / np.maximum(in_step.sum(0), 1.0)
    mean = np.where(rows > 0, total / np.maximum(rows, 1e-300), usual)
    curve = np.concatenate([np.zeros((len(weight), min(size, 1))), mean.cumsum(1)], 1)
    used = grid.code >= 0
    row_effects = curve[:, grid.code[used]]
    if not grid.discrete:
        row_effects = (row_effects + curve[:, grid.code[used] - 1]) / 2.0
    inside = weight[:, used].sum(1)
    curve = curve - _mean(row_effects, weight[:, used])[:, None]
    if not len(steps.missing_rows):
        return np.append(curve, np.zeros((len(weight), 1)), 1) if grid.missing.any() else curve
    missing = _mean(gap + curve[:, steps.at], weight[:, steps.missing_rows])
    outside = weight[:, grid.missing].sum(1)
    shift = outside * missing / np.maximum(outside + inside, 1e-300)
    return np.concatenate([curve, missing[:, None]], 1) - shift[:, None]


def _mean(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Compute weighted means over the last axis; if all weights are 0, unweighted means."""
    if not values.shape[-1]:
        return np.zeros(len(weight))
    total = weight.sum(1)
    return np.where(total > 0, (values * weight).sum(1) / np.maximum(total, 1e-300), values.mean(1))


def compute_curves(
    grid: EffectGrid, steps: Steps, weights: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the effects at the points of a grid and their standard errors. Shape: (quantities, points) each.

    `weights` are those of the mixture's components. Two errors are combined: the variation of the effect over bootstrap
    samples of the rows, and its variation over the components of the mixture, such as single networks.
    """
    n = len(grid.code)
    once, drawn = np.ones((1, n)), rng.multinomial(n, np.full(n, 1.0 / n), size=_BOOTSTRAP_SAMPLES).astype(float)
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
