"""The dispersion of counts around out-of-fold means: a constant, or a small booster where that is clearly better."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from ddpn.members.trees.boosting import UNLIMITED, Booster, FoldData, Growing, Settings
from ddpn.members.trees.table import MANY_ROWS, MAX_COLUMNS, TreeRows
from ddpn.networks.heads import Head, make_head
from ddpn.networks.heads.clamps import LOG_GAMMA
from ddpn.runtime.deadlines import Clock
from ddpn.runtime.threads import single_thread
from ddpn.sample import Sample

#: The range in which log alpha of a Negative Binomial is searched.
LOG_ALPHA = (-12.0, 5.0)
#: Likelihoods to choose from, with the range of their second raw output.
FAMILIES = {"negative_binomial": LOG_ALPHA, "double_poisson": LOG_GAMMA}
#: Rows that a constant is known well enough from.
_ROWS = 20_000
#: Small trees and few rounds: how wide counts spread is much harder to learn than where they lie.
_SETTINGS = Settings(leaves=4, rate=0.1, rounds=300, patience=10)
#: Rounds after which the curvature is computed again: it changes slowly and costs more than the gradient.
_REFRESHED = 5
#: Fewer rows do not say how the dispersion varies; with many rows trees have more leaves.
_LEAST_ROWS, _MORE_LEAVES = 200, 8
#: Standard errors of the paired difference by which a booster must reduce the out-of-fold loss.
_CLEAR = 2.0


class Dispersion(NamedTuple):
    """The second raw output of a likelihood: a constant plus the mean of some boosters, which may be none."""

    likelihood: str
    constant: float
    boosters: list[Booster]
    out_of_fold: np.ndarray

    def raw(self, matrix: np.ndarray, log_mean: np.ndarray) -> np.ndarray:
        """The raw output of rows with these log means, exposure included."""
        return dispersion_of(self.constant, self.boosters, matrix, log_mean)


def dispersion_of(constant: float, boosters: Sequence[Booster], matrix: np.ndarray, log_mean: np.ndarray) -> np.ndarray:
    """A constant plus the mean of the boosters, which have the log mean as their last input."""
    if not boosters:
        return np.full(len(matrix), constant)
    inputs = np.column_stack([matrix, log_mean])
    return constant + np.mean([booster.raw(inputs) for booster in boosters], axis=0)


def most_likely(losses: Callable[[float], np.ndarray], weight: np.ndarray, bounds: tuple[float, float]) -> float:
    """The parameter within `bounds` with the smallest weighted sum of losses."""
    return float(minimize_scalar(lambda x: float(weight @ losses(x)), bounds=bounds, method="bounded").x)


def row_losses(
    head: Head,
    log_rate: np.ndarray,
    dispersion: np.ndarray | float,
    y: np.ndarray,
    exposure: np.ndarray | None = None,
) -> np.ndarray:
    """-log p of every count."""
    raw = torch.from_numpy(np.stack([log_rate, np.broadcast_to(dispersion, log_rate.shape)], 1))
    with torch.no_grad(), single_thread():
        return head.loss(raw, torch.from_numpy(y), None if exposure is None else torch.from_numpy(exposure)).numpy()


def fit_dispersion(
    rows: TreeRows, log_rate: np.ndarray, sample: Sample, seed: int, clock: Clock = UNLIMITED
) -> Dispersion:
    """Learn the dispersion of counts whose means are known without them.

    The likelihood is that with the larger out-of-fold likelihood at its best constant. With exposures it is the
    Negative Binomial, whose mean is the boosted one at every exposure.

    Parameters
    ----------
    rows : TreeRows
        Inputs and folds.
    log_rate : array
        Logarithms of out-of-fold means per exposure.
    sample : Sample
        Counts, with how many times each row counts and its exposure.
    seed : int
        Seed of the boosters.
    clock : Clock
        Boosters grow no longer than this; the constant is found in any case.
    """
    y, weight, exposure = sample.y, sample.weight_or_ones, sample.exposure
    some = np.random.default_rng(seed).permutation(len(y))[:_ROWS]
    counts, means, scale = y[some], log_rate[some], None if exposure is None else exposure[some]
    found = {}
    for name, bounds in FAMILIES.items():
        if exposure is not None and name != "negative_binomial":
            continue
        head = make_head(name)

        def losses(x: float, head: Head = head) -> np.ndarray:
            return row_losses(head, means, x, counts, scale)

        constant = most_likely(losses, weight[some], bounds)
        found[name] = (float(weight[some] @ losses(constant)), constant)
    name = min(found, key=lambda name: found[name][0])
    constant = found[name][1]
    plain = Dispersion(name, constant, [], np.full(len(y), constant))
    if len(y) < _LEAST_ROWS or rows.matrix.shape[1] > MAX_COLUMNS or not clock.left:
        return plain
    return _boosted(plain, rows, log_rate, sample, seed, clock) or plain


def _boosted(
    plain: Dispersion, rows: TreeRows, log_rate: np.ndarray, sample: Sample, seed: int, clock: Clock
) -> Dispersion | None:
    """A booster per fold, cross-fitted like the means; None unless it is clearly better than the constant."""
    head, y, weight, exposure = make_head(plain.likelihood), sample.y, sample.weight_or_ones, sample.exposure
    log_mean = log_rate if exposure is None else log_rate + np.log(exposure)
    inputs = rows.with_columns(log_mean)._replace(directions=None)
    leaves = _MORE_LEAVES if len(y) >= MANY_ROWS else _SETTINGS.leaves
    data, settings = FoldData(inputs), _SETTINGS._replace(seed=seed, leaves=leaves)
    share = weight / weight.mean()
    growing = [Growing(data, inputs, k, settings, own=True) for k in range(len(rows.folds))]
    before = row_losses(head, log_rate, plain.constant, y, exposure)
    objectives = [_objective(head, log_rate, plain.constant, sample, share, each.inner) for each in growing]
    best, best_round, best_raw = float(share @ before), 0, plain.out_of_fold
    for done in range(1, settings.rounds + 1):
        raw = plain.out_of_fold.copy()
        for each, objective in zip(growing, objectives, strict=True):
            each.grow(objective)
            raw[each.outer] += each.held_out
        total = float(share @ row_losses(head, log_rate, raw, y, exposure))
        if total < best:
            best, best_round, best_raw = total, done, raw
        is_finished = all(each.is_finished for each in growing)
        if done - best_round >= settings.patience or is_finished or not clock.left:
            break
    gain = share * (before - row_losses(head, log_rate, best_raw, y, exposure))
    if not best_round or gain.sum() <= _CLEAR * np.sqrt(len(gain)) * gain.std():
        return None
    return Dispersion(plain.likelihood, plain.constant, [each.booster(best_round) for each in growing], best_raw)


def _objective(
    head: Head, log_rate: np.ndarray, constant: float, sample: Sample, share: np.ndarray, rows: np.ndarray
) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    own, scale = share[rows], None if sample.exposure is None else torch.from_numpy(sample.exposure[rows])
    known = Sample(None, torch.from_numpy(sample.y[rows]), exposure=scale)
    rounds, curvature = 0, own

    def derivatives(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal rounds, curvature
        raw = torch.from_numpy(np.stack([log_rate[rows], constant + scores], 1))
        with single_thread():
            gradient = _last(head.gradient(raw, known)) * own
            if rounds % _REFRESHED == 0:
                curvature = _last(head.curvature(raw, known)) * own
        rounds += 1
        return gradient, curvature

    return derivatives


def _last(values: Tensor) -> np.ndarray:
    return values[:, -1].numpy()
