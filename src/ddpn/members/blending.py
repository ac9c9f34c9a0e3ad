"""Mix members, and choose their weights by the CRPS of held-out rows.

The components of a member are the distributions that it predicts for a row, as batches of shape (rows, k) with equal
weights (`Member.predict_components`). A block is a set of rows that are predicted together.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch.distributions import Distribution

from ddpn.distributions import CountDistribution, Mixture, discretize
from ddpn.distributions.batch_shapes import join_stacks, reshape_batch, select_rows
from ddpn.distributions.limits import censor_rows
from ddpn.metrics import crps
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import check_deadline
from ddpn.statistics import mean_and_error

#: The name of the mixture in mappings that are keyed by the names of members.
MIXTURE = "mixture"
#: The number of steps from the best weights to equal weights.
_SHRINKAGE_STEPS = 100
#: The largest increase of the mean CRPS by shrinkage, in standard errors. On the development tables, 0.5 was no worse
#: than 0.25 or 1.
_MAX_STANDARD_ERRORS = 0.5
#: Smaller weights are set to 0, because such a member costs time and hardly changes predictions.
_MIN_WEIGHT = 0.005


def mix(distributions: Sequence[Distribution], weights: Sequence[float]) -> Mixture:
    """Mix batches of distributions row by row. Shape: batch i (rows, k_i) -> (rows,).

    `weights` has one weight per batch, which is divided equally among its k_i distributions of a row. If some batches
    are distributions of counts and others are not, the others (such as Normals) are rounded to counts.
    """
    if len(distributions) == 1:
        return Mixture(distributions[0])
    counts = [isinstance(dist, CountDistribution) for dist in distributions]
    is_one_kind = all(counts) or not any(counts)
    parts: list[Any] = list(distributions) if is_one_kind else list(map(discretize, distributions))
    shares = [np.full(part.batch_shape[-1], w / part.batch_shape[-1]) for part, w in zip(parts, weights, strict=True)]
    return Mixture.concatenate(parts, torch.from_numpy(np.concatenate(shares)))


def mix_members(parts: Sequence[Sequence[Distribution]], weights: Sequence[float]) -> Mixture:
    """Mix members; the weight of a member is divided equally among its batches of components.

    `parts` holds the components of each member, and `weights` the weight of each member.
    """
    flat = [
        (part, weight / len(components))
        for components, weight in zip(parts, weights, strict=True)
        for part in components
    ]
    return mix([part for part, _ in flat], [weight for _, weight in flat])


def stack_parts(parts: Sequence[Distribution]) -> Any:
    """Combine the components of a member into one batch of shape (rows, k) with equal weights.

    If they differ in family or in k, the result has k = 1: the mixture of all components.
    """
    joined = join_stacks(parts)
    if len(joined) == 1 and len({part.batch_shape[-1] for part in parts}) == 1:
        return joined[0]
    mixture = mix_members([parts], [1.0])
    return reshape_batch(mixture, (*mixture.batch_shape, 1))


#: The components of one member, for each block of rows.
Blocks = Sequence[Sequence[Distribution]]


class MixtureScores:
    """The CRPS of single members and of pairs of members, from which the CRPS of any mixture of them follows.

    Mixture weights are chosen with it, because other weights need no new predictions. The CRPS is quadratic in the
    distribution: let c_i be the CRPS of member i, c_ij that of the equal mixture of members i and j, and G_ij = 2 (c_i
    + c_j) - 4 c_ij. Then the mixture with weights w has the CRPS sum_i w_i c_i - sum_{i<j} w_i w_j G_ij, exactly.

    `blocks` holds the rows to score, block by block.
    """

    def __init__(self, blocks: Sequence[CountRows]) -> None:
        self.blocks, self.members, rows = list(blocks), list[Blocks](), sum(map(len, blocks))
        self.raw_member_crps, self.ensemble_bonus = np.zeros((0, rows)), np.zeros((0, rows))
        self.pair_gain = np.zeros((0, 0, rows))

    @property
    def weight(self) -> np.ndarray:
        """The weight of each row."""
        return np.concatenate([block.weight_or_ones for block in self.blocks])

    def add(self, member: Blocks, size: int | None = None) -> None:
        """Score a member alone and mixed with each earlier member; `member` holds its components for every block.

        Distributions that are not of counts, such as Normals, are rounded to counts. `size` is the number of
        components with which the member predicts a new row. It is larger than the number of components in `member` if a
        held-out row is predicted only by the copy that left it out. The CRPS with `size` components is then estimated.
        """
        member = [list(map(discretize, parts)) for parts in member]
        n, bonus = len(self.members), np.zeros(self.raw_member_crps.shape[1])
        member_crps = self._score_blocks([member], [1.0])
        n_scored = sum(part.batch_shape[-1] for part in member[0])
        if size is not None and size > n_scored > 1:
            bonus = self._compute_bonus(member, member_crps, n_scored, size)
        gain = np.zeros((n + 1, n + 1, len(member_crps)))
        gain[:n, :n] = self.pair_gain
        for j, (other, other_crps) in enumerate(zip(self.members, self.raw_member_crps, strict=True)):
            pair = np.maximum(
                2.0 * (member_crps + other_crps) - 4.0 * self._score_blocks([member, other], [0.5, 0.5]), 0.0
            )
            gain[n, j] = pair - bonus - self.ensemble_bonus[j]
        self.members.append(member)
        self.raw_member_crps, self.ensemble_bonus = (
            np.concatenate([self.raw_member_crps, member_crps[None]]),
            np.concatenate([self.ensemble_bonus, bonus[None]]),
        )
        self.pair_gain = gain

    @property
    def member_crps(self) -> np.ndarray:
        """The CRPS of every member on every row. Shape: (members, rows)."""
        return self.raw_member_crps - self.ensemble_bonus

    def _compute_bonus(self, member: Blocks, mixture_crps: np.ndarray, n_scored: int, size: int) -> np.ndarray:
        """Estimate how much a mixture of `size` distributions lowers the CRPS of a mixture of `n_scored` of them.

        If D is the mean distance between two of the distributions, the CRPS of a mixture of k of them is (k - 1) / 2k D
        below their mean CRPS. `mixture_crps` is the CRPS of the mixture of the `n_scored` distributions in `member`.
        Shape: (rows,).
        """
        singles = [
            self._score_blocks([[_take_component(parts, j) for parts in member]], [1.0]) for j in range(n_scored)
        ]
        distance = np.maximum((np.mean(singles, axis=0) - mixture_crps) * 2.0 * n_scored / (n_scored - 1.0), 0.0)
        return distance * ((size - 1.0) / (2.0 * size) - (n_scored - 1.0) / (2.0 * n_scored))

    def _score_blocks(self, members: Sequence[Blocks], weights: Sequence[float]) -> np.ndarray:
        """Compute the CRPS of every row for the mixture of these members. Shape: (rows,)."""
        scores = []
        for sample, *parts in zip(self.blocks, *members, strict=True):
            check_deadline()
            dist = mix_members(parts, weights)
            scores.append(crps(censor_rows(dist, sample.limit), torch.from_numpy(sample.y)).double().numpy())
        return np.concatenate(scores)

    def compute_crps(self, weights: np.ndarray) -> np.ndarray:
        """Compute the CRPS of every row for the mixture with these weights of the members. Shape: (rows,)."""
        return weights @ self.member_crps - np.einsum("i,j,ijr->r", weights, weights, self.pair_gain)

    def minimize_crps(self, row_share: np.ndarray) -> np.ndarray:
        """Find the mixture weights with the smallest mean CRPS, a convex problem on the simplex.

        `row_share` holds the weights of the rows in this mean, which add up to 1.
        """
        crps, gain = self.member_crps @ row_share, self.pair_gain @ row_share
        both, n = gain + gain.T, len(crps)
        result = minimize(
            lambda w: w @ crps - 0.5 * w @ both @ w,
            np.full(n, 1.0 / n),
            jac=lambda w: crps - both @ w,
            bounds=[(0.0, 1.0)] * n,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: np.ones(n)},
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 500},
        )
        weights = np.clip(result.x, 0.0, None)
        return weights / weights.sum()


def _take_component(parts: Sequence[Distribution], number: int) -> list[Distribution]:
    """Select one component per row, the one with this number, as a batch of shape (rows, 1).

    Components are numbered from 0 on through all batches of `parts`.
    """
    for part in parts:
        rows, k = part.batch_shape
        if number < k:
            flat = reshape_batch(part, (rows * k,))
            return [reshape_batch(select_rows(flat, torch.arange(rows) * k + number), (rows, 1))]
        number -= k
    raise IndexError(number)


def choose_mixture_weights(scores: MixtureScores, weight: np.ndarray) -> np.ndarray:
    """Choose mixture weights by held-out CRPS, shrunk towards equal weights; `weight` holds the weights of the rows.

    A few hundred rows determine the weights poorly, and members whose epochs were chosen on the same rows look better
    than they are. So the best weights are moved towards equal ones as long as the mean CRPS rises by at most half a
    standard error of the paired difference. (This is the rule of Breiman, Friedman, Olshen and Stone, 1984, with equal
    weights as the simplest model.)
    """
    share = weight / weight.sum()
    best = scores.minimize_crps(share)
    equal = np.full(len(best), 1.0 / len(best))
    lowest = scores.compute_crps(best)
    for step in range(_SHRINKAGE_STEPS, 0, -1):
        candidate = best + (equal - best) * (step / _SHRINKAGE_STEPS)
        mean, error = mean_and_error(scores.compute_crps(candidate) - lowest, share)
        if mean <= _MAX_STANDARD_ERRORS * error:
            best = candidate
            break
    kept = np.where(best < _MIN_WEIGHT, 0.0, best)
    return kept / kept.sum()
