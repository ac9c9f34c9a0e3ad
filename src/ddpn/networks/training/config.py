"""`TrainingConfig`: settings of a training, validated when made and written into every checkpoint."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_choice, check_integer, check_number, is_number

#: What networks can be computed in.
PRECISIONS = ("float32", "bf16")
_CHOICES = {"schedule": ("cosine", "constant"), "score": ("nll", "crps"), "precision": PRECISIONS}


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Settings of one training.

    Parameters
    ----------
    epochs : int
        Passes over the training rows.
    batch_size : int
        Rows per step.
    lr : float
        The highest learning rate.
    weight_decay : float
        Decoupled weight decay, as in AdamW.
    warmup : float
        The share of all steps over which the learning rate rises.
    schedule : {"cosine", "constant"}
        Whether the learning rate then falls along a cosine or stays constant.
    clip : float or None
        Bounds each member's gradient norm.
    ema : float
        Above 0, weights are averaged over about 1 / (1 - ema) steps; validation and predictions use the average.
    score : {"nll", "crps"}
        The validation score that selects epochs: each member keeps the weights of its best epoch.
    patience : int, optional
        A member that has not improved for so many epochs has stopped.
    precision : {"float32", "bf16"}
        What the networks are computed in.
    accumulate : int
        Splits a batch into so many parts that are computed one after the other.
    seeds : tuple of int
        One seed per member.

    Examples
    --------
    >>> TrainingConfig(lr=1e-3, seeds=(0, 1)).members
    2
    """

    epochs: int = 100
    batch_size: int = 256
    lr: float = 2e-3
    weight_decay: float = 0.2
    warmup: float = 0.05
    schedule: Literal["cosine", "constant"] = "cosine"
    clip: float | None = 5.0
    ema: float = 0.998
    score: Literal["nll", "crps"] = "nll"
    patience: int | None = None
    precision: Literal["float32", "bf16"] = "float32"
    accumulate: int = 1
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate", "patience"):
            value = getattr(self, name)
            if name != "patience" or value is not None:
                object.__setattr__(self, name, check_integer(name, value, minimum=1))
        self._check("lr", "finite and positive", lambda v: 0.0 < v < math.inf)
        self._check("weight_decay", "finite and at least 0", lambda v: 0.0 <= v < math.inf)
        if self.clip is not None:
            self._check("clip", "None or finite and positive", lambda v: 0.0 < v < math.inf)
        for name in ("warmup", "ema"):
            self._check(name, "in [0, 1)", lambda v: 0.0 <= v < 1.0)
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        seeds: Any = self.seeds
        if not isinstance(seeds, tuple) or not seeds or any(type(s) is not int or not 0 <= s < 2**62 for s in seeds):
            raise ConfigError(f"seeds must be a tuple of one integer of at least 0 per member, got {seeds!r}.")

    def _check(self, name: str, condition: str, holds: Callable[[float], bool]) -> None:
        value = getattr(self, name)
        check_number(name, value, condition, is_number(value) and holds(value))

    @property
    def members(self) -> int:
        """How many networks are trained."""
        return len(self.seeds)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a manifest."""
        return asdict(self) | {"seeds": list(self.seeds)}

    def lr_at(self, step: int, steps: int) -> float:
        """The learning rate of a step.

        Parameters
        ----------
        step : int
            The step, counted from 0.
        steps : int
            The number of steps in all.
        """
        warm = math.ceil(self.warmup * steps)
        if step < warm:
            return self.lr * (step + 1) / (warm + 1)
        if self.schedule == "constant":
            return self.lr
        return self.lr * 0.5 * (1.0 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
