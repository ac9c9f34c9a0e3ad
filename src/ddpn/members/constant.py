"""The constant member: one distribution for all rows, what a model that ignores its inputs would predict."""

import json
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from torch import Tensor
from torch.distributions import Distribution

from ddpn.heads import HEADS, make_head
from ddpn.members.member import Member, as_tensor, exposure_unit, json_to_bytes
from ddpn.sample import Sample, row_count


class Constant(Member):
    """One distribution for all rows by maximum likelihood, of the count likelihood that fits best.

    An exposure scales its location.

    >>> y = np.array([0.0, 0.0, 0.0, 9.0, 11.0, 1.0])
    >>> Constant().fit(Sample(np.zeros((6, 1)), y), None, seed=0).likelihood
    'negative_binomial'
    """

    label = "constant distribution"
    likelihood: str
    raw: Tensor
    unit: float

    def fit(self, train: Sample, validation: Sample | None, seed: int) -> Self:
        y, weight = as_tensor(train.y), as_tensor(train.weight_or_ones)
        assert y is not None
        assert weight is not None
        self.unit = exposure_unit(train)
        exposure = as_tensor(train.exposure, self.unit)
        best = -np.inf
        for name in HEADS:
            head = make_head(name)
            if not head.is_count:
                continue
            raw = head.start(y, weight, exposure)
            fit = float(weight @ head(raw.expand(len(y), -1), exposure).log_prob(y))
            if fit > best:
                best, self.likelihood, self.raw = fit, name, raw
        return self

    def distribution(self, X: Any, exposure: np.ndarray | None = None) -> Distribution:
        scale = as_tensor(exposure, self.unit)
        raw = self.raw.expand(row_count(X), 1, -1)
        return make_head(self.likelihood)(raw, None if scale is None else scale.unsqueeze(1))

    def state(self) -> dict[str, bytes]:
        return {"constant.json": json_to_bytes({"likelihood": self.likelihood, "unit": self.unit, **self.facts()})}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        known, member = json.loads(files["constant.json"]), cls()
        member.likelihood, member.unit = known["likelihood"], known["unit"]
        raw = as_tensor(np.array(known["raw outputs"]))
        assert raw is not None
        member.raw = raw
        return member

    def facts(self) -> dict[str, Any]:
        return {"likelihood": self.likelihood, "raw outputs": self.raw.tolist()}
