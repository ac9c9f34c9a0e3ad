"""Fit the dispersion of counts around the means that boosted trees predict.

The log dispersion is a constant, optionally plus the output of further boosted trees. It is the second raw output of
the likelihood: log alpha for a Negative Binomial, whose variance is mean + alpha mean^2, and log gamma for a Double
Poisson, whose variance is about mu / gamma. So the variance rises with alpha, but falls with gamma.
"""

import numpy as np
import torch
from torch import Tensor

from ddpn.members.trees.booster import Booster
from ddpn.members.trees.boosting import BoostedTrees, FoldData, Settings, TreeRows, boost_until_best
from ddpn.networks.heads import Head, make_head
from ddpn.networks.heads.constant_fit import minimise_loss as fit_constants
from ddpn.networks.heads.head import MIN_DISPERSION_CURVATURE
from ddpn.rows.count_rows import CountRows
from ddpn.rows.splits import SMALL_TABLE_ROWS
from ddpn.runtime.deadlines import NO_LIMIT, Clock
from ddpn.runtime.threads import single_thread
from ddpn.tables.encoding.steps import MAX_COLUMNS

#: Likelihoods to choose from around a boosted mean: a log mean and the logarithm of a dispersion.
FAMILIES = ("negative_binomial", "double_poisson")
#: The largest absolute value of a constant log dispersion, and the most rows to which it is fitted.
_MAX_CONSTANT, _CONSTANT_ROWS = 20.0, 20_000
#: The number of leaves of dispersion trees for small and for large tables, and the fewest rows to boost a dispersion.
#: Dispersion is much harder to learn than the mean.
_DISPERSION_LEAVES, _LARGE_TABLE_DISPERSION_LEAVES, _MIN_DISPERSION_ROWS = 4, 8, 200
#: Raw outputs are rounded to multiples of this, so that rows with equal ones share a curvature.
_CURVATURE_STEP = 0.1
#: The number of standard errors of the paired difference by which dispersion trees must reduce the out-of-fold loss.
_MIN_STANDARD_ERRORS = 2.0


class DispersionFit:
    """The log dispersion of counts around fitted means: a constant, optionally plus one booster per fold.

    The constructor computes the constant, and `boost` adds the boosters. The log dispersion is log alpha for a Negative
    Binomial, and log gamma for a Double Poisson.

    The means must be out of fold. Otherwise the counts would vary too little around means that were fitted to them, and
    the variance would be too small. The predictions of the boosters are out of fold for the same reason.

    Parameters
    ----------
    head : Head
        The likelihood, a Negative Binomial or Double Poisson.
    sample : CountRows
        The counts of the rows, with weights and exposures if there are any.
    seed : int
        Draws the 20,000 rows from which the constant is computed, if there are more.
    log_rate : array, shape (rows,)
        The log of mean / exposure of each row; without exposures, the log mean.
    offset : array, shape (rows,), optional
        A fixed term of each row's log dispersion, to which the constant is added. Default: 0.
    """

    def __init__(
        self, head: Head, sample: CountRows, seed: int, log_rate: np.ndarray, offset: np.ndarray | None = None
    ) -> None:
        self.head, self.share = head, sample.weight_or_ones / sample.weight_or_ones.mean()
        self.sample = sample.replace(X=None, weight=None).map(torch.from_numpy)
        #: The out-of-fold raw outputs of every row: log rate and log dispersion. Shape: (rows, 2).
        self.raw = np.stack([log_rate, np.zeros_like(log_rate) if offset is None else offset], 1)
        self._growing: list[BoostedTrees] = []
        self._curvature: np.ndarray | None = None
        # The constant with the smallest loss on a sample of the rows.
        sampled = np.random.default_rng(seed).permutation(len(sample))[:_CONSTANT_ROWS]
        raw, share = torch.from_numpy(self.raw[sampled]), torch.from_numpy(self.share[sampled])
        rows, direction = self.sample.rows(sampled), torch.tensor([0.0, 1.0], dtype=torch.float64)

        def loss(constant: Tensor) -> Tensor:
            return share @ head.sample_loss(raw + constant * direction, rows) / share.sum()

        with single_thread():
            self.constant = float(
                fit_constants(loss, torch.zeros(1, dtype=torch.float64), [(-_MAX_CONSTANT, _MAX_CONSTANT)])
            )
        self.raw[:, 1] += self.constant

    def losses(self) -> np.ndarray:
        """Compute the out-of-fold loss of each row times its weight, where weights have mean 1. Shape: (rows,)."""
        with torch.no_grad(), single_thread():
            return self.share * self.head.sample_loss(torch.from_numpy(self.raw), self.sample).numpy()

    def to_boosters(self) -> list[Booster]:
        """Return the booster of each fold, or an empty list if the dispersion is constant.

        The predicted log dispersion of a row is the constant plus the mean output of these boosters.
        """
        return [growing.to_booster(growing.rounds) for growing in self._growing]

    def boost(self, rows: TreeRows, settings: Settings, clock: Clock = NO_LIMIT) -> None:
        """Add boosted trees to the log dispersion until the out-of-fold loss stops improving.

        `rows` has the inputs and folds of the rows, in the same order as the counts. `settings` are those of the trees.
        If the time of `clock` is up, the search for the best number of trees ends. The trees are discarded if they are
        not clearly better than the constant alone, that is, unless they reduce the out-of-fold loss by more than two
        standard errors of this reduction.
        """
        constant, before = self.raw, self.losses()
        data = FoldData(rows)
        self._growing = [BoostedTrees(data, rows, fold, settings, is_custom=True) for fold in range(len(rows.folds))]
        kept, best = [0] * len(self._growing), self.raw.copy()

        def add_round(number: int) -> float:
            # Curvatures are rarely updated: they change slowly, take longer than gradients, and only scale the steps.
            self._grow(update_curvatures=number & (number - 1) == 0)
            return float(self.losses().sum())

        def keep_best() -> None:
            nonlocal kept, best
            kept, best = [growing.rounds for growing in self._growing], self.raw.copy()

        boost_until_best(add_round, settings, clock, float(before.sum()), keep_best)
        self.raw = best
        for growing, rounds in zip(self._growing, kept, strict=True):
            growing.roll_back(rounds)
        gain = before - self.losses()
        if gain.sum() <= _MIN_STANDARD_ERRORS * np.sqrt(len(gain)) * gain.std():
            self.raw, self._growing = constant, []

    def _grow(self, update_curvatures: bool) -> None:
        """Add one tree to the booster of each fold.

        A tree is fitted to the gradients and the curvatures of the losses. If `update_curvatures` is False, the
        curvatures of an earlier round are used again.
        """
        train_rows = [growing.train_rows for growing in self._growing]
        raws, after = [self.raw[index] for index in train_rows], self.raw.copy()
        for growing, raw in zip(self._growing, raws, strict=True):
            raw[:, 1] = self.constant + growing.train_scores
        fitted = np.concatenate(train_rows)
        at, rows, share = (
            torch.from_numpy(np.concatenate(raws)),
            self.sample.rows(fitted),
            self.share[fitted],
        )
        with single_thread():
            gradient = np.ascontiguousarray(self.head.gradient(at, rows).numpy()[:, 1]) * share
            if update_curvatures or self._curvature is None:
                self._curvature = self._compute_curvatures(at, rows).numpy()[:, 1] * share
        curvature = np.maximum(self._curvature, MIN_DISPERSION_CURVATURE * share)
        start = 0
        for growing in self._growing:
            part = slice(start, start + len(growing.train_rows))
            growing.grow((gradient[part], curvature[part]))
            after[growing.held_out_rows, 1] = self.constant + growing.held_out_scores
            start = part.stop
        self.raw = after

    def _compute_curvatures(self, raw: Tensor, rows: CountRows[object, Tensor]) -> Tensor:
        """Compute the curvature of each row's loss with respect to its raw outputs (`Head.curvature`).

        `raw` and the result have shape (rows, 2). Without exposures, raw outputs are first rounded to multiples of 0.1,
        and the curvature is computed once for all rows with equal values. This is accurate enough, because curvatures
        only scale the steps. It more than halves the time of a fit of 20,000 rows with a Negative Binomial.
        """
        if rows.exposure is not None:
            return self.head.curvature(raw, rows)
        # Pairs are sorted as complex numbers, which is many times faster than sorting rows.
        pairs = torch.view_as_complex((raw / _CURVATURE_STEP).round()).numpy()
        distinct, position = (torch.from_numpy(x) for x in np.unique(pairs, return_inverse=True))
        # The rows that are passed along matter only by their number: curvatures are expected ones, without the counts.
        return self.head.curvature(_CURVATURE_STEP * torch.view_as_real(distinct), rows.rows(slice(0, len(distinct))))[
            position
        ]


def fit_dispersion(
    rows: TreeRows, log_rate: np.ndarray, sample: CountRows, seed: int, clock: Clock = NO_LIMIT
) -> DispersionFit:
    """Fit the dispersion of counts around out-of-fold means: a constant, plus boosted trees if clearly better.

    The likelihood is Negative Binomial or Double Poisson, whichever has the lower loss with the best constant
    dispersion. With exposures or monotone columns, it is always Negative Binomial, because only its mean equals the
    boosted mean for any dispersion.

    `rows` has the inputs and folds of the training rows, and `sample` has their counts, weights and exposures, in the
    same order. `log_rate` has the out-of-fold log of mean / exposure of each row, shape (rows,). The trees use the log
    mean as an additional input. `seed` is the seed of all random choices.
    """
    names = FAMILIES if sample.exposure is None and rows.directions is None else FAMILIES[:1]
    fits = (DispersionFit(make_head(name), sample, seed, log_rate) for name in names)
    best = min(fits, key=lambda fit: fit.losses().sum())
    if len(sample) >= _MIN_DISPERSION_ROWS and rows.matrix.shape[1] <= MAX_COLUMNS and clock.left:
        log_mean = log_rate + np.log(sample.exposure_or_ones)
        leaves = _LARGE_TABLE_DISPERSION_LEAVES if len(sample) >= SMALL_TABLE_ROWS else _DISPERSION_LEAVES
        settings = Settings(leaves, learning_rate=0.1, rounds=300, patience=10, seed=seed)
        best.boost(rows.with_column(log_mean), settings, clock)
    return best
