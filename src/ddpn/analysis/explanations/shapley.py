"""Contributions of the columns to the predictions of single rows: sampled Shapley values.

A background row is turned into the explained row, one column at a time, in random orders. The contribution of a column
is the average change of the prediction when its value is exchanged.
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
from ddpn.storage.contents import JsonObject
from ddpn.tables.columns import Column
from ddpn.tables.row_draw import draw_rows, draw_to_json, format_drawn_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The default limit of predictions, the most background rows among which starts are chosen, and the fewest and the most
#: starts per explained row.
_MAX_PREDICTIONS, _MAX_BACKGROUND_ROWS, _MIN_STARTS, _MAX_STARTS = 20_000, 500, 4, 64


@dataclass(frozen=True, eq=False, repr=False)
class Contributions(ExplanationResult):
    """Contributions of the columns to the prediction of each row: `base` plus the sum of `values` is `prediction`.

    Attributes
    ----------
    columns : list of str
        The names of the columns, and "exposure" and "upper" if the model has them.
    values : array, shape (rows, columns)
        The contributions. If `log` is True, they are contributions to the natural logarithm of the prediction: 0.69
        doubles it.
    error : array, shape (rows, columns)
        The standard errors of the contributions, due to sampling. NaN if `starts` is 1.
    base : float
        The mean prediction of the `starts` background rows from which the explanation starts (if `log` is True, the
        mean of the logarithms).
    prediction : array, shape (rows,)
        The prediction of every row (if `log` is True, its logarithm).
    cells : list of list
        The values of the columns in each row. A missing value is "missing", and days since 1970 are dates.
    quantity : str
        "mean", "variance / mean" or, for a Gaussian likelihood, "standard deviation".
    log : bool
        True if contributions are on the log scale, as for all likelihoods but the Gaussian.
    starts : int
        The number of rows over which `base` is averaged. They are chosen from the background rows, evenly spaced by
        predicted value.
    background_rows : int
        The number of background rows from which the start rows are chosen.
    background_total : int
        The number of rows from which the background rows were drawn.
    labels : list of int
        The numbers of the rows in tables. `contributions` numbers them from 0.
    library : {"polars", "pandas"}
        The library of the data frame that `to_frame` returns.
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
    labels: list[int]
    library: str = "polars"

    def __len__(self) -> int:
        return len(self.prediction)

    @property
    def drawn_rows_note(self) -> str:
        """A sentence that says which background rows the explained rows are compared with.

        `starts` is their number. The sentence is empty if all background rows were used.
        """
        if self.starts == self.background_total:
            return ""
        drawn = format_drawn_rows(self.background_rows, self.background_total)
        return f"Rows are compared with {self.starts:,} rows, evenly spaced by predicted mean among {drawn}."

    def top(self, row: int = 0, max_columns: int = 10) -> list[tuple[str, object, float]]:
        """Return the contributions to one row that are largest in absolute value, as (column, value, contribution).

        Parameters
        ----------
        row : int
            The position of the row.
        max_columns : int
            The largest number of contributions to return.
        """
        order = np.argsort(-np.abs(self.values[row]), kind="stable")[:max_columns]
        return [(self.columns[j], self.cells[row][j], float(self.values[row, j])) for j in order.tolist()]

    def table(self) -> Table:
        """Return a table in long format, with one row per explained row and column, as a dictionary of lists.

        Its entries are "row", "column", "value" (of the column in this row), "contribution" and "error".
        """
        return {
            "row": [label for label in self.labels for _ in self.columns],
            "column": self.columns * len(self),
            "value": [cell for row in self.cells for cell in row],
            "contribution": self.values.ravel().tolist(),
            "error": self.error.ravel().tolist(),
        }

    def to_dict(self) -> JsonObject:
        """Return the `table` with the base and the prediction of each row as a dictionary for JSON."""
        draw = draw_to_json(self.background_rows, self.background_total)
        return {
            "quantity": self.quantity,
            "log": self.log,
            "base": self.base,
            "draw": {"background": {**draw, "compared_with": self.starts}},
            "prediction": dict(zip(map(str, self.labels), self.prediction.tolist(), strict=True)),
            "table": self.table(),
        }

    def plot(self, row: int = 0, max_columns: int = 10, figure: "Figure | None" = None) -> "Figure":
        """Draw the contributions to one row.

        Parameters
        ----------
        row : int
            The position of the row.
        max_columns : int
            The largest number of columns to show. The contributions of the other columns are added up.
        figure : matplotlib Figure, optional
            The figure to draw into, which gets the size of the panels. Default: a new figure of pyplot, which
            `plt.show()` shows.

        Returns
        -------
        matplotlib Figure
        """
        from ddpn.analysis.plots.explanations import draw_contributions

        return draw_contributions(self, row, max_columns, figure)


def contributions(
    inputs: Inputs,
    background: Inputs | None = None,
    of: str = "mean",
    max_predictions: int = _MAX_PREDICTIONS,
    seed: int = 0,
) -> Contributions:
    """Explain the predictions of single rows: what each column adds to the (log) mean or to the spread.

    The contributions are sampled Shapley values. Background rows are turned into the explained row, one column at a
    time in random orders. The contribution of a column is the average change of the prediction when its value is
    exchanged. The contributions to one row always add up to its prediction minus the mean prediction of the background
    rows. `error` says how much single contributions vary with the sampling.

    Parameters
    ----------
    inputs : Inputs
        A fitted model and the rows to explain.
    background : Inputs, optional
        Rows to compare with, such as the training set. Default: the rows to explain, of which there must then be
        several.
    of : {"mean", "spread"}
        The quantity to explain. The spread is variance / mean or, for a Gaussian likelihood, the standard deviation.
    max_predictions : int
        The largest number of predictions. With more of them, errors are smaller.
    seed : int
        Seed of the sampling.

    Returns
    -------
    Contributions
        The contribution of each column to the prediction of each row, with standard errors.

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
    now = inputs.moments(others).quantities[quantity, :, 0]
    ranks = np.floor((np.arange(starts) + 0.5) * len(others) / starts).astype(int)
    start = others[np.argsort(now, kind="stable")[ranks]]
    values, error = shapley_values(inputs, rows, start, quantity, rng)
    both = np.concatenate([rows, start])
    moments = inputs.moments(both, recalibrated=True)
    now = moments.quantities[quantity, :, 0]
    base = float(now[len(rows) :].mean())
    by_row = zip(*(_read_cells(column, inputs.day_columns) for column in inputs.rows(rows).columns), strict=True)
    return Contributions(
        inputs.names, values, error, base, now[: len(rows)], [list(row) for row in by_row],
        QUANTITIES[moments.log][quantity], moments.log, starts, len(others), total, rows.tolist(), inputs.library,
    )  # fmt: skip


def _read_cells(column: Column, day_columns: Collection[str]) -> list[float | bool | str]:
    """Return the values of a column as a list. If it is one of `day_columns`, days become dates.

    Missing values become "missing".
    """
    cells: list[float | bool | str] = column.cells(MISSING).tolist()
    return [value_text(cell, is_day=True) for cell in cells] if column.name in day_columns else cells


# Sampled Shapley values -----------------------------------------------------------------------------------------------


def shapley_values(
    inputs: Inputs, rows: np.ndarray, background: np.ndarray, quantity: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the contribution of every column to the prediction of each row, and its standard error.

    `rows` and `background` are positions of rows in `inputs`. `quantity` is 0 for the mean and 1 for the spread. `rng`
    draws the orders of the columns.

    Each background row is turned into the explained row twice, one column at a time: in a random order of the columns,
    and in the reverse order. Averaging such antithetic pairs reduces the variance. The contributions to a row add up to
    its prediction minus the mean prediction of the background rows. Shape of both results: (rows, columns). With a
    single background row, standard errors are NaN.
    """
    width, pairs = len(inputs.columns), len(background)
    starts, values, errors = _predict_quantity(inputs, background, {}, quantity), [], []
    for row, end in zip(rows, _predict_quantity(inputs, rows, {}, quantity), strict=True):
        forth = np.stack([rng.permutation(width) for _ in range(pairs)])
        order = np.stack([forth, forth[:, ::-1]], 1).reshape(-1, width)
        changes = _measure_column_changes(
            inputs, np.repeat(background, 2), int(row), order, (np.repeat(starts, 2), end), quantity
        )
        pair_means = changes.reshape(pairs, 2, width).mean(1)
        values.append(pair_means.mean(0))
        errors.append(pair_means.std(0, ddof=1) / np.sqrt(pairs) if pairs > 1 else np.full(width, np.nan))
    return np.stack(values), np.stack(errors)


def _measure_column_changes(
    inputs: Inputs,
    start_rows: np.ndarray,
    end_row: int,
    column_order: np.ndarray,
    predictions: tuple[np.ndarray, float],
    quantity: int,
) -> np.ndarray:
    """Turn start rows into an end row, one column at a time, and return the change of the prediction at each column.

    Parameters
    ----------
    inputs : Inputs
        The model and the rows.
    start_rows : array of int, shape (starts,)
        The positions of the start rows in `inputs`.
    end_row : int
        The position of the end row in `inputs`.
    column_order : array of int, shape (starts, columns)
        The positions of the columns in the order in which each start row takes the values of the end row.
    predictions : tuple of array and float
        The predictions of the start rows, shape (starts,), and of the end row.
    quantity : int
        The quantity that is predicted: 0 for the mean, 1 for the spread.

    Returns
    -------
    array, shape (starts, columns)
        The prediction after the column was exchanged minus the prediction before.
    """
    both = ((column.values[start_rows], column.values[end_row]) for column in inputs.columns)
    differs = np.stack([(one != other) & ((one == one) | (other == other)) for one, other in both], 1)
    steps = np.take_along_axis(differs, column_order, 1)  # by step, not by column
    # Steps between equal values change nothing. The last other step reaches the explained row, whose prediction is
    # known.
    left = steps[:, ::-1].cumsum(1)[:, ::-1]
    start, step = np.nonzero(steps & (left > 1))
    path = np.where((left == 0) | (steps & (left == 1)), predictions[1], np.nan)
    if len(start):
        done = np.argsort(column_order, 1)[start] <= step[:, None]
        source = np.where(done, end_row, start_rows[start, None])
        path[start, step] = _predict_quantity(inputs, source[:, 0], dict(enumerate(source.T)), quantity)
    path = np.concatenate([predictions[0][:, None], path], 1)
    # If start and end are equal, the prediction does not change.
    path[left[:, 0] == 0] = predictions[0][left[:, 0] == 0, None]
    # A step that changes nothing has the prediction of the step before.
    last_change = np.where(np.isnan(path), 0, np.arange(path.shape[1]))
    changes = np.diff(np.take_along_axis(path, np.maximum.accumulate(last_change, 1), 1), axis=1)
    by_column = np.zeros_like(changes)
    np.put_along_axis(by_column, column_order, changes, 1)
    return by_column


def _predict_quantity(inputs: Inputs, rows: np.ndarray, sources: dict[int, np.ndarray], quantity: int) -> np.ndarray:
    moments = inputs.moments(rows, sources, recalibrated=True)
    return moments.quantities[quantity, :, 0]
