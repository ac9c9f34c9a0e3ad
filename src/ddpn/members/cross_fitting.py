"""Cross-fitting: predictions for training rows by copies of a member that were not fitted to them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import numpy as np
import torch
from torch.distributions import Distribution

from ddpn.distributions.stacking import concatenated, reshaped, rows_of
from ddpn.members.member import Member, NotApplicableError
from ddpn.sample import Sample
from ddpn.training import fold_numbers

#: Folds of cross-fitting.
FOLDS = 5


def cross_fit(make: Callable[[], Member], train: Sample, seed: int, folds: int = FOLDS) -> Member:
    """Fit a member to all rows, and see that it has predictions for each row by copies that left it out.

    Members that make such copies themselves are fitted once, others once more per fold.

    Parameters
    ----------
    make : callable
        Returns an unfitted member.
    train : Sample
        Training rows.
    seed : int
        Seed of the folds and of the fits.
    folds : int
        How many copies are fitted.

    Returns
    -------
    Member
        The member that was fitted to all rows, with `out_of_fold`.
    """
    member = make().fit(train, None, seed)
    if member.out_of_fold is not None or member.interrupted:
        return member
    fold = folds_of(train, seed, folds)
    copies = (make().fit(train.rows(fold != number), None, seed) for number in range(fold.max() + 1))
    member.out_of_fold = joined(copies, train, fold)
    return member


def folds_of(train: Sample, seed: int, folds: int = FOLDS) -> np.ndarray:
    """The number of each row's fold."""
    return fold_numbers(len(train), min(folds, len(train)), seed).numpy()


def joined(copies: Iterable[Member], train: Sample, fold: np.ndarray) -> Distribution:
    """What fitted copies of a member predict for the rows of the folds that they left out, one after the other."""
    parts = []
    for number, copy in enumerate(copies):
        left_out = train.rows(fold == number)
        parts.append(copy.distribution(left_out.X, left_out.exposure))
    found: Distribution = in_order(parts, np.argsort(fold, kind="stable"))
    return found


def in_order(parts: list[Any], rows: np.ndarray) -> Any:
    """Distributions of consecutive rows, each of batch shape (n_i, k), as one, in the order of these row numbers."""
    width = parts[0].batch_shape[-1]
    flat = concatenated([reshaped(part, (part.batch_shape.numel(),)) for part in parts])
    if len(flat) > 1:
        raise NotApplicableError("its copies have different distributions")
    place = torch.from_numpy(np.argsort(rows, kind="stable"))
    index = (place.unsqueeze(1) * width + torch.arange(width)).flatten()
    return reshaped(rows_of(flat[0], index), (len(rows), width))


class OutOfFold(Member):
    """Stands for a member that was cross-fitted: predicts its training rows, which are given by their position.

    Parameters
    ----------
    known : Distribution
        The `out_of_fold` predictions of the member.
    label : str
        What tables and reports call it.
    """

    def __init__(self, known: Distribution, label: str = "") -> None:
        self.known, self.label = known, label  # type: ignore[misc]

    def fit(self, train: Sample, validation: Sample | None, seed: int) -> Self:
        return self

    def distribution(self, X: Any, exposure: np.ndarray | None = None) -> Distribution:
        return rows_of(self.known, torch.from_numpy(np.asarray(X)[:, 0].astype(np.int64)))

    def state(self) -> dict[str, bytes]:
        raise NotApplicableError("predictions for training rows are not saved")

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        raise NotApplicableError("predictions for training rows are not saved")
