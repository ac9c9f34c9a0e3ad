"""Rows that calibrate predictions, each with a predictor that was not fitted to it."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from ddpn.distributions import MonotoneMap, Recalibrated
from ddpn.distributions.limits import limited
from ddpn.members.folds import Folds
from ddpn.sample import Sample
from ddpn.tables.splits import FOLDS, fold_numbers


class HeldOut:
    """Rows in parts; those of each part have one predictor, which was not fitted to them.

    The parts are also what a recalibration is cross-fitted by: while intervals are calibrated, the distributions of a
    part are recalibrated with a map that was learned from the other parts, as new rows have a map that was not learned
    from them.

    Parameters
    ----------
    sample : Sample
        The rows, those of one part after the other.
    predictors : sequence of Predictor
        One per part.
    part : array of int, shape (rows,)
        The number of each row's part, ascending.
    """

    def __init__(self, sample: Sample, predictors: Sequence[Any], part: np.ndarray) -> None:
        self.sample, self.predictors, self.part = sample, list(predictors), part
        #: Per name the map of each part, where distributions are recalibrated.
        self.maps: dict[str, list[MonotoneMap]] = {}

    @classmethod
    def of(cls, predictor: Any, sample: Sample, seed: int = 0) -> Self:
        """Rows that one predictor was not fitted to, divided into parts at random, groups kept whole.

        Parameters
        ----------
        predictor : Predictor
            What predicts all of them.
        sample : Sample
            The rows.
        seed : int
            Seed of the division.
        """
        part = fold_numbers(len(sample), FOLDS, seed, sample.group)
        order = np.argsort(part, kind="stable")
        return cls(sample.rows(order), [predictor] * (int(part.max(initial=-1)) + 1), part[order])

    @classmethod
    def of_folds(cls, predictor: Any, folds: Folds, seed: int) -> Self:
        """The held-out rows of a fit: validation rows, or each fold with the predictor of the copies that left it out.

        Parameters
        ----------
        predictor : Predictor
            The mixture.
        folds : Folds
            The rows that its members were fitted to, and those that were held out.
        seed : int
            Seed of the division of validation rows into parts.
        """
        if folds.number is None:
            assert folds.validation is not None
            return cls.of(predictor, folds.validation, seed)
        copies = [predictor.of_copies(number) for number in range(int(folds.number.max()) + 1)]
        order = np.argsort(folds.number, kind="stable")
        return cls(folds.train.rows(order), copies, folds.number[order])

    def __len__(self) -> int:
        return len(self.sample)

    def some(self, number: int, seed: int) -> "HeldOut":
        """So many of the rows, drawn at random.

        Parameters
        ----------
        number : int
            How many rows.
        seed : int
            Seed of the choice.
        """
        if number >= len(self):
            return self
        kept = np.sort(np.random.default_rng(seed).permutation(len(self))[:number])
        return HeldOut(self.sample.rows(kept), self.predictors, self.part[kept])

    def blocks(self, of: str) -> Iterator[tuple[int, Any, Sample]]:
        """The rows in order, in blocks: the part, the distributions of the recorded counts, and the rows.

        Parameters
        ----------
        of : str
            "mixture", or the name of one member.
        """
        for number, predictor in enumerate(self.predictors):
            own = self.part == number
            if own.any():
                for dist, block in predictor.plain_blocks(self.sample.rows(own), of):
                    changed = Recalibrated(dist, self.maps[of][number]) if of in self.maps else dist
                    yield number, limited(changed, block.limit), block

    def distributions(self, of: str) -> Iterator[Any]:
        """The distributions of `blocks` alone.

        Parameters
        ----------
        of : str
            "mixture", or the name of one member.
        """
        return (dist for _, dist, _ in self.blocks(of))
