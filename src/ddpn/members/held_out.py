"""Predictions of held-out rows by members, computed once per row and member and kept for all uses.

Mixture weights, maps of the cdf, interval levels, out-of-fold scores and warnings of heavy tails are computed from
these predictions. `ddpn.members.folds` explains which rows are held out.

Held-out rows are divided into parts (folds, if members are cross-fitted), so that whatever is fitted to the predictions
of some parts can be tested on another part. A block is a set of rows of one part that are predicted together, given by
ascending positions. The components of a member are the distributions whose mixture it predicts.
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
from ddpn.members.member import Member
from ddpn.rows.count_rows import BLOCK, CountRows
from ddpn.rows.splits import FOLDS, assign_folds
from ddpn.runtime.deadlines import check_deadline
from ddpn.tables.columns import ColumnTable


class MemberPredictions:
    """Held-out rows, fitted members, and the distributions that the members predict for these rows.

    Members are passed to `add`; a row is predicted when it is first needed. The rows are divided into parts. For
    cross-fitted members, each part is a fold, which is predicted by the copy that left it out. Other held-out rows, to
    which no member was fitted, are divided at random. Calibration is cross-fitted between the parts: a map of the cdf
    is tested on rows that it was not fitted to.

    Parameters
    ----------
    rows : CountRows
        The held-out rows, within their bounds (`CountRange.apply`).
    part : array of int
        The number of each row's part, from 0 on.
    is_crossed : bool
        True if parts are folds of cross-fitted members.
    seed : int
        Seed of the random choice of rows, if there is not enough time for all.
    table : ColumnTable, optional
        The parsed inputs of the rows, if they are already parsed.

    Attributes
    ----------
    part : array of int
        The number of each row's part, ascending.
    source : array of int
        The position of each row in the `rows` argument, before they were sorted by parts.
    """

    def __init__(
        self, rows: CountRows, part: np.ndarray, is_crossed: bool, seed: int = 0, table: ColumnTable | None = None
    ) -> None:
        self.source = np.argsort(part, kind="stable")
        self._unsorted_rows, self.part = rows, part[self.source]
        self._inputs = rows if table is None else rows.replace(X=table)
        self.is_crossed, self.seed = is_crossed, seed
        self.n_parts = int(part.max(initial=-1)) + 1
        self._members: dict[str, Member] = {}
        self._predicted: dict[str, list[tuple[np.ndarray, list[Distribution]]]] = {}
        # Rows that are predicted together.
        parts = [np.flatnonzero(self.part == number) for number in range(self.n_parts)]
        self._blocks = [rows[start : start + BLOCK] for rows in parts for start in range(0, len(rows), BLOCK)]

    @classmethod
    def from_rows(cls, rows: CountRows, seed: int = 0, table: ColumnTable | None = None) -> Self:
        """Prepare held-out rows that no member was fitted to: divide them into parts at random, groups kept together.

        `table` holds the parsed inputs of the rows, if they are already parsed.
        """
        return cls(rows, assign_folds(len(rows), FOLDS, seed, rows.group), False, seed, table)

    @classmethod
    def from_folds(cls, folds: Folds, seed: int = 0) -> Self:
        """Prepare the rows that a fit holds out: each fold of the training rows, or the validation rows.

        Folds are the parts; validation rows are divided into parts at random.
        """
        if folds.number is not None:
            return cls(folds.train, folds.number, True, seed)
        rows = folds.train.rows(slice(0, 0)) if folds.validation is None else folds.validation
        return cls.from_rows(rows, seed)

    def __len__(self) -> int:
        return len(self.part)

    @cached_property
    def rows(self) -> CountRows:
        """The held-out rows, sorted by parts."""
        return self._unsorted_rows.rows(self.source)

    def take_counts(self, block: np.ndarray) -> CountRows:
        """Return the counts of a block with their weights, exposures and bounds, but without the inputs."""
        return self._unsorted_rows.replace(X=None).rows(self.source[block])

    @property
    def names(self) -> list[str]:
        """The names of the members."""
        return list(self._members)

    def add(self, name: str, member: Member) -> None:
        """Add a fitted member, which predicts a row when it is first needed."""
        self._members[name], self._predicted[name] = member, []

    def discard(self, name: str) -> None:
        """Remove a member and its predictions."""
        self._members.pop(name, None)
        self._predicted.pop(name, None)

    def divide(self, positions: np.ndarray) -> list[np.ndarray]:
        """Divide the rows at these positions into blocks, each within one part.

        Blocks of an earlier division are reused, or split if only some of their rows are requested, so that no row is
        predicted twice.
        """
        chosen = np.zeros(len(self), dtype=bool)
        chosen[positions] = True
        pieces = [piece for block in self._blocks for piece in (block[chosen[block]], block[~chosen[block]])]
        self._blocks = [piece for piece in pieces if len(piece)]
        return [block for block in self._blocks if chosen[block[0]]]

    @torch.no_grad()
    def predict(self, name: str, block: np.ndarray) -> list[Distribution]:
        """Predict a block of rows by one member; return its components, truncated to the bounds of each row.

        `block` has the positions of rows, from `divide`. A component is one of the distributions that the member mixes.
        Rows of a fold are predicted by the copy that was not fitted to them.
        """
        for positions, parts in self._predicted[name]:
            if block[0] in positions:
                if len(positions) == len(block):
                    return parts
                index = torch.from_numpy(np.searchsorted(positions, block))
                return [select_rows(part, index) for part in parts]
        check_deadline()
        member = self._members[name]
        copy = get_fold_copies(member)[self.part[block[0]]] if self.is_crossed else member
        parts = predict_parts(copy, self._inputs.rows(self.source[block]))
        self._predicted[name].append((block, parts))
        return parts

    def count_components(self, name: str, blocks: Sequence[np.ndarray]) -> int:
        """Count the distributions per row with which a member predicts new rows: those of all its copies.

        A copy is counted by its predictions of the blocks of its fold.
        """
        sizes = {
            int(self.part[block[0]]): sum(part.batch_shape[-1] for part in self.predict(name, block))
            for block in blocks
        }
        return sum(sizes.values()) if self.is_crossed else next(iter(sizes.values()))


def predict_parts(member: Member, rows: CountRows) -> list[Distribution]:
    """Predict the components of a member for rows, and truncate them to the bounds of each row."""
    return [truncate_rows(part, rows.lower, rows.upper) for part in member.predict_components(rows.X, rows.exposure)]


@dataclass(frozen=True, eq=False)
class HeldOutPredictions:
    """A selection of held-out rows, with the distributions that members and their mixture predict before calibration.

    Parameters
    ----------
    predictions : MemberPredictions
        The predictions of the members.
    weights : sequence of mappings
        For each part of the rows, the mixture weight of each member by name. Members without a weight serve for
        comparison.
    positions : array of int
        The selected rows, as ascending positions in `predictions`.
    """

    predictions: MemberPredictions
    weights: Sequence[Mapping[str, float]]
    positions: np.ndarray

    def __len__(self) -> int:
        return len(self.positions)

    @cached_property
    def rows(self) -> CountRows:
        """The selected rows, sorted by parts."""
        whole = self.predictions.rows
        return whole if len(self) == len(whole) else whole.rows(self.positions)

    @property
    def part(self) -> np.ndarray:
        """The number of each row's part, ascending."""
        return self.predictions.part[self.positions]

    @property
    def source(self) -> np.ndarray:
        """The position of each row among the held-out rows before they were sorted by parts."""
        return self.predictions.source[self.positions]

    @property
    def n_parts(self) -> int:
        """The number of parts into which the held-out rows are divided."""
        return self.predictions.n_parts

    @property
    def is_crossed(self) -> bool:
        """True if parts are folds of cross-fitted members."""
        return self.predictions.is_crossed

    @property
    def names(self) -> list[str]:
        """The word "mixture", then the names of the members."""
        return [MIXTURE, *self.predictions.names]

    def draw(self, number: int) -> Self:
        """Draw `number` rows at random.

        The same seed gives the same rows, and a larger number includes the smaller ones.
        """
        if number >= len(self):
            return self
        order = np.random.default_rng(self.predictions.seed).permutation(len(self))
        return replace(self, positions=self.positions[np.sort(order[:number])])

    def take(self, source: np.ndarray) -> Self:
        """Select the rows whose `source`, the position before sorting, is in this array."""
        return replace(self, positions=self.positions[np.isin(self.source, source)])

    def blocks(self, member: str = MIXTURE) -> Iterator[tuple[int, np.ndarray, Mixture]]:
        """Yield the rows block by block: the number of the part, positions in `rows`, and predicted distributions.

        `member` is the name of the member that predicts, or "mixture".
        """
        for block in self.predictions.divide(self.positions):
            number = int(self.predictions.part[block[0]])
            weights = self.weights[number] if member == MIXTURE else {member: 1.0}
            weights = {name: weight for name, weight in weights.items() if weight > 0.0}
            parts = [self.predictions.predict(name, block) for name in weights]
            yield number, np.searchsorted(self.positions, block), mix_members(parts, list(weights.values()))

    def find_sole_member(self) -> str | None:
        """Return the name of the only member with a weight in any part; None if several members have weights."""
        mixed = {name for weights in self.weights for name, weight in weights.items() if weight > 0.0}
        return mixed.pop() if len(mixed) == 1 else None
