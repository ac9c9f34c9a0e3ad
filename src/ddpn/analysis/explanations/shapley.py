"""Contributions of the columns to the predictions of single rows: sampled Shapley values.

A background row is changed into the explained row, one column at a time, in random orders.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddpn.analysis.explanations.column_effects import QUANTITIES
from ddpn.analysis.explanations.inputs import MISSING, Inputs
from ddpn.analysis.explanations.results import ExplanationResult, Table
from ddpn.runtime.display import value_text
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_choice, check_integer
from ddpn.tables.columns import Column
from ddpn.tables.row_draw import draw_rows, format_drawn_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The default limit of predictions, the most background rows among which starts are chosen, and the fewest and the most
#: starts per explained row.
_MAX_PREDICTIONS, _MAX_BACKGROUND_ROWS, _MIN_STARTS, _MAX_STARTS = 20_000, 500, 4, 64


@dataclass(frozen=True, eq=False, repr=False)
class Contributions(ExplanationResult):
    """What each column adds to the prediction of each row: `base` plus the sum of a row's `values` is its `prediction`.

    Attributes
    ----------
    columns : list of str
        The names of the columns, and "exposure" and "upper" if the model has them.
    values : array, shape (rows, columns)
        The contributions. With `log`, they are contributions to the natural logarithm: 0.69 doubles the prediction.
    error : array, shape (rows, columns)
        The standard errors of the contributions, due to sampling.
    base : float
        The mean prediction of the background rows (with `log`, of their logarithms).
    prediction : array, shape (rows,)
        The prediction of every row (with `log`, its logarithm).
    cells : list of list
        The values of the columns in each row.
    quantity : str
        "mean", "variance / mean" or, for a Gaussian likelihood, "standard deviation".
    log : bool
        True if contributions are on the log scale, as for all likelihoods but the Gaussian.
    starts, background_rows, background_total : int
        `base` is a mean over `starts` rows. They were chosen by their predictions from `background_rows` rows, which
        were drawn from `background_total` rows.
    library : {"polars", "pandas"}
        What `to_frame` returns.
    """

    columns: list[str]
    values: np.ndarray
    error: np.ndarray
    base: float
    prediction: np.ndarray
    cells: list[list[object]]
    quantity: str
    log: bool
    starts: int
    background_rows: int
    background_total: int
    library: str = "polars"

    def __len__(self) -> int:
        return len(self.prediction)

    @property
    def drawn_rows_note(self) -> str:
        """A sentence that says how the rows to compare with were chosen; empty if all background rows were used."""
        if self.starts == self.background_total:
            return ""
        drawn = format_drawn_rows(self.background_rows, self.background_total)
        return f"Rows are compared with {self.starts:,} rows, evenly spaced by predicted mean among {drawn}."

    def top(self, row: int = 0, max_columns: int = 10) -> list[tuple[str, object, float]]:
        """Return the largest contributions to one row, as (column, value, contribution).

        Parameters
        ----------
        row : int
            The position of the row.
        max_columns : int
            The most contributions to return.
        """
        order = np.argsort(-np.abs(self.values[row]), kind="stable")[:max_columns]
        return [(self.columns[j], self.cells[row][j], float(self.values[row, j])) for j in order.tolist()]

    def table(self) -> Table:
        """Return a long table by columns, with one entry per row and column; ready for a data frame or JSON."""
        rows, width = self.values.shape
        return {
            "row": np.repeat(np.arange(rows), width).tolist(),
            "column": self.columns * rows,
            "value": [cell for row in self.cells for cell in row],
            "contribution": self.values.ravel().tolist(),
            "error": self.error.ravel().tolist(),
        }

    def plot(self, row: int = 0, max_columns: int = 10) -> "Figure":
        """Draw the contributions to one row.

        Parameters
        ----------
        row : int
            The position of the row.
        max_columns : int
            The most columns to show. The contributions of the other columns are added up.

        Returns
        -------
        matplotlib Figure
        """
        from ddpn.analysis.plots.explanations import draw_contributions

        return draw_contributions(self, row, max_columns)


def contributions(
    inputs: Inputs,
    background: Inputs | None = None,
    of: str = "mean",
    max_predictions: int = _MAX_PREDICTIONS,
    seed: int = 0,
) -> Contributions:
    """Explain the predictions of single rows: what each column adds to the (log) mean or to the spread.

    The contributions are sampled Shapley values. Background rows are changed into the explained row, one column at a
    time in random orders. The contribution of a column is the mean change of the prediction when it changes.
    Contributions always add up exactly; `error` says how much they vary with the sampling.

    Parameters
    ----------
    inputs : Inputs
        A fitted model and the rows to explain.
    background : Inputs, optional
        Rows to compare with, such as the training set. Default: the explained rows, which must then be
        several.
    of : {"mean", "spread"}
        The quantity to explain. The spread is variance / mean or, for a Gaussian likelihood, the standard deviation.
    max_predictions : int
        The most predictions. With more of them, errors are smaller.
    seed : int
        Seed of the sampling.

    Examples
    --------
    >>> from ddpn import CountGLM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> model = CountGLM(likelihood="poisson").fit(X, rng.poisson(np.exp(1 + 0.5 * X[:, 0])))
    >>> result = contributions(Inputs(model, [[2.0, 0.0]]), Inputs(model, X))
    >>> bool(abs(np.exp(result.base + result.values[0].sum()) - model.predict([[2.0, 0.0]])[0]) < 1e-9)
    True
    """
    check_choice("of", of, ("mean", "spread"))
    check_integer("max_predictions", max_predictions, 1)
    rows, total = np.arange(len(inputs)), (inputs if background is None else background).total
    if background is not None:
        background = background.draw(_MAX_BACKGROUND_ROWS, seed)
    others = rows
    if background is not None:
        others = np.arange(len(inputs), len(inputs) + len(background))
        inputs = inputs.join(background)
    elif len(inputs) == 1:
        raise InputError("background is needed to explain a single row. Pass rows to compare it with.")
    quantity, rng = int(of == "spread"), np.random.default_rng(seed)
    per_start = len(rows) * max(1, 2 * (len(inputs.columns) - 1))
    starts = min(max_predictions // per_start, _MAX_STARTS, len(others))
    if starts < min(_MIN_STARTS, len(others)):
        max_rows = max_predictions // (per_start // len(rows) * _MIN_STARTS)
        raise InputError(
            f"X must have at most {max_rows:,} rows for max_predictions={max_predictions:,} and "
            f"{len(inputs.columns):,} columns, got {len(rows):,}. Explain fewer rows, or raise max_predictions."
        )
    if background is None:
        others = draw_rows(len(inputs), _MAX_BACKGROUND_ROWS, seed=seed).positions
    # Starts are evenly spaced by the rank of their prediction, so that their mean is close to that of all background
    # rows.
    now = inputs.moments(others, variance=quantity == 1).quantities[quantity, :, 0]
    ranks = np.floor((np.arange(starts) + 0.5) * len(others) / starts).astype(int)
    start = others[np.argsort(now, kind="stable")[ranks]]
    values, error = shapley_values(inputs, rows, start, quantity, rng)
    both = np.concatenate([rows, start])
    moments = inputs.moments(both, variance=quantity == 1, recalibrated=True)
    now = moments.quantities[quantity, :, 0]
    base = float(now[len(rows) :].mean())
    by_row = zip(*(_read_cells(column, inputs.day_columns) for column in inputs.rows(rows).columns), strict=True)
    return Contributions(
        inputs.names, values, error, base, now[: len(rows)], [list(row) for row in by_row],
        QUANTITIES[moments.log][quantity], moments.log, starts, len(others), total, inputs.library,
    )  # fmt: skip


def _read_cells(column: Column, day_columns: Collection[str]) -> list[float | bool | str]:
    """Return the cells of a column, with days since 1970 (if it is one of `day_columns`) as dates."""
    cells: list[float | bool | str] = column.cells(MISSING).tolist()
    return [value_text(cell, is_day=True) for cell in cells] if column.name in day_columns else cells


# Sampled Shapley values -----------------------------------------------------------------------------------------------


def shapley_values(
    inputs: Inputs, rows: np.ndarray, background: np.ndarray, quantity: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the contributions of every column to the prediction of each row, and their standard errors.

    `rows` and `background` are positions of rows in `inputs`, and `quantity` is the position in `QUANTITIES` of what is
    explained. Shape of both results: (rows, columns). Every background row is the start of two antithetic walks, in a
    random order of the columns and in the reverse order, whose mean varies less. The contributions of a row add up to
    its prediction minus the mean prediction of the background.
    """
    width, pairs = len(inputs.columns), len(background)
    starts, values, errors = _predict_quantity(inputs, background, {}, quantity), [], []
    for row, end in zip(rows, _predict_quantity(inputs, rows, {}, quantity), strict=True):
        forth = np.stack([rng.permutation(width) for _ in range(pairs)])
        order = np.stack([forth, forth[:, ::-1]], 1).reshape(-1, width)
        changes = _measure_walks(
            inputs, np.repeat(background, 2), int(row), order, (np.repeat(starts, 2), end), quantity
        )
        pair_means = changes.reshape(pairs, 2, width).mean(1)
        values.append(pair_means.mean(0))
        errors.append(pair_means.std(0, ddof=1) / np.sqrt(pairs) if pairs > 1 else np.full(width, np.nan))
    return np.stack(values), np.stack(errors)


def _measure_walks(
    inputs: Inputs, start: np.ndarray, end: int, order: np.ndarray, predictions: tuple[np.ndarray, float], quantity: int
) -> np.ndarray:
    """Measure how the prediction changes with each column while rows `start` are turned into the row `end`.

    A walk changes the columns of one row one by one. Shape: (walks, columns). `order` (walks, columns) has the order in
    which columns change, and `predictions` the predictions at both ends of each walk.
    """
    both = ((column.values[start], column.values[end]) for column in inputs.columns)
    differs = np.stack([(one != other) & ((one == one) | (other == other)) for one, other in both], 1)
    steps = np.take_along_axis(differs, order, 1)  # by step, not by column
    # Steps between equal values change nothing. The last other step reaches the explained row, whose prediction is
    # known.
    left = steps[:, ::-1].cumsum(1)[:, ::-1]
    walk, step = np.nonzero(steps & (left > 1))
    path = np.where((left == 0) | (steps & (left == 1)), predictions[1], np.nan)
    if len(walk):
        done = np.argsort(order, 1)[walk] <= step[:, None]
        source = np.where(done, end, start[walk, None])
        path[walk, step] = _predict_quantity(inputs, source[:, 0], dict(enumerate(source.T)), quantity)
    path = np.concatenate([predictions[0][:, None], path], 1)
    # If start and end are equal, the prediction does not change.
    path[left[:, 0] == 0] = predictions[0][left[:, 0] == 0, None]
    # A step that changes nothing has the prediction of the step before.
    last_change = np.where(np.isnan(path), 0, np.arange(path.shape[1]))
    changes = np.diff(np.take_along_axis(path, np.maximum.accumulate(last_change, 1), 1), axis=1)
    by_column = np.zeros_like(changes)
    np.put_along_axis(by_column, order, changes, 1)
    return by_column


def _predict_quantity(inputs: Inputs, rows: np.ndarray, sources: dict[int, np.ndarray], quantity: int) -> np.ndarray:
    moments = inputs.moments(rows, sources, variance=quantity == 1, recalibrated=True)
    return moments.quantities[quantity, :, 0]
