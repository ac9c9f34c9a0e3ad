"""The constant member: one distribution for all rows, what a model that ignores its inputs would predict."""

import json
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.members.member import Member, Task, as_tensor, exposure_unit, in_units, json_to_bytes, row_scale
from ddpn.networks.heads import HEADS, Head, make_head
from ddpn.networks.heads.head import mean_loss
from ddpn.sample import Sample, row_count


class Constant(Member):
    """One distribution for all rows by maximum likelihood, of the count likelihood that fits best.

    An exposure scales its location.

    Parameters
    ----------
    head : Head, optional
        The head of the networks. Where its exposures are totals (`Head.exposure_is_total`), it is the likelihood that
        is fitted; otherwise it is not used.

    Examples
    --------
    >>> y = np.array([0.0, 0.0, 0.0, 9.0, 11.0, 1.0])
    >>> Constant().fit(Sample(np.zeros((6, 1)), y), None, seed=0).likelihood
    'negative_binomial'
    """

    label = "constant distribution"
    takes_prepared_tables = True
    is_baseline = True
    complexity = 0
    likelihood: str
    raw: Tensor
    unit: float

    def __init__(self, head: Head | None = None) -> None:
        self.head = head if head is not None and head.exposure_is_total else None

    @classmethod
    def like(cls, task: Task) -> Self:
        return cls(task.head)

    def _candidates(self) -> list[Head]:
        if self.head is not None:
            return [self.head]
        tried = [cls for cls in HEADS.values() if cls.is_count and cls.is_baseline and not cls.exposure_is_total]
        return [make_head(cls.name) for cls in tried]

    def fit(self, train: Sample, validation: Sample | None, seed: int) -> Self:
        candidates, best = self._candidates(), np.inf
        self.unit = exposure_unit(train, candidates[0])
        rows = in_units(train.replace(X=None), self.unit).map(as_tensor)
        for head in candidates:
            raw = head.sample_start(rows)
            with torch.no_grad():
                loss = float(mean_loss(head, rows)(raw))
            if loss < best:
                best, self.likelihood, self.raw = loss, head.name, raw
        return self

    def distribution(self, X: Any, exposure: np.ndarray | None = None) -> Distribution:
        raw = self.raw.expand(row_count(X), 1, -1)
        scale = row_scale(exposure, self.unit, len(raw))
        head = make_head(self.likelihood) if self.head is None else self.head
        return head(raw, None if scale is None else scale.unsqueeze(1))

    def state(self) -> dict[str, bytes]:
        options = {} if self.head is None else self.head.options
        known = {"likelihood": self.likelihood, "options": options, "unit": self.unit, **self.facts()}
        return {"constant.json": json_to_bytes(known)}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        known = json.loads(files["constant.json"])
        member = cls(make_head(known["likelihood"], **known["options"]))
        member.likelihood, member.unit = known["likelihood"], known["unit"]
        member.raw = as_tensor(np.array(known["raw outputs"]))
        return member

    def facts(self) -> dict[str, Any]:
        return {"likelihood": self.likelihood, "raw outputs": self.raw.tolist()}
