"""The member `Constant`, a baseline that predicts the same distribution for every row."""

import json
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.members.member import Member, Task, make_exposure_tensor, to_tensor
from ddpn.networks.heads import HEADS, Head, load_head, make_head
from ddpn.networks.heads.constant_fit import WeightedCounts
from ddpn.rows.checks import get_row_count
from ddpn.rows.count_rows import CountRows
from ddpn.rows.exposure import choose_exposure_unit, divide_exposure
from ddpn.runtime.deadlines import NO_LIMIT, Clock
from ddpn.storage.contents import JsonObject, json_to_bytes
from ddpn.tables.columns import ColumnTable


class Constant(Member):
    """A baseline member that predicts the same distribution for every row, fitted by maximum likelihood.

    By default, `fit` tries several likelihoods and keeps the one under which the counts are most probable. If rows have
    exposures, the location of the distribution is proportional to the exposure.

    Parameters
    ----------
    head : Head
        The likelihood, which converts raw outputs to a distribution.
    raw : Tensor, shape (head.n_raw,)
        The fitted raw outputs, such as log mu and log alpha. They are the same for all rows.
    unit : float
        The reference exposure: exposures are divided by this number.

    Examples
    --------
    >>> y = np.array([0.0, 0.0, 0.0, 9.0, 11.0, 1.0])
    >>> Constant.fit(CountRows(np.zeros((6, 1)), y), None, seed=0).likelihood
    'negative_binomial'
    """

    label = "constant distribution"
    is_baseline = True
    complexity = 0

    def __init__(self, head: Head, raw: Tensor, unit: float) -> None:
        self.head, self.raw, self.unit = head, raw, unit

    @classmethod
    def choose_options(cls, task: Task) -> dict[str, Any]:
        # Counts of known totals have a likelihood of their own.
        return {"head": task.head} if task.head.exposure_is_total else {}

    @classmethod
    def fit(
        cls,
        train: CountRows,
        validation: CountRows | None,
        seed: int,
        clock: Clock = NO_LIMIT,
        *,
        head: Head | None = None,
    ) -> Self:
        """Fit one distribution to the counts of all rows by maximum likelihood.

        `head` is the likelihood. If it is None, every likelihood with `is_baseline=True` is fitted, and the one with
        the lowest negative log-likelihood is kept. `validation`, `seed` and `clock` are ignored. Bounds and recording
        limits of counts enter the likelihood.
        """
        kinds = [kind for kind in HEADS.values() if kind.is_count and kind.is_baseline and not kind.exposure_is_total]
        candidates = [make_head(kind.name) for kind in kinds] if head is None else [head]
        unit = choose_exposure_unit(train, candidates[0].exposure_is_total)
        rows = divide_exposure(train.replace(X=None), unit).map(to_tensor)
        losses, members = [], []
        for candidate in candidates:
            raw = candidate.sample_start(rows)
            with torch.no_grad():
                losses.append(float(WeightedCounts(rows).make_mean_loss(candidate.sample_loss)(raw)))
            members.append(cls(candidate, raw, unit))
        return members[int(np.argmin(np.nan_to_num(losses, nan=np.inf)))]

    @property
    def likelihood(self) -> str:
        """The name of the likelihood, such as "negative_binomial"."""
        return self.head.name

    def distribution(self, X: ColumnTable, exposure: np.ndarray | None = None) -> Distribution:
        raw = self.raw.expand(get_row_count(X), 1, -1)
        scale = make_exposure_tensor(exposure, self.unit, len(raw))
        return self.head(raw, None if scale is None else scale.unsqueeze(1))

    def state(self) -> dict[str, bytes]:
        facts = {"likelihood": self.likelihood, "options": self.head.options, "unit": self.unit, **self.get_facts()}
        return {"constant.json": json_to_bytes(facts)}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        facts = json.loads(files["constant.json"])
        head = load_head(facts["likelihood"], facts["options"])
        return cls(head, to_tensor(np.array(facts["raw outputs"])), facts["unit"])

    def get_facts(self) -> JsonObject:
        return {"likelihood": self.likelihood, "raw outputs": self.raw.tolist()}
