"""Effects of columns on predictions, which `effects` returns: curves, tables and figures."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ddpn.analysis.explanations.results import ByColumn, Table
from ddpn.runtime.display import value_text
from ddpn.tables.columns import Kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: The half-width of a 90% band in standard errors.
_Z = 1.6449
#: The most values of a numeric column that figures show as bars instead of a line, and the most bars of a figure.
_MAX_BAR_VALUES, _MAX_BARS = 6, 12


@dataclass(frozen=True, eq=False)
class Curve:
    """Effect of a column on one quantity, such as the predicted mean, at each point of an `Effect`.

    Attributes
    ----------
    quantity : str
        "mean", "variance / mean" (1 for a Poisson) or, for a Gaussian likelihood, "standard deviation".
    effect : array, shape (points,)
        The accumulated local effect, with a mean of 0 over the rows. If `log` is True, it is the effect on the natural
        logarithm of the quantity: 0.69 doubles the quantity.
    error : array, shape (points,)
        The standard error of the effect. It combines a bootstrap over the rows with the disagreement of the mixture's
        components.
    base : float
        The mean of the quantity (or of its logarithm, if `log` is True) over the rows.
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
        """The quantity at each point, in its own unit: `base` plus `effect`, exponentiated if `log` is True."""
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
        """The value of the quantity where the effect is 0: `base`, exponentiated if `log` is True."""
        return float(self._at(np.zeros(1))[0])


@dataclass(frozen=True, eq=False)
class Effect:
    """Effect of one column on the mean and on the spread of the prediction.

    Attributes
    ----------
    name : str
        The column.
    kind : str
        The type of the column: "number", "boolean", "category" or "category of numbers".
    points : list
        The values at which the effect is measured. For a numeric column, they are quantiles, or all values if there are
        few. For a category, they are its levels or, if there are more than 20, the 20 most frequent ones. The levels
        are sorted by their effect on the mean or, if all are numbers, in ascending order. If values are missing,
        "missing" comes last.
    share : array, shape (points,)
        The number of rows that have this value, divided by the number of all rows. If the points are quantiles, a row
        between two points counts half for each. The shares sum to less than 1 if some levels are not among the points.
    mean, spread : Curve
        The effects on the mean and on the spread.
    continuous : bool
        True if the points are quantiles of a number, so that other values lie between them.
    has_missing : bool
        True if the last point stands for missing values.
    is_day : bool
        True if the points are days since 1970, which are shown as dates.
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
        """Return the points as strings. If the column contains days since 1970, these are dates."""
        return [value_text(point, self.is_day) for point in self.points]

    def strength(self, of: str = "mean") -> float:
        """Return how strongly the column changes predictions: the standard deviation of the effect over the rows.

        It has the unit of `Curve.effect`, so 0.1 is about 10% if effects are on the log scale.

        Parameters
        ----------
        of : {"mean", "spread"}
            The quantity on which the effect is measured.
        """
        return float(np.sqrt(self.share @ getattr(self, of).effect ** 2))

    @property
    def is_line(self) -> bool:
        """True if figures show the effect as a line (a number with many values), False if they show bars."""
        return self.kind == Kind.NUMBER and len(self.points) - self.has_missing > _MAX_BAR_VALUES

    @property
    def frequent(self) -> list[int]:
        """The indices of the points that figures show as bars, in ascending order.

        They are the points with the most rows, at most 12.
        """
        return np.sort(np.argsort(-self.share, kind="stable")[:_MAX_BARS]).tolist()


@dataclass(frozen=True, eq=False, repr=False)
class Effects(ByColumn[Effect]):
    """Effects of several columns: a sequence of `Effect` that can also be indexed by column name.

    Attributes
    ----------
    results : list of Effect
        The effects, in the order of the columns.
    rows : int
        The number of rows that were used.
    total : int
        The number of rows from which they were drawn.
    library : {"polars", "pandas"}
        The library of the data frame that `to_frame` returns.
    """

    results: list[Effect]
    rows: int
    total: int
    library: str = "polars"
    measures: ClassVar[tuple[str, ...]] = ("mean", "spread")

    def table(self) -> Table:
        """Return a table in long format, with one row per column and point, as a dictionary of lists.

        The entries are

        - "column": the name of the column
        - "value": the point, a value of the column at which the effect is measured
        - "share": the share of the rows that belong to this point (`Effect.share`)
        - "mean": the predicted mean at this point, in its own unit (`Curve.level`)
        - "mean_low" and "mean_high": the ends of the 90% band of "mean"
        - "mean_effect": the effect on the mean (`Curve.effect`), on the log scale for all likelihoods but the Gaussian
        - "spread", "spread_low", "spread_high" and "spread_effect": the same for the spread.
        """
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

    def plot(
        self, columns: Iterable[str] | None = None, max_columns: int = 6, figure: "Figure | None" = None
    ) -> "Figure":
        """Draw the effects on the mean and on the spread, side by side.

        Parameters
        ----------
        columns : list of str, optional
            The columns to draw. Default: the columns with the strongest effects on the mean.
        max_columns : int
            The largest number of columns to draw if `columns` is None.
        figure : matplotlib Figure, optional
            The figure to draw into, which gets the size of the panels. Default: a new figure of pyplot, which
            `plt.show()` shows.

        Returns
        -------
        matplotlib Figure
        """
        from ddpn.analysis.plots.explanations import draw_effects

        chosen = self.by("mean")[:max_columns] if columns is None else [self[name] for name in columns]
        return draw_effects(chosen, figure)
