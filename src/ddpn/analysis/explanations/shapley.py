"""Contributions of the columns to the prediction of single rows: Shapley values, by sampling.

A row is reached from a background row, one column at a time, in random orders.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddpn.analysis.explanations.column_effects import QUANTITIES
from ddpn.analysis.explanations.inputs import MISSING, Inputs
from ddpn.analysis.explanations.results import ExplanationResult, Table
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_choice, check_integer
from ddpn.tables.row_draw import draw_rows, format_drawn_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Predictions at most, background rows among which starts are chosen, and starts per row.
_MAX_PREDICTIONS, _MAX_BACKGROUND_ROWS, _MIN_STARTS, _MAX_STARTS = 20_000, 500, 4, 64


@dataclass(frozen=True, eq=False, repr=False)
class Contributions(ExplanationResult):
    """What each column adds to the prediction of each row: `base` + the sum of a row's `values` = `prediction`.

    Attributes
    ----------
    columns : list of str
        The columns, and "exposure" and "upper" where the model has them.
    values : array, shape (rows, columns)
        The contributions. With `log` they are to the natural logarithm: 0.69 doubles the prediction.
    error : array, shape (rows, columns)
        Their standard errors, from the sampling.
    base : float
        The mean of the background's predictions (with `log`, of their logarithms).
    prediction : array, shape (rows,)
        The prediction of every row (with `log`, its logarithm).
    cells : list of list
        The values of the columns, per row.
    quantity : str
        "mean", "variance / mean" or, for a Gaussian likelihood, "standard deviation".
    log : bool
        Whether contributions are on the log scale, as they are for all likelihoods but the Gaussian.
    starts, background_rows, background_total : int
        The number of rows that `base` is the mean of, of the background rows that they were chosen from by their
        predictions, and of the rows that these were drawn from.
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

    def __len__(self) -> int:
        return len(self.prediction)

    @property
    def draws(self) -> str:
        """The sentence on the rows that explained rows are compared with; empty if these are all rows."""
        if self.starts == self.background_total:
            return ""
        drawn = format_drawn_rows(self.background_rows, self.background_total)
        return f"Rows are compared with {self.starts:,} rows, at equal distances in the order of the means of {drawn}."

    def top(self, row: int = 0, most: int = 10) -> list[tuple[str, object, float]]:
        """Return the largest contributions to one row: column, its value, and the contribution.

        Parameters
        ----------
        row : int
            The position of the row.
        most : int
            How many.
        """
        order = np.argsort(-np.abs(self.values[row]), kind="stable")[:most]
        return [(self.columns[j], self.cells[row][j], float(self.values[row, j])) for j in order.tolist()]

    def table(self) -> Table:
        """Return a long table by columns, one row per row and column; ready for a data frame or for JSON."""
        rows, width = self.values.shape
        return {
            "row": np.repeat(np.arange(rows), width).tolist(),
            "column": self.columns * rows,
            "value": [cell for row in self.cells for cell in row],
            "contribution": self.values.ravel().tolist(),
            "error": self.error.ravel().tolist(),
        }

    def plot(self, row: int = 0, most: int = 10) -> "Figure":
        """Draw the contributions to one row.

        Parameters
        ----------
        row : int
            The position of the row.
        most : int
            How many columns; the others are added up.

        Returns
        -------
        matplotlib Figure
        """
        from ddpn.analysis.plots import draw_contributions

        return draw_contributions(self, row, most)


def contributions(
    inputs: Inputs,
    background: Inputs | None = None,
    of: str = "mean",
    max_predictions: int = _MAX_PREDICTIONS,
    seed: int = 0,
) -> Contributions:
    """Explain the predictions of single rows: what each column adds to the (log) mean, or to the spread.

    Sampled Shapley values. Each row is reached from background rows, one column at a time in random orders; a column's
    contribution is the mean change of the prediction when it changes. They add up exactly, in any number of samples;
    `error` says how much they vary.

    Parameters
    ----------
    inputs : Inputs
        A fitted model and the rows to explain.
    background : Inputs, optional
        Rows to compare with, such as the training set. Default: the explained rows, which then must be several.
    of : {"mean", "spread"}
        Explain the predicted mean, or the spread: variance / mean, for a Gaussian likelihood the standard deviation.
    max_predictions : int
        Bounds the work. The more predictions, the smaller the errors.
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
        raise InputError("background must be given to explain a single row: pass rows to compare it with.")
    quantity, rng = int(of == "spread"), np.random.default_rng(seed)
    per_start = len(rows) * max(1, 2 * (len(inputs.columns) - 1))
    starts = min(max_predictions // per_start, _MAX_STARTS, len(others))
    if starts < min(_MIN_STARTS, len(others)):
        most = max_predictions // (per_start // len(rows) * _MIN_STARTS)
        raise InputError(
            f"X must have at most {most:,} rows for max_predictions={max_predictions:,} and {len(inputs.columns):,} "
            f"columns, got {len(rows):,}. Explain fewer rows, or raise max_predictions."
        )
    if background is None:
        others = draw_rows(len(inputs), _MAX_BACKGROUND_ROWS, seed=seed).positions
    # Starts at evenly spaced ranks of the predictions, whose mean is close to that of all background rows.
    now = inputs.moments(others, variance=quantity == 1).quantities[quantity, :, 0]
    ranks = np.floor((np.arange(starts) + 0.5) * len(others) / starts).astype(int)
    start = others[np.argsort(now, kind="stable")[ranks]]
    values, error = shapley_values(inputs, rows, start, quantity, rng)
    both = np.concatenate([rows, start])
    moments = inputs.moments(both, variance=quantity == 1, recalibrated=True)
    now = moments.quantities[quantity, :, 0]
    base = float(now[len(rows) :].mean())
    by_row = zip(*(column.cells(MISSING).tolist() for column in inputs.rows(rows).columns), strict=True)
    return Contributions(
        inputs.names, values, error, base, now[: len(rows)], [list(row) for row in by_row],
        QUANTITIES[moments.log][quantity], moments.log, starts, len(others), total,
    )  # fmt: skip


# Sampled Shapley values -----------------------------------------------------------------------------------------------


def shapley_values(
    inputs: Inputs, rows: np.ndarray, background: np.ndarray, quantity: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the contribution of every column to each row, and standard errors. Shape: (rows, columns) each.

    Every background row is the start of two walks, in a random order of the columns and in its reverse: antithetic
    walks, whose mean varies less. The contributions of a row add up to its prediction minus the mean prediction of the
    background.
    """
    width, pairs = len(inputs.columns), len(background)
    starts, values, errors = _predict_quantity(inputs, background, {}, quantity), [], []
    for row, end in zip(rows, _predict_quantity(inputs, rows, {}, quantity), strict=True):
        forth = np.stack([rng.permutation(width) for _ in range(pairs)])
        order = np.stack([forth, forth[:, ::-1]], 1).reshape(-1, width)
        changes = _walks(inputs, np.repeat(background, 2), int(row), order, (np.repeat(starts, 2), end), quantity)
        pair_means = changes.reshape(pairs, 2, width).mean(1)
        values.append(pair_means.mean(0))
        errors.append(pair_means.std(0, ddof=1) / np.sqrt(pairs) if pairs > 1 else np.full(width, np.nan))
    return np.stack(values), np.stack(errors)


def _walks(
    inputs: Inputs, start: np.ndarray, end: int, order: np.ndarray, predictions: tuple[np.ndarray, float], quantity: int
) -> np.ndarray:
    """Compute what each step of walks from rows `start` to the row `end` changes, by column. Shape: (walks, columns).

    `order` (walks, columns) says in which order columns change, `predictions` are those of both ends.
    """
    both = ((column.values[start], column.values[end]) for column in inputs.columns)
    differs = np.stack([(one != other) & ((one == one) | (other == other)) for one, other in both], 1)
    steps = np.take_along_axis(differs, order, 1)  # by step, not by column
    # Steps between equal values change nothing, and the last step that changes anything reaches the explained row.
    left = steps[:, ::-1].cumsum(1)[:, ::-1]
    walk, step = np.nonzero(steps & (left > 1))
    path = np.where((left == 0) | (steps & (left == 1)), predictions[1], np.nan)
    if len(walk):
        done = np.argsort(order, 1)[walk] <= step[:, None]
        source = np.where(done, end, start[walk, None])
        path[walk, step] = _predict_quantity(inputs, source[:, 0], dict(enumerate(source.T)), quantity)
    path = np.concatenate([predictions[0][:, None], path], 1)
    # A walk between equal rows never leaves its start.
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
