"""Mix members, and choose their mixture weights by the CRPS of held-out rows, to which they were not fitted.

A member may predict several distributions per row, called its components (`Member.predict_components`). They are given
as a list of batches. A batch is a distribution of batch shape (rows, k): it has k components per row, which have equal
weights. Rows are predicted in blocks, to limit the use of memory.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch.distributions import Distribution

from ddpn.distributions import CountDistribution, Mixture, discretize
from ddpn.distributions.batch_shapes import reshape_batch, select_rows
from ddpn.distributions.limits import censor_rows
from ddpn.members.member import NotApplicableError
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


def mix_members(components: Sequence[Sequence[Distribution]], weights: Sequence[float]) -> Mixture:
    """Mix the predictions of several members, row by row, with the given mixture weights.

    `components` has one entry per member: a list of batches of distributions. A batch has shape (rows, k), where k may
    differ between batches. The mixture has shape (rows,). `weights` has one mixture weight per member. The weight of a
    member is divided equally among its batches, and the weight of a batch equally among its k distributions.

    If some batches are count distributions and others are continuous (such as Normals), the continuous ones are rounded
    to counts. If all are continuous, the mixture is continuous as well.
    """
    batches: list[Any] = [batch for member_batches in components for batch in member_batches]
    if len(batches) == 1:
        return Mixture(batches[0])
    if any(isinstance(batch, CountDistribution) for batch in batches):
        batches = list(map(discretize, batches))
    shares = [
        np.full(batch.batch_shape[-1], weight / len(member_batches) / batch.batch_shape[-1])
        for member_batches, weight in zip(components, weights, strict=True)
        for batch in member_batches
    ]
    return Mixture.concatenate(batches, torch.from_numpy(np.concatenate(shares)))


#: The components of one member: for each block of rows, a list of batches.
BlockComponents = Sequence[Sequence[Distribution]]


class MixtureScores:
    """Computes the CRPS of any mixture of members from the CRPS of each member and of each pair of members.

    Optimising mixture weights is therefore cheap: no distribution is evaluated again. The CRPS is quadratic in the
    predicted distribution. Let c_i be the CRPS of member i, c_ij the CRPS of the equal mixture of members i and j, and
    G_ij = 2 (c_i + c_j) - 4 c_ij. Then the mixture with weights w has exactly the CRPS sum_i w_i c_i - sum_{i<j} w_i
    w_j G_ij.

    `blocks` holds the rows to score, as several `CountRows` that are scored one after the other.
    """

    def __init__(self, blocks: Sequence[CountRows]) -> None:
        self.blocks, self.members, rows = list(blocks), list[BlockComponents](), sum(map(len, blocks))
        self.raw_member_crps, self.ensemble_gain = np.zeros((0, rows)), np.zeros((0, rows))
        self.pair_gain = np.zeros((0, 0, rows))

    @property
    def row_weights(self) -> np.ndarray:
        """The sample weight of each scored row. Shape: (rows,)."""
        return np.concatenate([block.weight_or_ones for block in self.blocks])

    def add(self, components: BlockComponents, n_components: int | None = None) -> None:
        """Score a new member, alone and mixed with each member that was added before.

        `components` has one entry per block of scored rows: the member's batches of distributions for these rows.
        Continuous distributions, such as Normals, are rounded to counts.

        `n_components` is the number of distributions per row with which the member predicts new rows. None means: as
        many as for the scored rows. For a cross-fitted member, it is larger than the number for the scored rows: a
        held-out row is predicted by a single copy of the member, but a new row by all copies. The scores are then
        lowered to an estimate of those that all copies together would have. If the scored rows have only one
        distribution each, this gain cannot be estimated, and the scores are not adjusted.

        Raise a `NotApplicableError` if the CRPS of the new member is infinite or NaN for some rows.
        """
        components = [list(map(discretize, batches)) for batches in components]
        n, ensemble_gain = len(self.members), np.zeros(self.raw_member_crps.shape[1])
        member_crps = self._score_blocks([components], [1.0])
        if invalid := int(np.count_nonzero(~np.isfinite(member_crps))):
            rows = f"{invalid:,} of {len(member_crps):,} held-out rows"
            raise NotApplicableError(f"it predicts distributions whose CRPS is not a finite number for {rows}")
        n_scored = sum(batch.batch_shape[-1] for batch in components[0])
        if n_components is not None and n_components > n_scored > 1:
            ensemble_gain = self._estimate_ensemble_gain(components, member_crps, n_scored, n_components)
        gain = np.zeros((n + 1, n + 1, len(member_crps)))
        gain[:n, :n] = self.pair_gain
        for j, (other, other_crps) in enumerate(zip(self.members, self.raw_member_crps, strict=True)):
            pair = np.maximum(
                2.0 * (member_crps + other_crps) - 4.0 * self._score_blocks([components, other], [0.5, 0.5]), 0.0
            )
            gain[n, j] = pair - ensemble_gain - self.ensemble_gain[j]
        self.members.append(components)
        self.raw_member_crps, self.ensemble_gain = (
            np.concatenate([self.raw_member_crps, member_crps[None]]),
            np.concatenate([self.ensemble_gain, ensemble_gain[None]]),
        )
        self.pair_gain = gain

    @property
    def member_crps(self) -> np.ndarray:
        """The CRPS of each member on each scored row. Shape: (members, rows)."""
        return self.raw_member_crps - self.ensemble_gain

    def _estimate_ensemble_gain(
        self, components: BlockComponents, mixture_crps: np.ndarray, n_scored: int, n_components: int
    ) -> np.ndarray:
        """Estimate how much lower each row's CRPS would be with `n_components` instead of `n_scored` distributions.

        The CRPS of an equal mixture of k distributions is their mean CRPS minus (k - 1) / (2 k) D, where D is the mean
        distance between two of them. `components` has the `n_scored` distributions per row, and `mixture_crps` the CRPS
        of their mixture for each row. The result has shape (rows,).
        """
        singles = [
            self._score_blocks([[_select_component(batches, j) for batches in components]], [1.0])
            for j in range(n_scored)
        ]
        distance = np.maximum((np.mean(singles, axis=0) - mixture_crps) * 2.0 * n_scored / (n_scored - 1.0), 0.0)
        return distance * ((n_components - 1.0) / (2.0 * n_components) - (n_scored - 1.0) / (2.0 * n_scored))

    def _score_blocks(self, members: Sequence[BlockComponents], weights: Sequence[float]) -> np.ndarray:
        """Compute the CRPS of each scored row for a mixture of members. The result has shape (rows,).

        `members` has the components of each member: one entry per block of scored rows, a list of batches of
        distributions. `weights` has the mixture weight of each member. These weights must add up to 1.
        """
        scores = []
        for sample, *components in zip(self.blocks, *members, strict=True):
            check_deadline()
            dist = mix_members(components, weights)
            scores.append(crps(censor_rows(dist, sample.limit), torch.from_numpy(sample.y)).double().numpy())
        return np.concatenate(scores)

    def compute_crps(self, weights: np.ndarray) -> np.ndarray:
        """Compute the CRPS of each row for the mixture of all added members with the mixture weights `weights`.

        The weights must add up to 1. Shape: (members,) -> (rows,).
        """
        return weights @ self.member_crps - np.einsum("i,j,ijr->r", weights, weights, self.pair_gain)

    def minimize_crps(self, row_weights: np.ndarray) -> np.ndarray:
        """Find the mixture weights with the smallest weighted mean CRPS, a convex problem on the simplex.

        `row_weights` has the weight of each scored row in this mean. The row weights must add up to 1, and so do the
        returned mixture weights. Shape: (rows,) -> (members,).
        """
        crps, gain = self.member_crps @ row_weights, self.pair_gain @ row_weights
        symmetric_gain, n = gain + gain.T, len(crps)
        result = minimize(
            lambda w: w @ crps - 0.5 * w @ symmetric_gain @ w,
            np.full(n, 1.0 / n),
            jac=lambda w: crps - symmetric_gain @ w,
            bounds=[(0.0, 1.0)] * n,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: np.ones(n)},
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 500},
        )
        weights = np.clip(result.x, 0.0, None)
        return weights / weights.sum()


def _select_component(batches: Sequence[Distribution], index: int) -> list[Distribution]:
    """Select the component number `index` of every row, and return it as a list of one batch of shape (rows, 1).

    Each batch has all rows and some of the components of each row: its batch shape is (rows, k). Components are
    numbered from 0, first those of the first batch, then those of the next.
    """
    for batch in batches:
        rows, k = batch.batch_shape
        if index < k:
            flat = reshape_batch(batch, (rows * k,))
            return [reshape_batch(select_rows(flat, torch.arange(rows) * k + index), (rows, 1))]
        index -= k
    raise IndexError(index)


def choose_mixture_weights(scores: MixtureScores, row_weights: np.ndarray) -> np.ndarray:
    """Choose mixture weights by the CRPS of held-out rows, shrunk towards equal weights.

    `row_weights` has the sample weight of each scored row, on any scale. The result has one mixture weight per member;
    they add up to 1.

    A few hundred rows determine mixture weights poorly. Moreover, a member that chose its number of epochs on the same
    rows has a CRPS that is too good. The mixture weights with the smallest mean CRPS are therefore moved towards equal
    weights, as far as possible while the mean CRPS rises by at most half the standard error of this rise. This follows
    the one-standard-error rule of Breiman, Friedman, Olshen and Stone (1984), with equal weights as the simplest model.
    Finally, mixture weights below 0.005 are set to 0, and the others are rescaled to add up to 1.
    """
    share = row_weights / row_weights.sum()
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
