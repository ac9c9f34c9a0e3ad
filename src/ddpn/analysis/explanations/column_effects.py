"""Accumulated local effects (ALE) of every column on the mean and on the spread of predicted distributions.

A partial dependence curve averages predictions for unlikely rows, such as a child of 80 kg. Accumulated local effects
(Apley and Zhu, 2020) avoid this. The values of a column are divided by a grid of points. Each row is moved only between
the points next to its own value. The changes of the prediction are averaged within each interval between two adjacent
points, and these averages are added up along the grid.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from ddpn.analysis.explanations.effect import Curve, Effect, Effects
from ddpn.analysis.explanations.grid import EffectGrid, make_grid
from ddpn.analysis.explanations.inputs import MISSING, Inputs
from ddpn.runtime.validation import check_integer
from ddpn.statistics import weighted_mean
from ddpn.tables.levels import parse_number_level

#: The default number of rows. Each is predicted twice per column.
MAX_EFFECT_ROWS = 500
#: The number of bootstrap samples of the rows.
_BOOTSTRAP_SAMPLES = 100
#: The most predictions for rows with a missing value.
_MAX_MISSING_PREDICTIONS = 200
#: The explained quantities, keyed by whether effects are on the log scale.
QUANTITIES = {True: ("mean", "variance / mean"), False: ("mean", "standard deviation")}


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
    values is predicted. The predicted distributions are not recalibrated.

    Parameters
    ----------
    inputs : Inputs
        A fitted model and rows.
    columns : list of str, optional
        The columns to measure. Default: all or, if there are more than 40, the 40 columns that change predictions most
        when they are shuffled.
    bins : int
        The number of bins of a numeric column.
    max_rows : int or None
        The largest number of rows to use. If there are more, some are drawn at random. None uses all rows.
    seed : int
        Seed of random draws of rows.
    progress : callable, optional
        Called with the name of each step.

    Returns
    -------
    Effects
        One effect per column, with curves for the mean and the spread and their standard errors.

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
    now, row_weights = moments.quantities, inputs.row_weights
    for number, position in enumerate(positions, 1):
        if progress is not None:
            progress(f"Effects of columns: {number} of {len(positions)}")
        column, grid = inputs.columns[position], make_grid(inputs.columns, position, bins)
        steps = predict_steps(inputs, position, grid, now, rng)
        effect, error = compute_curves(grid, steps, moments.weights, rng, row_weights)
        points, share, has_missing = list(grid.points), grid.compute_shares(row_weights), bool(grid.missing.any())
        if column.is_category and None in [parse_number_level(str(point)) for point in points]:
            order = np.argsort(effect[0, : len(points)], kind="stable")
            points, share = [points[i] for i in order], share[order]
            last = np.arange(len(points), effect.shape[1])
            effect, error = effect[:, [*order, *last]], error[:, [*order, *last]]
        if has_missing:
            points, share = [*points, MISSING], np.append(share, weighted_mean(grid.missing, row_weights))
        mean, spread = (
            Curve(name, effect[i], error[i], weighted_mean(now[i, :, 0], row_weights), moments.log)
            for i, name in enumerate(QUANTITIES[moments.log])
        )
        is_day = column.name in inputs.day_columns
        results.append(
            Effect(column.name, column.kind, points, share, mean, spread, not grid.discrete, has_missing, is_day)
        )
    return Effects(results, len(inputs), inputs.total, inputs.library)


class Steps(NamedTuple):
    """Changes of predictions when the value of one column is moved from a grid point to the next one.

    The changes are those of each quantity (mean and spread), both for the whole mixture and for each of its components.

    Attributes
    ----------
    rows : array of int, shape (n,)
        The positions of the rows that are moved. A row that is moved to two points is listed twice.
    points : array of int, shape (n,)
        The index of the grid point to which each row is moved. It is moved there from the point before.
    changes : array, shape (quantities, n, 1 + components)
        The changes of the predictions. The first entry of the last axis is the mixture.
    missing_rows : array of int, shape (m,)
        The positions of rows with a missing value. A row is repeated if several values are filled in.
    missing_points : array of int, shape (m,)
        The index of the grid point whose value is filled in for each missing value.
    missing_changes : array, shape (quantities, m, 1 + components)
        The prediction with the missing value minus the prediction with the filled-in value.
    """

    rows: np.ndarray
    points: np.ndarray
    changes: np.ndarray
    missing_rows: np.ndarray
    missing_points: np.ndarray
    missing_changes: np.ndarray


def predict_steps(
    inputs: Inputs, position: int, grid: EffectGrid, original: np.ndarray, rng: np.random.Generator
) -> Steps:
    """Predict rows with the value of one column moved to adjacent grid points; return the changes of the predictions.

    A change is the prediction at a grid point minus that at the point before. If the points are the ends of bins, each
    row is moved to both ends of its bin. If they are the values or levels of the column, each row takes part in up to
    two changes: from the previous point to its own value, and from its own value to the next point.

    Rows with a missing value are predicted with values that are drawn from the grid points, in proportion to the
    weights of the rows at these points. The change is then the prediction with the missing value minus the one with the
    drawn value. At most 200 such predictions are made. Rows with a level that is not among the points are left out.

    Parameters
    ----------
    inputs : Inputs
        The model and the rows.
    position : int
        The index of the column in `inputs.columns`.
    grid : EffectGrid
        The grid points of the column.
    original : array, shape (quantities, rows, 1 + components)
        The predictions of the unchanged rows (`PredictedMoments.quantities`). They serve as the predictions with a
        missing value.
    rng : numpy Generator
        Draws the values that replace missing ones.
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
        shares = grid.compute_shares(inputs.row_weights)
        points = rng.choice(last + 1, len(absent), p=shares / shares.sum())
    else:
        absent = points = absent[:0]
    asked, target = np.concatenate([row, row, absent]), np.concatenate([step - 1, step, points])
    if not len(asked):
        nothing = np.zeros((len(original), 0, original.shape[-1]))
        return Steps(row, step, nothing, absent, points, nothing)
    predicted = inputs.moments(asked, {position: grid.source_rows[target]}).quantities
    lower, upper, drawn = np.split(predicted, [len(row), 2 * len(row)], 1)
    return Steps(row, step, upper - lower, absent, points, original[:, absent] - drawn)


def accumulate_effects(
    grid: EffectGrid, steps: Steps, changes: np.ndarray, missing_changes: np.ndarray, sample_weights: np.ndarray
) -> np.ndarray:
    """Return the accumulated local effect of a column on one quantity, at every grid point.

    The effect at a point is the sum of the average changes between all adjacent points up to it. It is centred to a
    mean of 0 over the rows. If values are missing, the effect of a missing value comes last.

    `changes` and `missing_changes` are those of `steps` for one quantity, and for the mixture or one component.
    `sample_weights` is the weight of every row in each bootstrap sample: how often it was drawn, times its own weight.

    Shape: changes (n,), missing_changes (m,), both as in `Steps`, and sample_weights (samples, rows) -> (samples,
    points) or, if values are missing, (samples, points + 1).
    """
    size = len(grid.points)
    in_step = (steps.points[:, None] == np.arange(1, size)).astype(float)
    share = sample_weights[:, steps.rows]
    total, rows = (share * changes) @ in_step, share @ in_step
    # If a bootstrap sample has no rows in a step, the mean difference of all rows is used.
    usual = (changes @ in_step) / np.maximum(in_step.sum(0), 1.0)
    mean = np.where(rows > 0, total / np.maximum(rows, 1e-300), usual)
    curve = np.concatenate([np.zeros((len(sample_weights), min(size, 1))), mean.cumsum(1)], 1)
    used = grid.code >= 0
    row_effects = curve[:, grid.code[used]]
    if not grid.discrete:
        row_effects = (row_effects + curve[:, grid.code[used] - 1]) / 2.0
    inside = sample_weights[:, used].sum(1)
    curve = curve - _average_by_sample(row_effects, sample_weights[:, used])[:, None]
    if not len(steps.missing_rows):
        return np.append(curve, np.zeros((len(sample_weights), 1)), 1) if grid.missing.any() else curve
    missing = _average_by_sample(
        missing_changes + curve[:, steps.missing_points], sample_weights[:, steps.missing_rows]
    )
    outside = sample_weights[:, grid.missing].sum(1)
    shift = outside * missing / np.maximum(outside + inside, 1e-300)
    return np.concatenate([curve, missing[:, None]], 1) - shift[:, None]


def _average_by_sample(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the weighted mean of `values` in each bootstrap sample, or the unweighted mean if all weights are 0.

    Shape: values and weight (samples, rows) -> (samples,).
    """
    if not values.shape[-1]:
        return np.zeros(len(weight))
    total = weight.sum(1)
    return np.where(total > 0, (values * weight).sum(1) / np.maximum(total, 1e-300), values.mean(1))


def compute_curves(
    grid: EffectGrid, steps: Steps, weights: np.ndarray, rng: np.random.Generator, row_weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the effects of a column at the points of a grid, and their standard errors.

    The effect at a point is the sum of the average changes of the mixture's prediction between all adjacent points up
    to this one, centred to a mean of 0 over the rows (`accumulate_effects`). A standard error combines two sources of
    variation: bootstrap samples of the rows, and disagreement between the components of the mixture, such as single
    networks.

    Parameters
    ----------
    grid : EffectGrid
        The grid points of the column.
    steps : Steps
        The changes of predictions that `predict_steps` returned for this grid.
    weights : array, shape (components,)
        The mixture weights of the components.
    rng : numpy Generator
        Draws the bootstrap samples.
    row_weights : array, shape (rows,)
        The sample weights of the rows.

    Returns
    -------
    effects, errors : array, shape (quantities, points) or (quantities, points + 1)
        The quantities are the mean and the spread (`PredictedMoments.quantities`). If the column has missing values,
        their effect is added as the last column.
    """
    n = len(grid.code)
    once, drawn = row_weights[None], rng.multinomial(n, np.full(n, 1.0 / n), size=_BOOTSTRAP_SAMPLES) * row_weights
    effects, errors = [], []
    for changes, missing_changes in zip(steps.changes, steps.missing_changes, strict=True):
        effect, *by_component = (
            accumulate_effects(grid, steps, changes[:, k], missing_changes[:, k], once)[0]
            for k in range(changes.shape[-1])
        )
        by_rows = accumulate_effects(grid, steps, changes[:, 0], missing_changes[:, 0], drawn).std(0)
        apart = np.stack(by_component) - weights @ np.stack(by_component)
        effects.append(effect)
        errors.append(np.hypot(by_rows, np.sqrt(weights @ apart**2)))
    return np.stack(effects), np.stack(errors)
