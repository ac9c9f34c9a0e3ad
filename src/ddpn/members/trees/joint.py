"""Boosting of all raw outputs of a head in step: one tree per fold, output and round, by gradient and curvature."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.members.trees.boosting import Booster, FoldData, Growing, Settings
from ddpn.members.trees.table import TreeRows
from ddpn.networks.heads import Head
from ddpn.networks.heads.head import DISPERSION_FLOOR
from ddpn.networks.heads.start import fit as fit_constants
from ddpn.runtime.threads import single_thread
from ddpn.sample import Sample

#: Rounds of the locations alone, after each of which the constants of the other outputs are fitted again: boosted from
#: the first round on, a dispersion collapses onto its clamp.
_WARM = (10, 20, 40, 80)
#: A round of the other outputs goes with so many of the locations, and their trees have at most so many leaves.
_EVERY, _LEAVES = 2, 8
#: The longest step of a leaf on a log scale, before the learning rate.
_LONGEST = 2.0
#: How far constants may move when they are fitted again.
_REACH = 20.0


class Joint(NamedTuple):
    """Constants, the boosters of every fold by raw output (None for a constant), and the out-of-fold raw outputs."""

    start: np.ndarray
    boosters: list[list[Booster | None]]
    out_of_fold: np.ndarray


def raw_outputs(
    start: np.ndarray, boosters: Sequence[Sequence[Booster | None]], inputs: Sequence[np.ndarray]
) -> np.ndarray:
    """Constants plus the mean over the folds of each output's trees. Shape: (rows, P)."""
    raw = np.tile(start, (len(inputs[0]), 1))
    for fold, matrix in zip(boosters, inputs, strict=True):
        for output, booster in enumerate(fold):
            if booster is not None:
                raw[:, output] += booster.raw(matrix) / len(boosters)
    return raw


class JointFit:
    """Lock-step boosting in folds.

    Where a tree of the locations is fitted, the other outputs are out of fold, and the other way round: a dispersion
    that is learned around locations that know their rows is too small everywhere.
    """

    def __init__(self, head: Head, rows: TreeRows, sample: Sample, settings: Settings) -> None:
        self.head, self.settings = head, settings
        self.share = sample.weight_or_ones / sample.weight_or_ones.mean()
        self.sample = sample.replace(X=None, weight=None).map(torch.from_numpy)
        self.locations = set(head.locations)
        self.others = [p for p in range(head.n_raw) if p not in self.locations]
        with single_thread():
            found = head.sample_start(self.sample.replace(weight=torch.from_numpy(self.share)))
        self.start = found.numpy().copy()
        #: Out-of-fold raw outputs.
        self.raw = np.tile(self.start, (len(sample), 1))
        data, free = FoldData(rows), rows._replace(directions=None)
        longest = _LONGEST if head.is_count else 0.0
        self._growing: list[list[Growing | None]] = []
        for fold in range(len(rows.folds)):
            each: list[Growing | None] = []
            for output, sees in enumerate(head.sees):
                if output in self.locations:
                    each.append(Growing(data, rows, fold, settings, own=True, longest=longest))
                elif sees == "nothing":
                    each.append(None)
                else:
                    small = settings._replace(leaves=min(settings.leaves, _LEAVES))
                    each.append(Growing(data, free, fold, small, own=True, longest=_LONGEST))
            self._growing.append(each)

    def run(self) -> Joint:
        """Locations first, then all outputs, each time until the out-of-fold loss falls no more."""
        left = self.settings.rounds
        for rounds in _WARM:
            gained = self._rounds(lambda done: self.locations, min(rounds, left))
            left = max(0, left - rounds)
            self._refit()
            if not gained:
                break
        everything = set(range(self.head.n_raw))
        self._rounds(lambda done: self.locations if done % _EVERY else everything, left)
        self._refit()
        boosters: list[list[Booster | None]] = [
            [None if growing is None else growing.booster(growing.rounds) for growing in fold] for fold in self._growing
        ]
        return Joint(self.start, boosters, self.raw)

    def _rounds(self, outputs: Callable[[int], Collection[int]], most: int) -> bool:
        """Boost, return to the best round, and say whether there was any gain."""
        best, best_round, kept, best_raw = self._loss(), 0, self._counts(), self.raw.copy()
        for done in range(1, most + 1):
            self._step(outputs(done))
            loss = self._loss()
            if loss < best:
                best, best_round, kept, best_raw = loss, done, self._counts(), self.raw.copy()
            if not np.isfinite(loss) or done - best_round >= self.settings.patience:
                break
        self.raw = best_raw
        for fold, rounds in zip(self._growing, kept, strict=True):
            for growing, number in zip(fold, rounds, strict=True):
                if growing is not None:
                    growing.roll_back(number)
        return best_round > 0

    def _counts(self) -> list[list[int]]:
        return [[0 if growing is None else growing.rounds for growing in fold] for fold in self._growing]

    def _loss(self) -> float:
        with torch.no_grad(), single_thread():
            return float(self.share @ self.head.sample_loss(torch.from_numpy(self.raw), self.sample).numpy())

    def _step(self, outputs: Collection[int]) -> None:
        """One tree per fold for each of these outputs, all from the same raw outputs."""
        after = self.raw.copy()
        for group in (self.locations, self.others):
            if grown := [p for p in group if p in outputs]:
                self._grow(group, grown, after)
        self.raw = after

    def _grow(self, group: Collection[int], grown: Sequence[int], after: np.ndarray) -> None:
        """Trees of some outputs of a group; `after` gets the new out-of-fold outputs."""
        inner = [next(growing for growing in fold if growing is not None).inner for fold in self._growing]
        raws = [self.raw[rows] for rows in inner]
        for fold, raw in zip(self._growing, raws, strict=True):
            for p in group:
                if (own := fold[p]) is not None:
                    raw[:, p] = self.start[p] + own.scores
        every = np.concatenate(inner)
        with single_thread():  # all folds at once
            rows = self.sample.rows(torch.from_numpy(every))
            at = torch.from_numpy(np.concatenate(raws))
            both = self.head.gradient(at, rows), self.head.curvature(at, rows)
        gradient, curvature = (each.numpy() * self.share[every, None] for each in both)
        ends = np.cumsum([len(rows) for rows in inner])
        for fold, end, size in zip(self._growing, ends, map(len, inner), strict=True):
            for p in grown:
                if (growing := fold[p]) is None:
                    continue
                part = slice(end - size, end)
                least = 0.0 if p in self.locations else DISPERSION_FLOOR * self.share[every[part]]
                steps = np.ascontiguousarray(gradient[part, p]), np.maximum(curvature[part, p], least)
                growing.grow(partial(_known, steps))
                after[growing.outer, p] = self.start[p] + growing.held_out

    def _refit(self) -> None:
        """Move the constants of the other outputs to where the out-of-fold loss is smallest."""
        if not self.others:
            return
        raw, share = torch.from_numpy(self.raw), torch.from_numpy(self.share)
        where = torch.zeros(len(self.others), self.head.n_raw, dtype=torch.float64)
        where[torch.arange(len(self.others)), torch.tensor(self.others)] = 1.0

        def loss(shift: Tensor) -> Tensor:
            return share @ self.head.sample_loss(raw + shift @ where, self.sample) / share.sum()

        with single_thread():
            bounds = [(-_REACH, _REACH)] * len(self.others)
            shift = fit_constants(loss, torch.zeros(len(self.others), dtype=torch.float64), bounds).numpy()
        self.start[self.others] += shift
        self.raw[:, self.others] += shift


def _known(steps: tuple[np.ndarray, np.ndarray], scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An objective whose derivatives are there already."""
    return steps
