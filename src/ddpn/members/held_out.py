"""Predictions of held-out rows, which every member computes only once and which are then reused.

The predictions are used to choose mixture weights, recalibration maps and interval levels, to compute out-of-fold
scores, and to warn of heavy tails. `ddpn.members.folds` explains which rows are held out.

Held-out rows are divided into disjoint parts. If members are cross-fitted, each part is a fold. Calibration is fitted
to some parts and tested on another one. A block is a set of rows of one part that are predicted together. It is
represented by an ascending array of the positions of these rows in `MemberPredictions.rows`, where rows are sorted by
part. The components of a member are the distributions whose mixture it predicts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch.distributions import Distribution

from ddpn.distributions import Mixture
from ddpn.distributions.batch_shapes import select_rows
from ddpn.distributions.limits import truncate_rows
from ddpn.members.blending import MIXTURE, mix_members
from ddpn.members.folds import Folds, get_fold_copies
from ddpn.members.member import Member, predict_valid_components
from ddpn.rows.count_rows import BLOCK, CountRows
from ddpn.rows.splits import FOLDS, assign_folds
from ddpn.runtime.deadlines import check_deadline


class MemberPredictions:
    """Held-out rows and the distributions that members predict for them, computed on first use.

    Members are added by `add`. The rows are divided into disjoint parts, so that calibration can be cross-fitted: for
    example, a recalibration map is fitted to all parts but one and tested on that one. If members are cross-fitted, the
    parts are the folds, and each fold is predicted by the copy of a member that was fitted without it. Otherwise, no
    member was fitted to any of the rows, and the parts are random.

    Parameters
    ----------
    rows : CountRows
        The held-out rows. They include the bounds of counts, if counts are bounded (`CountRange.apply`).
    part : array of int, shape (rows,)
        The number of the part to which each row belongs, from 0.
    is_crossed : bool
        True if the parts are folds of cross-fitted members.
    seed : int
        The seed for drawing some of the rows if there is not enough time for all of them.

    Attributes
    ----------
    part : array of int, shape (rows,)
        The number of the part to which each row belongs, after the rows were sorted by part.
    source : array of int, shape (rows,)
        The position that each sorted row has in the `rows` argument.
    """

    def __init__(self, rows: CountRows, part: np.ndarray, is_crossed: bool, seed: int = 0) -> None:
        self.source = np.argsort(part, kind="stable")
        self._unsorted_rows, self.part = rows, part[self.source]
        self.is_crossed, self.seed = is_crossed, seed
        self.n_parts = int(part.max(initial=-1)) + 1
        self._members: dict[str, Member] = {}
        self._predicted: dict[str, list[tuple[np.ndarray, list[Distribution]]]] = {}
        # Rows that are predicted together.
        parts = [np.flatnonzero(self.part == number) for number in range(self.n_parts)]
        self._blocks = [rows[start : start + BLOCK] for rows in parts for start in range(0, len(rows), BLOCK)]

    @classmethod
    def from_rows(cls, rows: CountRows, seed: int = 0) -> Self:
        """Create an object for predictions of rows to which no member was fitted. Members are added later, by `add`.

        The rows are divided into random parts, between which calibration is cross-fitted. Groups stay together. `seed`
        is the seed of this division.
        """
        return cls(rows, assign_folds(len(rows), FOLDS, seed, rows.group), False, seed)

    @classmethod
    def from_folds(cls, folds: Folds, seed: int = 0) -> Self:
        """Create an object for predictions of the held-out rows of `folds`. Members are added later, by `add`.

        Calibration is cross-fitted between disjoint parts of the rows. If there are folds, the rows are all training
        rows, and the parts are the folds. Otherwise, the rows are the validation rows, and the parts are random, drawn
        with `seed`. Without folds and validation rows, there are no rows.
        """
        if folds.fold_numbers is not None:
            return cls(folds.train, folds.fold_numbers, True, seed)
        rows = folds.train.rows(slice(0, 0)) if folds.validation is None else folds.validation
        return cls.from_rows(rows, seed)

    def __len__(self) -> int:
        return len(self.part)

    @cached_property
    def rows(self) -> CountRows:
        """The held-out rows, sorted by the part (such as a fold) to which they belong."""
        return self._unsorted_rows.rows(self.source)

    def take_counts(self, block: np.ndarray) -> CountRows:
        """Return a block of rows without their inputs: only counts, weights, exposures and bounds.

        `block` has the positions of the rows in `self.rows`, as returned by `divide`.
        """
        return self._unsorted_rows.replace(X=None).rows(self.source[block])

    @property
    def names(self) -> list[str]:
        """The names of the members that were added."""
        return list(self._members)

    def add(self, name: str, member: Member) -> None:
        """Add a fitted member. Its predictions are computed when they are first requested."""
        self._members[name], self._predicted[name] = member, []

    def discard(self, name: str) -> None:
        """Remove a member and its predictions."""
        self._members.pop(name, None)
        self._predicted.pop(name, None)

    def divide(self, positions: np.ndarray) -> list[np.ndarray]:
        """Divide rows into blocks: arrays of the positions of rows that are predicted together.

        All positions are positions in `self.rows`. `positions` has those of the rows to divide. A block has ascending
        positions of rows of a single part (such as a fold). Blocks of earlier calls are reused, or split if only some
        of their rows are requested. So no row is predicted twice.
        """
        chosen = np.zeros(len(self), dtype=bool)
        chosen[positions] = True
        pieces = [piece for block in self._blocks for piece in (block[chosen[block]], block[~chosen[block]])]
        self._blocks = [piece for piece in pieces if len(piece)]
        return [block for block in self._blocks if chosen[block[0]]]

    @torch.no_grad()
    def predict(self, name: str, block: np.ndarray) -> list[Distribution]:
        """Predict a block of rows by a member, and truncate the distributions to the bounds of each row.

        Return a list of batches of shape (rows, k), the distributions that the member mixes. `name` is the member, and
        `block` has positions in `self.rows`, as returned by `divide`. If the member is cross-fitted, the rows are
        predicted by the copy that was fitted without the fold of these rows.
        """
        for positions, batches in self._predicted[name]:
            if block[0] in positions:
                if len(positions) == len(block):
                    return batches
                index = torch.from_numpy(np.searchsorted(positions, block))
                return [select_rows(batch, index) for batch in batches]
        check_deadline()
        member = self._members[name]
        copy = get_fold_copies(member)[self.part[block[0]]] if self.is_crossed else member
        rows = self._unsorted_rows.rows(self.source[block])
        components = predict_valid_components(copy, rows.X, rows.exposure)
        batches = [truncate_rows(part, rows.lower, rows.upper) for part in components]
        self._predicted[name].append((block, batches))
        return batches

    def count_components(self, name: str, blocks: Sequence[np.ndarray]) -> int:
        """Count the distributions that a member mixes for a new row.

        They are counted in its predictions of the held-out rows in `blocks` (positions in `self.rows`, as returned by
        `divide`). A cross-fitted member predicts a held-out row by one of its copies, but a new row by all of them.
        Therefore, the numbers of all copies are added up, and `blocks` must contain rows of every fold.
        """
        sizes = {
            int(self.part[block[0]]): sum(part.batch_shape[-1] for part in self.predict(name, block))
            for block in blocks
        }
        return sum(sizes.values()) if self.is_crossed else next(iter(sizes.values()))


@dataclass(frozen=True, eq=False)
class HeldOutPredictions:
    """A selection of held-out rows, with the distributions that members and their mixture predict before calibration.

    Parameters
    ----------
    predictions : MemberPredictions
        The predictions of the members, for all held-out rows. The rows are sorted by part (such as a fold).
    weights : sequence of mappings
        One mapping per part of the rows, from names of members to mixture weights. Members without a weight serve for
        comparison only.
    positions : array of int, shape (selected rows,)
        The ascending positions of the selected rows in `predictions.rows`.
    """

    predictions: MemberPredictions
    weights: Sequence[Mapping[str, float]]
    positions: np.ndarray

    def __len__(self) -> int:
        return len(self.positions)

    @cached_property
    def rows(self) -> CountRows:
        """The selected rows, sorted by the part (such as a fold) to which they belong."""
        whole = self.predictions.rows
        return whole if len(self) == len(whole) else whole.rows(self.positions)

    @property
    def part(self) -> np.ndarray:
        """The number of the part (such as a fold) to which each selected row belongs, ascending."""
        return self.predictions.part[self.positions]

    @property
    def source(self) -> np.ndarray:
        """The position of each selected row among all held-out rows in the original order, before sorting by part."""
        return self.predictions.source[self.positions]

    @property
    def n_parts(self) -> int:
        """The number of disjoint parts, such as folds, into which the held-out rows are divided."""
        return self.predictions.n_parts

    @property
    def is_crossed(self) -> bool:
        """True if the held-out rows are divided into the folds of cross-fitted members; False if into random parts."""
        return self.predictions.is_crossed

    @property
    def names(self) -> list[str]:
        """The word "mixture", followed by the names of the members."""
        return [MIXTURE, *self.predictions.names]

    def draw(self, number: int) -> Self:
        """Return a random selection of `number` of the selected rows, or of all of them if there are no more.

        The seed is `predictions.seed`. Two selections from the same rows are nested: the larger one contains the
        smaller one.
        """
        if number >= len(self):
            return self
        order = np.random.default_rng(self.predictions.seed).permutation(len(self))
        return replace(self, positions=self.positions[np.sort(order[:number])])

    def take(self, source: np.ndarray) -> Self:
        """Return those of the selected rows whose original positions are in `source`.

        An original position is the position among all held-out rows before they were sorted by part. Positions of rows
        that are not selected here are ignored.
        """
        return replace(self, positions=self.positions[np.isin(self.source, source)])

    def blocks(self, member: str = MIXTURE) -> Iterator[tuple[int, np.ndarray, Mixture]]:
        """Yield the predictions of the selected rows, block by block.

        For each block of rows, yield a tuple of three items:

        - the number of the part, such as a fold, to which all rows of the block belong;
        - the ascending positions of the rows of the block in `self.rows`, from 0;
        - the predicted distributions, of shape (rows of the block,).

        Together, the blocks contain every row of `self.rows` once, but possibly in another order: `block_order`.
        `member` is the name of the member that predicts, or "mixture" for the mixture with the weights of this part.
        """
        for block in self.predictions.divide(self.positions):
            number = int(self.predictions.part[block[0]])
            weights = self.weights[number] if member == MIXTURE else {member: 1.0}
            weights = {name: weight for name, weight in weights.items() if weight > 0.0}
            components = [self.predictions.predict(name, block) for name in weights]
            yield number, np.searchsorted(self.positions, block), mix_members(components, list(weights.values()))

    @property
    def block_order(self) -> np.ndarray:
        """The positions in `self.rows` of the rows of all blocks, in the order in which `blocks` yields them.

        It is not ascending if some rows of a block were predicted earlier than the others.
        """
        blocks = self.predictions.divide(self.positions)
        return np.searchsorted(self.positions, np.concatenate([self.positions[:0], *blocks]))

    def find_sole_member(self) -> str | None:
        """Return the name of the only member that has a positive mixture weight, or None if there are several.

        A member counts if its weight is positive in at least one part, such as a fold.
        """
        mixed = {name for weights in self.weights for name, weight in weights.items() if weight > 0.0}
        return mixed.pop() if len(mixed) == 1 else None
