"""`HeadMember`, the base class of members that compute raw outputs, which a head converts to distributions."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.members.member import Member
from ddpn.networks.heads import Head
from ddpn.runtime.threads import single_thread
from ddpn.tables.columns import ColumnTable


class HeadMember(Member):
    """The base class of members whose distributions are those of a head, such as networks, trees and GLMs.

    A subclass implements `raw` instead of `distribution`, and has two attributes: the likelihood `head`, and `unit`,
    the exposure that raw outputs are for. The head multiplies predicted means by exposure / `unit`.
    """

    head: Head
    unit: float

    @abstractmethod
    def raw(self, X: ColumnTable, exposure: np.ndarray | None = None) -> Tensor:
        """Compute the raw outputs of each row, such as log mu and log gamma; the mean is for an exposure of `unit`.

        Parameters
        ----------
        X : ColumnTable
            Rows with the columns of `fit`.
        exposure : array, shape (rows,), optional
            The exposure of each row, only for other raw outputs that depend on it, such as a dispersion. Default: 1.

        Returns
        -------
        Tensor, shape (rows, k, head.n_raw)
            The raw outputs of k distributions per row, in float64. All copies of a cross-fitted member have the same k.
        """

    def distribution(self, X: ColumnTable, exposure: np.ndarray | None = None) -> Distribution:
        return predict_by_one_head([self], X, exposure)


def can_share_head(members: Sequence[Member]) -> TypeGuard[Sequence[HeadMember]]:
    """Return True if `predict_by_one_head` predicts the same distributions as the members do.

    It does if all have equal heads, and no class overrides `distribution` or `predict_components`, which it does not
    call.
    """
    methods = HeadMember.distribution, Member.predict_components
    heads = [
        (type(member.head), member.head.options)
        for member in members
        if isinstance(member, HeadMember) and (type(member).distribution, type(member).predict_components) == methods
    ]
    return len(heads) == len(members) and all(head == heads[0] for head in heads)


def predict_by_one_head(
    members: Sequence[HeadMember], X: ColumnTable, exposure: np.ndarray | None = None
) -> Distribution:
    """Predict the distributions of several members with equal heads by a single call of the head.

    For a few rows, one call for all members takes about as long as a call for a single member.

    Parameters
    ----------
    members : sequence of HeadMember
        The members, whose raw outputs must have the same shape.
    X : ColumnTable
        Rows with the columns of `fit`.
    exposure : array, shape (rows,), optional
        The exposure of each row. Default: 1.

    Returns
    -------
    Distribution
        A batch of shape (rows, members * k): first the k distributions of the first member, then those of the next.
    """
    raw = torch.stack([member.raw(X, exposure) for member in members], dim=1)
    units, scale = np.array([member.unit for member in members]), None
    if exposure is not None or (units != 1.0).any():
        ratios = (np.ones(len(X)) if exposure is None else exposure)[:, None] / units
        scale = torch.from_numpy(ratios.repeat(raw.shape[2], axis=1))
    with single_thread():
        return members[0].head(raw.flatten(1, 2), scale)
