"""How much of the mixture each member gets, chosen by the CRPS of validation rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions import CountDistribution, Mixture, discretized
from ddpn.distributions.recording import bounded, limited
from ddpn.distributions.stacking import reshaped, rows_of
from ddpn.members.member import Member
from ddpn.metrics import crps
from ddpn.sample import Sample
from ddpn.threads import single_thread

#: Steps on the way from the best weights to equal ones.
_STEPS = 100
#: Standard errors that equal weights may be worse by: 0.5 was no worse than 0.25 and 1 on the development tables.
_TOLERANCE = 0.5
#: Weights below this are 0: such a member costs time and changes no digit.
_NEGLIGIBLE = 0.005


def mix(distributions: Sequence[Distribution], weights: Sequence[float]) -> Mixture:
    """The weighted mixture of members' distributions. Shape: batch (rows, k_i) each -> (rows,).

    Each member's k distributions share its weight equally. Beside count distributions, Normals are rounded to counts.
    """
    if len(distributions) == 1:
        return Mixture(distributions[0])
    parts = _of_one_kind(distributions)
    shares = [np.full(part.batch_shape[-1], w / part.batch_shape[-1]) for part, w in zip(parts, weights, strict=True)]
    return Mixture.concatenate(parts, torch.from_numpy(np.concatenate(shares)))


def _of_one_kind(distributions: Sequence[Distribution]) -> list[Any]:
    """All of counts or all on the real line; where there are both, all of counts."""
    counts = [isinstance(dist, CountDistribution) for dist in distributions]
    return list(distributions) if all(counts) or not any(counts) else list(map(discretized, distributions))


class MixtureScores:
    """CRPS of every mixture of some members on the same rows, exactly and without predicting again.

    With c_i the CRPS of member i and G_ij = 2 (c_i + c_j) - 4 c_ij, where c_ij is that of the equal mixture of two, the
    mixture with weights w has the CRPS sum_i w_i c_i - sum_{i<j} w_i w_j G_ij: CRPS is quadratic in the distribution.
    `limit` is the largest count that can be recorded per row, where counts are censored.
    """

    def __init__(self, distributions: Sequence[Distribution], y: Tensor, limit: np.ndarray | None = None) -> None:
        self.y, self.limit = y, limit
        self.parts: list[Any] = []
        self.alone, self.bonus = np.zeros((0, len(y))), np.zeros((0, len(y)))
        self.gain = np.zeros((0, 0, len(y)))
        for part in _of_one_kind(distributions):
            self.add(part)

    def add(self, part: Any, size: int | None = None) -> None:
        """Take one more member into account; all are of counts, or all on the real line.

        `size` is the number of distributions per row that the member has in the mixture, where fewer are given here. A
        mixture of more has a smaller CRPS, by what these differ by among each other.
        """
        n, bonus = len(self.parts), np.zeros(len(self.y))
        own = self._scored([part], [1.0])
        if size is not None and size > part.batch_shape[-1] > 1:
            bonus = self._bonus(part, own, size)
        gain = np.zeros((n + 1, n + 1, len(self.y)))
        gain[:n, :n] = self.gain
        for j, (other, known) in enumerate(zip(self.parts, self.alone, strict=True)):
            pair = np.maximum(2.0 * (own + known) - 4.0 * self._scored([part, other], [0.5, 0.5]), 0.0)
            gain[n, j] = pair - bonus - self.bonus[j]
        self.parts.append(part)
        self.alone, self.bonus = np.concatenate([self.alone, own[None]]), np.concatenate([self.bonus, bonus[None]])
        self.gain = gain

    @property
    def each(self) -> np.ndarray:
        """CRPS of every member. Shape: (members, rows)."""
        return self.alone - self.bonus

    def _bonus(self, part: Any, own: np.ndarray, size: int) -> np.ndarray:
        """What a mixture of `size` distributions like these has less in CRPS than that of these.

        With the mean distance D of two distributions, that of k of them has (k - 1) / 2k D less than they have alone.
        """
        n, k = part.batch_shape
        flat, rows = reshaped(part, (n * k,)), torch.arange(n) * k
        singles = [self._scored([reshaped(rows_of(flat, rows + j), (n, 1))], [1.0]) for j in range(k)]
        distance = (np.mean(singles, axis=0) - own) * 2.0 * k / (k - 1.0)
        return np.maximum(distance, 0.0) * ((size - 1.0) / (2.0 * size) - (k - 1.0) / (2.0 * k))

    def _scored(self, parts: list[Any], weights: list[float]) -> np.ndarray:
        return crps(limited(mix(parts, weights), self.limit), self.y).double().numpy()

    def at(self, weights: np.ndarray) -> np.ndarray:
        """CRPS per row of the mixture with these weights."""
        return weights @ self.each - np.einsum("i,j,ijr->r", weights, weights, self.gain)

    def best(self, share: np.ndarray) -> np.ndarray:
        """The weights with the smallest mean CRPS, rows counting by `share`: a convex problem on the simplex."""
        each, gain = self.each @ share, self.gain @ share
        both, n = gain + gain.T, len(each)
        found = minimize(
            lambda w: w @ each - 0.5 * w @ both @ w,
            np.full(n, 1.0 / n),
            jac=lambda w: each - both @ w,
            bounds=[(0.0, 1.0)] * n,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: np.ones(n)},
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 500},
        )
        weights = np.clip(found.x, 0.0, None)
        return weights / weights.sum()


def shrunk_weights(scores: MixtureScores, weight: np.ndarray) -> np.ndarray:
    """The weights nearest to equal ones that are not clearly worse than the best.

    A few hundred rows choose weights by chance, and members that chose their epochs by the same rows look better on
    them than they are. So the best weights are moved towards equal ones as long as the mean CRPS is at most half a
    standard error of the paired difference above the smallest (as in the rule of Breiman, Friedman, Olshen and Stone,
    1984, with equal weights as the simplest model).
    """
    share = weight / weight.sum()
    best = scores.best(share)
    equal = np.full(len(best), 1.0 / len(best))
    lowest = scores.at(best)
    for step in range(_STEPS, 0, -1):
        candidate = best + (equal - best) * (step / _STEPS)
        worse = scores.at(candidate) - lowest
        mean = share @ worse
        if mean <= _TOLERANCE * np.sqrt(np.square(share) @ np.square(worse - mean)):
            best = candidate
            break
    kept = np.where(best < _NEGLIGIBLE, 0.0, best)
    return kept / kept.sum()


@torch.no_grad()
def choose_weights(members: Mapping[str, Member], validation: Sample) -> dict[str, float]:
    """Choose the mixture weights of fitted members.

    Parameters
    ----------
    members : mapping of str to Member
        Fitted members by name.
    validation : Sample
        Rows that none of them was trained on.

    Returns
    -------
    dict of float
        Weights by name, with sum 1.
    """
    parts = [member.distribution(validation.X, validation.exposure) for member in members.values()]
    with single_thread():
        parts = [bounded(part, validation.lower, validation.upper) for part in parts]
        scores = MixtureScores(parts, torch.from_numpy(validation.y), validation.limit)
    weights = shrunk_weights(scores, validation.weight_or_ones)
    return dict(zip(members, weights.tolist(), strict=True))
