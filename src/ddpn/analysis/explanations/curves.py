"""Accumulated local effects (ALE) of one column (Apley and Zhu, 2020), with their uncertainty.

A partial dependence curve averages predictions for rows that do not exist, such as a child of 80 kg. Accumulated local
effects move each row only to the nearest points of the grid, average these differences bin by bin, and add them up.
"""

from typing import NamedTuple

import numpy as np

from ddpn.analysis.explanations.grid import EffectGrid
from ddpn.analysis.explanations.inputs import Inputs

#: Bootstrap samples of the rows.
_SAMPLES = 100
#: Rows without a value that are measured, and predictions of them at most.
_MISSING_ROWS, _MISSING_WORK = 200, 200


class Steps(NamedTuple):
    """Differences of predictions: `delta` is that of `row` over `step`, from one point of the grid to the next.

    Shape: row and step (n,), delta (quantities, n, 1 + components). `own` are the rows without a value, `gap` how much
    their prediction exceeds that with the value of the grid's point `at`.
    """

    row: np.ndarray
    step: np.ndarray
    delta: np.ndarray
    own: np.ndarray
    at: np.ndarray
    gap: np.ndarray


def measure(inputs: Inputs, position: int, grid: EffectGrid, now: np.ndarray, rng: np.random.Generator) -> Steps:
    """Predict the rows at the neighbouring points; `now` are the quantities of the rows as they are."""
    last = len(grid.points) - 1
    if grid.discrete:
        down, up = np.flatnonzero(grid.code >= 1), np.flatnonzero((grid.code >= 0) & (grid.code < last))
        rows = np.concatenate([down, up])
        target = np.concatenate([grid.code[down] - 1, grid.code[up] + 1])
    else:
        down = up = np.flatnonzero(grid.code >= 0)
        rows, target = np.concatenate([down, up]), np.concatenate([grid.code[down] - 1, grid.code[up]])
    absent = _absent(grid, rng)
    points = rng.choice(last + 1, len(absent), p=grid.shares / grid.shares.sum()) if len(absent) else absent
    asked = np.concatenate([rows, absent])
    if not len(asked):
        nothing = np.zeros((len(now), 0, now.shape[-1]))
        return Steps(rows, rows, nothing, absent, points, nothing)
    there = inputs.quantities(asked, {position: grid.source[np.concatenate([target, points]).astype(int)]})
    gap = now[:, absent] - there[:, len(rows) :]
    if grid.discrete:
        lower, upper = now[:, down] - there[:, : len(down)], there[:, len(down) : len(rows)] - now[:, up]
        delta, step = np.concatenate([lower, upper], 1), np.concatenate([grid.code[down], grid.code[up] + 1])
        return Steps(rows, step, delta, absent, points, gap)
    delta = there[:, len(down) : len(rows)] - there[:, : len(down)]
    return Steps(down, grid.code[down], delta, absent, points, gap)


def _absent(grid: EffectGrid, rng: np.random.Generator) -> np.ndarray:
    """Rows without a value, each as often as a value is drawn for it; none where there is no value at all."""
    rows = np.flatnonzero(grid.missing)
    if not len(rows) or not len(grid.points):
        return rows[:0]
    kept = rows if len(rows) <= _MISSING_ROWS else np.sort(rng.choice(rows, _MISSING_ROWS, replace=False))
    return np.repeat(kept, max(1, min(10, _MISSING_WORK // len(kept))))


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
    at_rows = curve[:, grid.code[used]]
    if not grid.discrete:
        at_rows = (at_rows + curve[:, grid.code[used] - 1]) / 2.0
    inside = weight[:, used].sum(1)
    curve = curve - _mean(at_rows, weight[:, used])[:, None]
    if not len(steps.own):
        return np.append(curve, np.zeros((len(weight), 1)), 1) if grid.missing.any() else curve
    missing = _mean(gap + curve[:, steps.at], weight[:, steps.own])
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
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Effects, and their standard errors by the rows and by the components. Shape: (quantities, points) each.

    The rows: the effect of a bootstrap sample varies. The components: a network, or another member, alone has another
    effect than the mixture.
    """
    n = len(grid.code)
    once, drawn = np.ones((1, n)), rng.multinomial(n, np.full(n, 1.0 / n), size=_SAMPLES).astype(float)
    found = []
    for delta, gap in zip(steps.delta, steps.gap, strict=True):
        effect, *each = (accumulate(grid, steps, delta[:, k], gap[:, k], once)[0] for k in range(delta.shape[-1]))
        rows = accumulate(grid, steps, delta[:, 0], gap[:, 0], drawn).std(0)
        apart = np.stack(each) - weights @ np.stack(each)
        found.append((effect, rows, np.sqrt(weights @ apart**2)))
    effect, by_rows, by_components = (np.stack(parts) for parts in zip(*found, strict=True))
    return effect, by_rows, by_components
