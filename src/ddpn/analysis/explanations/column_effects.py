"""Effects of every column on the mean and on the spread of the predicted distributions."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ddpn.analysis.explanations.curves import curves, measure
from ddpn.analysis.explanations.grid import grid_of
from ddpn.analysis.explanations.inputs import Inputs
from ddpn.analysis.explanations.results import ByColumn
from ddpn.runtime.display import html_table
from ddpn.runtime.validation import check_integer
from ddpn.tables.kinds import number_of

#: Half the width of a 90% band in standard errors.
_Z = 1.6449
#: What a missing value is called among the points.
MISSING = "missing"
#: Values of a number that figures show as bars, and bars that they have at most.
_BARS, _LEVELS = 6, 12
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
        "number", "flag" or "category".
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
    kind: str
    points: list[Any]
    share: np.ndarray
    mean: Curve
    spread: Curve
    continuous: bool
    has_missing: bool

    def strength(self, of: str = "mean") -> float:
        """The standard deviation of the effect over the rows.

        Parameters
        ----------
        of : {"mean", "spread"}
            The effect on what.
        """
        return float(np.sqrt(self.share @ getattr(self, of).effect ** 2))

    @property
    def is_line(self) -> bool:
        """Whether a figure shows a line: that of a number with more than a few values; others have bars."""
        return self.kind == "number" and len(self.points) - self.has_missing > _BARS

    @property
    def frequent(self) -> list[int]:
        """The positions of the most frequent points, in their order, as many as a figure has bars for."""
        return np.sort(np.argsort(-self.share, kind="stable")[:_LEVELS]).tolist()


def scale_of(curves: list[Curve]) -> tuple[float, float]:
    """The ends of an axis that several curves share: all levels with some room, beyond which bands may reach.

    From 0 where that costs at most a third of the height, and with 1, the Poisson, where it is near.
    """
    levels = np.concatenate([curve.level for curve in curves])
    bands = np.concatenate([part for curve in curves for part in (curve.low, curve.high)])
    low, high = float(levels.min()), float(levels.max())
    room = max(0.6 * (high - low), 0.05 * abs(high), 1e-9)
    low, high = max(low - room, float(bands.min())), min(high + room, float(bands.max()))
    if 0.0 <= low < (high - low) / 2.0:
        low = 0.0
    if curves[0].quantity == "variance / mean" and low - (high - low) < 1.0 < high + (high - low):
        low, high = min(low, 1.0), max(high, 1.0)
    margin = max(0.04 * (high - low), 1e-6 * max(abs(high), 1e-6))
    return low - margin if low else low, high + margin


@dataclass(frozen=True, eq=False, repr=False)
class Effects(ByColumn[Effect]):
    """The effects of several columns; a sequence of `Effect` that also takes names.

    Attributes
    ----------
    each : list of Effect
        In the order of the columns.
    rows : int
        The number of rows that they were measured on.
    """

    each: list[Effect]
    rows: int
    measures: ClassVar[tuple[str, ...]] = ("mean", "spread")

    def table(self) -> dict[str, list[Any]]:
        """A long table by columns, one row per point, ready for a data frame or for JSON."""
        found: dict[str, list[Any]] = {"column": [], "value": [], "share": []}
        for one in self.each:
            found["column"] += [one.name] * len(one.points)
            found["value"] += one.points
            found["share"] += one.share.tolist()
            for name, curve in (("mean", one.mean), ("spread", one.spread)):
                for key, values in (("", curve.level), ("_low", curve.low), ("_high", curve.high)):
                    found.setdefault(f"{name}{key}", []).extend(values.tolist())
                found.setdefault(f"{name}_effect", []).extend(curve.effect.tolist())
        return found

    def _repr_html_(self) -> str:
        """The range of each column's effects, the strongest first."""
        rows = []
        for one in self.by("mean"):
            mean, spread = one.mean.level, one.spread.level
            rows.append((one.name, *map(float, (mean.min(), mean.max(), spread.min(), spread.max()))))
        quantity = f"spread ({self.each[0].spread.quantity})" if self.each else "spread"
        legend = f"The smallest and the largest predicted mean, and {quantity}, along each column."
        table = html_table(("column", "mean from", "to", "spread from", "to"), rows)
        return f"{table}<p>{legend}</p>"

    def plot(self, columns: Iterable[str] | None = None, most: int = 6) -> Any:
        """Draw the effects on the mean and on the spread, side by side; needs `ddpn[plot]`.

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
        from ddpn.analysis.plots import effects_figure

        chosen = self.by("mean")[:most] if columns is None else [self[name] for name in columns]
        return effects_figure(chosen)


def effects(
    inputs: Inputs,
    columns: str | Iterable[str | int] | None = None,
    bins: int = 20,
    max_rows: int = 500,
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
    max_rows : int
        A random draw of so many rows is used.
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
    >>> found = effects(Inputs(model, X))
    >>> found.by("mean")[0].name, round(found["x0"].spread.typical, 3)
    ('x0', 1.0)
    """
    check_integer("bins", bins, 1)
    check_integer("max_rows", max_rows, 1)
    rng = np.random.default_rng(seed)
    inputs = inputs.rows(inputs.draw(max_rows, rng))
    positions = inputs.chosen(columns, rng)
    moments = inputs.moments(np.arange(len(inputs)))
    now, found = moments.quantities(inputs.log), []
    for place, position in enumerate(positions, 1):
        if progress is not None:
            progress(f"Effects of columns: {place} of {len(positions)}")
        found.append(_effect(inputs, position, bins, now, moments.weights, rng))
    return Effects(found, len(inputs))


def _effect(
    inputs: Inputs, position: int, bins: int, now: np.ndarray, weights: np.ndarray, rng: np.random.Generator
) -> Effect:
    column, grid = inputs.columns[position], grid_of(inputs.columns, position, bins)
    effect, by_rows, by_components = curves(grid, measure(inputs, position, grid, now, rng), weights, rng)
    points, share = list(grid.points), grid.shares
    if column.kind == "category" and None in map(number_of, points):
        order = np.argsort(effect[0, : len(points)], kind="stable")
        points, share = [points[i] for i in order], share[order]
        last = np.arange(len(points), effect.shape[1])
        effect, by_rows, by_components = (e[:, [*order, *last]] for e in (effect, by_rows, by_components))
    if grid.missing.any():
        points, share = [*points, MISSING], np.append(share, grid.missing.mean())
    error = np.hypot(by_rows, by_components)
    mean, spread = (
        Curve(name, effect[i], error[i], float(now[i, :, 0].mean()), inputs.log)
        for i, name in enumerate(QUANTITIES[inputs.log])
    )
    return Effect(column.name, column.kind, points, share, mean, spread, not grid.discrete, bool(grid.missing.any()))
