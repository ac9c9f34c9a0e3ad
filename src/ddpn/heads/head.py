"""The contract every head keeps: raw numbers -> law, and the objective a network is trained on."""

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.errors import ConfigError

_LOW_PRECISION = (torch.float16, torch.bfloat16)


class Head(ABC):
    """A likelihood as a network sees it. It has options but no parameters; each option is kept under its own name.

    `n_raw` is the number of raw outputs a row, `support` the values the law lives on, `name` the head's name in
    `HEADS`. `exposure`, the known scale of a row, multiplies the location of the law.

    Shape: raw (..., P) with P = n_raw; y and exposure broadcast with raw.shape[:-1], typically (B, 1) or (B, M).
    """

    name: ClassVar[str]
    n_raw: ClassVar[int]
    support: ClassVar[Any]

    @abstractmethod
    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> Distribution:
        """The law of every row: the one place where a link lives. Never looks at values, so a GPU need not wait."""

    @abstractmethod
    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """The training objective, one value an element."""

    @abstractmethod
    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """The raw numbers that fit y best when nothing else is known. Shape: (N,) -> (P,), in float64.

        They minimise the weighted loss; where its minimum lies at infinity they stop at, or a little beyond, the bounds
        of `clamps`.
        """

    def __call__(self, raw: Tensor, exposure: Tensor | None = None) -> Distribution:
        return self.forward(raw, exposure)

    @property
    def sees(self) -> tuple[str, ...]:
        """What each raw output is computed from: "features", "detached" (features without gradient) or "nothing"."""
        return ("features",) * self.n_raw

    @property
    def options(self) -> dict[str, Any]:
        """What rebuilds this head: `HEADS[head.name](**head.options)`."""
        return {name: getattr(self, name) for name in option_names(type(self))}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"


def option_names(head: type[Head]) -> tuple[str, ...]:
    """The keyword-only arguments of a head's constructor."""
    parameters = inspect.signature(head).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def promoted(raw: Tensor) -> Tensor:
    """Half precisions as float32: exp of a bfloat16 has two digits."""
    return raw.float() if raw.dtype in _LOW_PRECISION else raw


def check_beta(beta: float) -> None:
    """A share between likelihood (0) and plain mean fit (1)."""
    if not 0.0 <= beta <= 1.0:
        raise ConfigError(f"beta must lie in [0, 1], got {beta}. Use 0 for the likelihood, 0.5 for a compromise.")
