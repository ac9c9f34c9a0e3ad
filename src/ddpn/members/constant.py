"""The constant member: one distribution for all rows, what a model that ignores its inputs would predict."""

import json
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.heads import HEADS, Head, make_head
from ddpn.heads.start import fit
from ddpn.members.member import Member, as_tensor, exposure_unit, json_to_bytes
from ddpn.sample import Sample, row_count

#: A maximum at infinity is cut off so far from the fit of plain counts.
_REACH = 20.0


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
    likelihood: str
    raw: Tensor
    unit: float

    def __init__(self, head: Head | None = None) -> None:
        self.head = head if head is not None and head.exposure_is_total else None

    @classmethod
    def like(cls, head: Head) -> Self:
        return cls(head)

    def _candidates(self) -> list[Head]:
        if self.head is not None:
            return [self.head]
        tried = [cls for cls in HEADS.values() if cls.is_count and cls.is_baseline and not cls.exposure_is_total]
        return [make_head(cls.name) for cls in tried]

    def fit(self, train: Sample, validation: Sample | None, seed: int) -> Self:
        y, weight = as_tensor(train.y), as_tensor(train.weight_or_ones)
        assert y is not None
        assert weight is not None
        candidates = self._candidates()
        self.unit = exposure_unit(train, candidates[0])
        exposure = as_tensor(train.exposure, self.unit)
        best = -np.inf
        for head in candidates:
            raw = head.start(y, weight, exposure)
            if train.is_plain:
                value = float(weight @ head(raw.expand(len(y), -1), exposure).log_prob(y))
            else:
                raw, value = _most_likely(head, raw, train, self.unit)
            if value > best:
                best, self.likelihood, self.raw = value, head.name, raw
        return self

    def distribution(self, X: Any, exposure: np.ndarray | None = None) -> Distribution:
        scale = as_tensor(exposure, self.unit)
        raw = self.raw.expand(row_count(X), 1, -1)
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
        raw = as_tensor(np.array(known["raw outputs"]))
        assert raw is not None
        member.raw = raw
        return member

    def facts(self) -> dict[str, Any]:
        return {"likelihood": self.likelihood, "raw outputs": self.raw.tolist()}


def _most_likely(head: Head, guess: Tensor, sample: Sample, unit: float) -> tuple[Tensor, float]:
    """The raw outputs that fit bounded or censored counts best, and their log-likelihood."""
    parts = {name: part for name, part in sample.parts.items() if name not in ("X", "weight")}
    # Equal rows as one: there are few different counts.
    unique, place = np.unique(np.column_stack(list(parts.values())), axis=0, return_inverse=True)
    columns = dict(zip(parts, np.ascontiguousarray(unique.T), strict=True))
    if "exposure" in columns:
        columns["exposure"] = columns["exposure"] / unit
    rows = Sample(None, **{name: torch.from_numpy(column) for name, column in columns.items()})
    weight = torch.from_numpy(np.bincount(place.ravel(), weights=sample.weight_or_ones))

    def loss(raw: Tensor) -> Tensor:
        return weight @ head.sample_loss(raw.expand(len(rows), -1), rows) / weight.sum()

    found = fit(loss, guess, [(x - _REACH - abs(x), x + _REACH + abs(x)) for x in guess.tolist()])
    with torch.no_grad():
        return found, -float(loss(found) * weight.sum())
