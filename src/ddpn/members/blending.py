"""Mix members, and choose their weights by the CRPS of held-out rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch.distributions import Distribution

from ddpn.distributions import CountDistribution, Mixture, discretize
from ddpn.distributions.count import join_stacks, reshape_batch, select_rows
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
    """Mix distributions of batch shapes (rows, k_i) with the given weights. Shape of the result: (rows,).

    The weight of a batch is divided equally among its k distributions. Normals are rounded to counts if other
    distributions are count distributions.
    """
    if len(distributions) == 1:
        return Mixture(distributions[0])
    counts = [isinstance(dist, CountDistribution) for dist in distributions]
    is_one_kind = all(counts) or not any(counts)
    parts: list[Any] = list(distributions) if is_one_kind else list(map(discretize, distributions))
    shares = [np.full(part.batch_shape[-1], w / part.batch_shape[-1]) for part, w in zip(parts, weights, strict=True)]
    return Mixture.concatenate(parts, torch.from_numpy(np.concatenate(shares)))


def mix_members(parts: Sequence[Sequence[Distribution]], weights: Sequence[float]) -> Mixture:
    """Mix members with weights; the weight of a member is divided equally among its components.

    `parts` has the components of each member (`Member.predict_components`).
    """
    flat = [
        (part, weight / len(components))
        for components, weight in zip(parts, weights, strict=True)
        for part in components
    ]
    return mix([part for part, _ in flat], [weight for _, weight in flat])


def stack_parts(parts: Sequence[Distribution]) -> Any:
    """Combine equally weighted components into one batch of shape (rows, k).

    Components of different families or widths become one mixture, with k = 1.
    """
    joined = join_stacks(parts)
    if len(joined) == 1 and len({part.batch_shape[-1] for part in parts}) == 1:
        return joined[0]
    mixture = mix_members([parts], [1.0])
    return reshape_batch(mixture, (*mixture.batch_shape, 1))


#: The components of a member for each block of rows.
Blocks = Sequence[Sequence[Distribution]]


class MixtureScores:
    """Computes the CRPS of any mixture of some members on the same rows, exactly and without predicting again.

    The CRPS is quadratic in the distribution. Let c_i be the CRPS of member i, c_ij that of the equal mixture of
    members i and j, and G_ij = 2 (c_i + c_j) - 4 c_ij. The mixture with weights w then has the CRPS sum_i w_i c_i -
    sum_{i<j} w_i w_j G_ij. `blocks` are the rows; the rows of a block are predicted together.
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
        """Add a member, given its components (`Member.predict_components`) for every block.

        Normals are rounded to counts, as in a mixture with count distributions. `size` is the number of distributions
        per row that the member has in the mixture. If fewer are given, the smaller CRPS of the larger mixture is
        estimated from the differences between the given ones.
        """
        member = [list(map(discretize, parts)) for parts in member]
        n, bonus = len(self.members), np.zeros(self.raw_member_crps.shape[1])
        member_crps = self._score_blocks([member], [1.0])
        n_given = sum(part.batch_shape[-1] for part in member[0])
        if size is not None and size > n_given > 1:
            bonus = self._compute_bonus(member, member_crps, n_given, size)
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
        """The CRPS of every member. Shape: (members, rows)."""
        return self.raw_member_crps - self.ensemble_bonus

    def _compute_bonus(self, member: Blocks, mixture_crps: np.ndarray, n_given: int, size: int) -> np.ndarray:
        """Estimate how much lower the CRPS is for a mixture of `size` distributions than for one of the given ones.

        If two distributions have the mean distance D, the CRPS of a mixture of k of them is (k - 1) / 2k D below their
        mean CRPS.
        """
        singles = [self._score_blocks([[_take_component(parts, j) for parts in member]], [1.0]) for j in range(n_given)]
        distance = np.maximum((np.mean(singles, axis=0) - mixture_crps) * 2.0 * n_given / (n_given - 1.0), 0.0)
        return distance * ((size - 1.0) / (2.0 * size) - (n_given - 1.0) / (2.0 * n_given))

    def _score_blocks(self, members: Sequence[Blocks], weights: Sequence[float]) -> np.ndarray:
        """Compute the CRPS of a mixture of members, block by block."""
        scores = []
        for sample, *parts in zip(self.blocks, *members, strict=True):
            check_deadline()
            dist = mix_members(parts, weights)
            scores.append(crps(censor_rows(dist, sample.limit), torch.from_numpy(sample.y)).double().numpy())
        return np.concatenate(scores)

    def compute_crps(self, weights: np.ndarray) -> np.ndarray:
        """Compute the CRPS of every row for the mixture with these weights."""
        return weights @ self.member_crps - np.einsum("i,j,ijr->r", weights, weights, self.pair_gain)

    def minimize_crps(self, share: np.ndarray) -> np.ndarray:
        """Find the weights with the smallest mean CRPS, a convex problem on the simplex.

        `share` has the row weights.
        """
        crps, gain = self.member_crps @ share, self.pair_gain @ share
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
    """Return one of the distributions of each row, as a batch of shape (rows, 1)."""
    for part in parts:
        rows, k = part.batch_shape
        if number < k:
            flat = reshape_batch(part, (rows * k,))
            return [reshape_batch(select_rows(flat, torch.arange(rows) * k + number), (rows, 1))]
        number -= k
    raise IndexError(number)


def choose_mixture_weights(scores: MixtureScores, weight: np.ndarray) -> np.ndarray:
    """Choose mixture weights by held-out CRPS, shrunk towards equal weights.

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
