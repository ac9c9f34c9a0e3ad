"""Boosting of the raw outputs of a head: all of them in step, or those that say how wide counts spread."""

from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ddpn.members.trees.booster import Booster
from ddpn.members.trees.boosting import UNLIMITED, FoldData, Growing, Settings, best_round
from ddpn.members.trees.table import MANY_ROWS, MAX_COLUMNS, TreeRows
from ddpn.networks.heads import Head, make_head
from ddpn.networks.heads.head import DISPERSION_FLOOR
from ddpn.networks.heads.head import fit as fit_constants
from ddpn.runtime.deadlines import Clock
from ddpn.runtime.threads import single_thread
from ddpn.sample import Sample

#: Likelihoods to choose from around a boosted mean.
FAMILIES = ("negative_binomial", "double_poisson")
#: Rounds of the locations alone, after each of which the constants of the other outputs are fitted again: boosted from
#: the first round on, a dispersion collapses onto its clamp.
_WARM = (10, 20, 40, 80)
#: A round of the other outputs goes with so many of the locations, and their trees have at most so many leaves.
_EVERY, _LEAVES = 2, 8
#: The longest step of a leaf on a log scale, before the learning rate.
_LONGEST = 2.0
#: How far constants may move when they are fitted again, and rows that they are known well enough from.
_REACH, _ROWS = 20.0, 20_000
#: Around a boosted mean: small trees and few rounds, as how wide counts spread is much harder to learn than where they
#: lie. Fewer rows do not say how it varies.
_SETTINGS, _FEWER_LEAVES, _LEAST_ROWS = Settings(leaves=_LEAVES, rate=0.1, rounds=300, patience=10), 4, 200
#: Raw outputs are rounded to this where their curvature is shared.
_ROUNDED = 0.1
#: Standard errors of the paired difference by which trees of the dispersion must reduce the out-of-fold loss.
_CLEAR = 2.0


class OutputsFit:
    """Constants of all raw outputs, and boosters in folds that add to them.

    Where a tree of the locations is fitted, the other outputs are out of fold, and the other way round: a dispersion
    that is learned around locations that know their rows is too small everywhere.

    Parameters
    ----------
    head : Head
        The likelihood.
    sample : Sample
        Counts, with how many times each row counts, exposures, bounds and limits.
    seed : int
        Seed of the choice of rows that constants are fitted to.
    known : array, shape (rows, outputs), optional
        Raw outputs that are known, out of fold; constants of those that are no locations are added to them. Default:
        raw outputs are constants.
    """

    def __init__(self, head: Head, sample: Sample, seed: int, known: np.ndarray | None = None) -> None:
        self.head, self.locations = head, set(head.locations)
        self.others = [p for p in range(head.n_raw) if p not in self.locations]
        self.share = sample.weight_or_ones / sample.weight_or_ones.mean()
        self.sample = sample.replace(X=None, weight=None).map(torch.from_numpy)
        self._some = np.random.default_rng(seed).permutation(len(sample))[:_ROWS]
        self._growing: list[list[Growing | None]] = []
        self._curvature: np.ndarray | None = None
        #: Constants, and the raw outputs of every row, out of fold.
        self.start, self.raw = np.zeros(head.n_raw), np.zeros((len(sample), head.n_raw))
        if known is None:
            with single_thread():
                found = head.sample_start(self.sample.replace(weight=torch.from_numpy(self.share)))
            self.start = found.numpy().copy()
            self.raw = np.tile(self.start, (len(sample), 1))
        else:
            self.raw = known.copy()
            self._refit()

    def losses(self) -> np.ndarray:
        """The weighted out-of-fold loss of every row."""
        with torch.no_grad(), single_thread():
            return self.share * self.head.sample_loss(torch.from_numpy(self.raw), self.sample).numpy()

    def boosters(self) -> list[list[Booster]]:
        """For every raw output, the boosters of all folds whose mean is added to the constant; none for a constant."""
        each = [[fold[p] for fold in self._growing] for p in range(self.head.n_raw)]
        return [[growing.booster(growing.rounds) for growing in own if growing is not None] for own in each]

    # Boosting ----------------------------------------------------------------------------------------------------

    def boost_all(self, rows: TreeRows, settings: Settings, clock: Clock = UNLIMITED) -> None:
        """Boost locations first, then all outputs, each time until the out-of-fold loss falls no more."""
        everything = set(range(self.head.n_raw))
        self._begin(rows, settings, everything)
        left = settings.rounds
        for rounds in _WARM:
            gained = self._rounds(lambda done: self.locations, settings._replace(rounds=min(rounds, left)), clock)
            left = max(0, left - rounds)
            self._refit()
            if not gained:
                break
        last = settings._replace(rounds=left)
        self._rounds(lambda done: self.locations if done % _EVERY else everything, last, clock)
        self._refit()

    def boost_others(self, rows: TreeRows, settings: Settings, clock: Clock = UNLIMITED) -> None:
        """Boost all outputs but the locations, unless that is not clearly better than constants."""
        raw, before = self.raw, self.losses()
        self._begin(rows, settings, self.others)
        self._rounds(lambda done: self.others, settings, clock, rarely=True)
        gain = before - self.losses()
        if gain.sum() <= _CLEAR * np.sqrt(len(gain)) * gain.std():
            self.raw, self._growing = raw, []

    def _begin(self, rows: TreeRows, settings: Settings, outputs: Collection[int]) -> None:
        """A booster without trees for every fold, and each of these outputs that depends on the inputs."""
        data, free = FoldData(rows), rows._replace(directions=None)
        small = settings._replace(leaves=min(settings.leaves, _LEAVES))
        longest = _LONGEST if self.head.is_count else 0.0
        for fold in range(len(rows.folds)):
            each: list[Growing | None] = []
            for output, sees in enumerate(self.head.sees):
                if output not in outputs or (output in self.others and sees == "nothing"):
                    each.append(None)
                elif output in self.locations:
                    each.append(Growing(data, rows, fold, settings, own=True, longest=longest))
                else:
                    each.append(Growing(data, free, fold, small, own=True, longest=_LONGEST))
            self._growing.append(each)

    def _rounds(
        self, outputs: Callable[[int], Collection[int]], settings: Settings, clock: Clock, rarely: bool = False
    ) -> bool:
        """Boost, return to the best round, and say whether there was any gain.

        Curvatures are computed again in every round, or `rarely`: in rounds 1, 2, 4, 8 and so on. They change slowly,
        take longer than gradients, and only scale the steps.
        """
        kept, best_raw = self._counts(), self.raw.copy()

        def step(done: int) -> float:
            self._step(outputs(done), refresh=not rarely or done & (done - 1) == 0)
            return float(self.losses().sum())

        def keep() -> None:
            nonlocal kept, best_raw
            kept, best_raw = self._counts(), self.raw.copy()

        best = best_round(step, settings, clock, float(self.losses().sum()), keep)
        self.raw = best_raw
        for fold, rounds in zip(self._growing, kept, strict=True):
            for growing, number in zip(fold, rounds, strict=True):
                if growing is not None:
                    growing.roll_back(number)
        return best > 0

    def _counts(self) -> list[list[int]]:
        return [[0 if growing is None else growing.rounds for growing in fold] for fold in self._growing]

    def _step(self, outputs: Collection[int], refresh: bool) -> None:
        """One tree per fold for each of these outputs, all from the same raw outputs."""
        after = self.raw.copy()
        for group in (self.locations, self.others):
            if grown := [p for p in group if p in outputs]:
                self._grow(group, grown, after, refresh)
        self.raw = after

    def _grow(self, group: Collection[int], grown: Sequence[int], after: np.ndarray, refresh: bool) -> None:
        """Trees of some outputs of a group; `after` gets the new out-of-fold outputs."""
        growing = [[fold[p] for p in grown] for fold in self._growing]
        if not any(each is not None for fold in growing for each in fold):
            return
        inner = [next(each for each in fold if each is not None).inner for fold in growing]
        raws = [self.raw[rows] for rows in inner]
        for fold, raw in zip(self._growing, raws, strict=True):
            for p in group:
                if (own := fold[p]) is not None:
                    raw[:, p] = self.start[p] + own.scores
        every = np.concatenate(inner)
        gradient, curvature = self._derivatives(np.concatenate(raws), every, refresh)
        ends = np.cumsum([len(rows) for rows in inner])
        for fold, end, size in zip(growing, ends, map(len, inner), strict=True):
            part = slice(end - size, end)
            for p, each in zip(grown, fold, strict=True):
                if each is not None:
                    least = 0.0 if p in self.locations else DISPERSION_FLOOR * self.share[every[part]]
                    steps = np.ascontiguousarray(gradient[part, p]), np.maximum(curvature[part, p], least)
                    each.grow(partial(_known, steps))
                    after[each.outer, p] = self.start[p] + each.held_out

    def _derivatives(self, raw: np.ndarray, rows: np.ndarray, refresh: bool) -> tuple[np.ndarray, np.ndarray]:
        """Weighted gradients and curvatures of the rows of all folds at once; curvatures as before unless `refresh`."""
        known, at = self.sample.rows(torch.from_numpy(rows)), torch.from_numpy(raw)
        share = self.share[rows, None]
        with single_thread():
            gradient = self.head.gradient(at, known).numpy() * share
            if refresh or self._curvature is None:
                self._curvature = self._curvatures(at, known).numpy() * share
        return gradient, self._curvature

    def _curvatures(self, raw: Tensor, rows: Sample) -> Tensor:
        """Curvatures; around a boosted mean, rows whose raw outputs agree to 0.1 share one, as it only scales steps."""
        if rows.exposure is not None or any(fold[p] is not None for fold in self._growing for p in self.locations):
            return self.head.curvature(raw, rows)
        distinct, place = (raw / _ROUNDED).round().unique(dim=0, return_inverse=True)
        return self.head.curvature(_ROUNDED * distinct, rows.rows(slice(0, len(distinct))))[place]

    def _refit(self) -> None:
        """Move the constants of the other outputs to where the out-of-fold loss is smallest."""
        if not self.others:
            return
        raw, share = torch.from_numpy(self.raw[self._some]), torch.from_numpy(self.share[self._some])
        rows = self.sample.rows(torch.from_numpy(self._some))
        where = torch.zeros(len(self.others), self.head.n_raw, dtype=torch.float64)
        where[torch.arange(len(self.others)), torch.tensor(self.others)] = 1.0

        def loss(shift: Tensor) -> Tensor:
            return share @ self.head.sample_loss(raw + shift @ where, rows) / share.sum()

        with single_thread():
            bounds = [(-_REACH, _REACH)] * len(self.others)
            shift = fit_constants(loss, torch.zeros(len(self.others), dtype=torch.float64), bounds).numpy()
        self.start[self.others] += shift
        self.raw[:, self.others] += shift


def fit_around(rows: TreeRows, log_rate: np.ndarray, sample: Sample, seed: int, clock: Clock = UNLIMITED) -> OutputsFit:
    """Learn the dispersion of counts whose means are known without them: a constant, or boosted where that is better.

    The likelihood is that with the larger out-of-fold likelihood at its best constant. With exposures it is the
    Negative Binomial, whose mean is the boosted one at every exposure.

    Parameters
    ----------
    rows : TreeRows
        Inputs and folds. The log mean, exposure included, is a further input.
    log_rate : array
        Logarithms of out-of-fold means per exposure.
    sample : Sample
        Counts, with how many times each row counts and its exposure.
    seed : int
        Seed of the boosters.
    clock : Clock
        Boosters grow no longer than this; constants are found in any case.
    """
    names = FAMILIES if sample.exposure is None else FAMILIES[:1]
    known = np.stack([log_rate, np.zeros_like(log_rate)], 1)
    found = min((OutputsFit(make_head(n), sample, seed, known) for n in names), key=lambda fit: fit.losses().sum())
    if len(sample) >= _LEAST_ROWS and rows.matrix.shape[1] <= MAX_COLUMNS and clock.left:
        log_mean = log_rate if sample.exposure is None else log_rate + np.log(sample.exposure)
        leaves = _SETTINGS.leaves if len(sample) >= MANY_ROWS else _FEWER_LEAVES
        found.boost_others(rows.with_column(log_mean), _SETTINGS._replace(seed=seed, leaves=leaves), clock)
    return found


def _known(steps: tuple[np.ndarray, np.ndarray], scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An objective whose derivatives are there already."""
    return steps
