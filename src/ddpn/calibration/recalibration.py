"""Recalibration of predicted distributions by a monotone map of the cdf, fitted to the PIT of held-out rows."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri

from ddpn.distributions import CountDistribution, MonotoneMap, Recalibrated, discretize
from ddpn.distributions.limits import censor_rows
from ddpn.members.blending import MIXTURE
from ddpn.members.held_out import HeldOutPredictions
from ddpn.metrics import crps, pit_bounds
from ddpn.statistics import mean_and_error

#: The fewest rows to fit a map of the cdf. Fewer rows cannot show that it helps.
MIN_ROWS = 50
#: The number of rows as which a flat PIT counts. With 100 rows, the map moves half of the way from the identity.
PRIOR_ROWS = 100.0
#: The number of standard errors by which recalibration must improve the CRPS of other rows. On the development tables,
#: 1 and 2 give the same decisions for Double Poisson networks. For mixed networks, 1 would use a map on crime1 that
#: makes the test CRPS 0.3% worse.
_MIN_STANDARD_ERRORS = 2.0
#: The most rows that are scored to decide whether a map helps. More would take long and change no decision.
_MAX_SCORED_ROWS = 5000
#: The knots of the map as normal scores. Beyond the outermost knots the slope is constant.
_SCORES = np.linspace(-2.25, 2.25, 19)
KNOTS = np.concatenate([[0.0], ndtr(_SCORES), [1.0]])


def _compute_basis() -> np.ndarray:
    """Return the four polynomials whose weighted sum is the logarithm of the slope of the recalibration map.

    The map takes predicted probabilities to recalibrated ones. It is piecewise linear between fixed points (`KNOTS`).
    The polynomials are orthonormal Hermite polynomials of degrees 1 to 4 of the normal score (the normal quantile of
    the probability). Degrees 1 and 2 shift and widen a Normal exactly; degrees 3 and 4 change its skewness and the
    weight of its tails. Return their values in the middle of each piece, shape (pieces, 4).
    """
    width = np.diff(KNOTS)
    z = ndtri(0.5 * (KNOTS[1:] + KNOTS[:-1]))
    columns = np.stack([np.ones_like(z), z, z**2, z**3, z**4], axis=1)
    # Gram-Schmidt for pieces of unequal width.
    q, _ = np.linalg.qr(np.sqrt(width)[:, None] * columns)
    return (q / np.sqrt(width)[:, None])[:, 1:]


_BASIS = _compute_basis()


def divide_pit_intervals(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Divide the PIT interval of each row among the linear pieces of the recalibration map.

    The PIT interval of a count y reaches from `lower` = F(y - 1) to `upper` = F(y), where F is the predicted cdf.
    Return the share of the interval that lies in each piece. Shape: (rows, pieces).
    """
    low = np.maximum(lower[:, None], KNOTS[:-1])
    parts = np.maximum(np.minimum(upper[:, None], KNOTS[1:]) - low, 0.0)
    total = parts.sum(1, keepdims=True)
    # The probability of a count far in a tail may round to 0. Its PIT is then a point.
    piece = np.searchsorted(KNOTS[1:-1], 0.5 * (lower + upper), side="right")
    point = np.eye(len(KNOTS) - 1)[piece]
    return np.where(total > 1e-12, parts / np.maximum(total, 1e-12), point)


def fit_map(shares: np.ndarray, weight: np.ndarray, prior_rows: float = PRIOR_ROWS) -> MonotoneMap:
    """Fit the recalibration map by penalised maximum likelihood, shrunk towards the identity.

    The map is piecewise linear. On each piece, the density of the PIT is constant: the exponential of a polynomial of
    the normal score (the normal quantile of the probability). Its four coefficients maximise the penalised likelihood
    of the PIT intervals; a discrete count determines its PIT only up to an interval. The penalty is as strong as the
    information in `prior_rows` rows of a continuous distribution.

    `shares` has the share of each row's PIT interval in each piece (`divide_pit_intervals`), shape (rows, pieces).
    `weight` has the weight of each row.
    """
    width = np.diff(KNOTS)

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        raw = np.exp(_BASIS @ theta)
        slope = raw / (width @ raw)
        likelihood = shares @ slope
        mean = (width * slope) @ _BASIS
        gradient = (weight / likelihood) @ (shares * slope) @ _BASIS - weight.sum() * mean
        return 0.5 * prior_rows * theta @ theta - weight @ np.log(likelihood), prior_rows * theta - gradient

    result = minimize(loss, np.zeros(_BASIS.shape[1]), jac=True, method="L-BFGS-B", bounds=[(-1.0, 1.0)] * 4)
    raw = np.exp(_BASIS @ result.x)
    value = np.concatenate([[0.0], np.cumsum(width * raw / (width @ raw))])
    value[-1] = 1.0
    return MonotoneMap.from_knots(KNOTS, value)


class Recalibration(NamedTuple):
    """Monotone map of a predicted cdf, fitted to held-out rows, and how much it lowers their CRPS.

    Parameters
    ----------
    value : array, shape (knots,)
        The recalibrated probabilities at the fixed points (`KNOTS`) between which the map is linear.
    rows : int
        The number of calibration rows.
    gain : float
        The decrease of the mean CRPS. Each row is scored with a map that was fitted to other rows.
    error : float
        The standard error of the gain.
    is_used : bool
        True if predictions use the map: by default, if the gain exceeds two standard errors.
    """

    value: np.ndarray
    rows: int
    gain: float
    error: float
    is_used: bool

    @classmethod
    @torch.no_grad()
    def fit(
        cls,
        held_out: HeldOutPredictions,
        member: str = MIXTURE,
        prior_rows: float = PRIOR_ROWS,
        always: bool = False,
        seed: int = 0,
    ) -> tuple[Self, list[MonotoneMap]]:
        """Fit the map to held-out predictions of `member`, and measure by cross-fitting how much it lowers the CRPS.

        `member` is "mixture" or the name of one model in it. The map is shrunk towards the identity, as if `prior_rows`
        additional rows were calibrated already. It is used if it lowers the CRPS by more than two standard errors, or
        in any case if `always` is True. If there are more than 5,000 rows, only 5,000 that `seed` draws are scored.

        Return the recalibration and a list of maps: for each part of the held-out rows, such as a fold, the map fitted
        to all other parts.
        """
        rows, part = held_out.rows, held_out.part
        weight = rows.weight_or_ones * (rows.has_weight.sum() / rows.weight_or_ones.sum())
        blocks: list[Block] = []
        pit = np.zeros((2, len(rows)))
        for number, index, dist in held_out.blocks(member):
            limit = None if rows.limit is None else rows.limit[index]
            counts = discretize(censor_rows(dist, limit))
            blocks.append((number, index, counts))
            pit[:, index] = torch.stack(pit_bounds(counts, torch.from_numpy(rows.y[index]))).double().numpy()
        shares = divide_pit_intervals(*pit)
        maps = [
            fit_map(shares[part != number], weight[part != number], prior_rows) for number in range(held_out.n_parts)
        ]
        gain, error = _measure_gain(blocks, rows.y, maps, weight, seed)
        value = fit_map(shares, weight, prior_rows).value.numpy()
        number = int((weight > 0).sum())
        helps = bool(number >= MIN_ROWS and gain > _MIN_STANDARD_ERRORS * error)
        return cls(value, number, gain, error, always or helps), maps

    @property
    def map(self) -> MonotoneMap:
        """The monotone map G of probabilities: a predicted cdf F becomes G(F)."""
        return MonotoneMap.from_knots(KNOTS, self.value)


#: The part that a block of rows belongs to, the positions of the rows, and their distributions.
Block = tuple[int, np.ndarray, CountDistribution]


def _measure_gain(
    blocks: Sequence[Block], y: np.ndarray, maps: Sequence[MonotoneMap], weight: np.ndarray, seed: int
) -> tuple[float, float]:
    """Return how much recalibration lowers the mean CRPS (positive if it helps), and the standard error.

    Each block of rows has the number of its part, the positions of its rows in `y`, and their distributions before
    recalibration. `y` and `weight` have one value per row. `maps` has one map for each part of the held-out rows,
    fitted to the other parts. If there are more than 5,000 rows, only 5,000 that `seed` draws are scored, because
    scoring is slow.
    """
    scored, gains = np.zeros(len(y), dtype=bool), np.zeros(len(y))
    scored[np.random.default_rng(seed).permutation(len(y))[:_MAX_SCORED_ROWS]] = True
    for number, index, dist in blocks:
        chosen = np.flatnonzero(scored[index])
        if len(chosen):
            before, counts = dist.rows(torch.from_numpy(chosen)), torch.from_numpy(y[index[chosen]])
            after = Recalibrated(before, maps[number])
            gains[index[chosen]] = (crps(before, counts) - crps(after, counts)).double().numpy()
    mean, error = mean_and_error(gains[scored], weight[scored])
    return float(mean), float(error)
