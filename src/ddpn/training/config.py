"""How to train: frozen, checked when made, written into every checkpoint."""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

from ddpn.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Settings of one training.

    `lr` rises over the first `warmup` share of all steps and then falls along a cosine (`schedule="cosine"`) or stays.
    `clip` bounds each member's gradient norm. `ema` > 0 averages the weights over about 1 / (1 - ema) steps; validation
    and predictions use the average. `score` is what an epoch is judged by on validation rows: the best epoch's weights
    are kept, member by member, and a member that has not improved for `patience` epochs is done. `accumulate` splits a
    batch into so many parts that are computed one after the other. `seeds` has one number a member.

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
        for name in ("epochs", "batch_size", "accumulate"):
            _check(self, name, lambda v: isinstance(v, int) and v >= 1, "be a whole number of at least 1")
        _check(self, "patience", lambda v: v is None or (isinstance(v, int) and v >= 1), "be None or at least 1")
        _check(self, "lr", lambda v: 0.0 < v < math.inf, "be finite and positive")
        _check(self, "weight_decay", lambda v: 0.0 <= v < math.inf, "be finite and at least 0")
        _check(self, "clip", lambda v: v is None or 0.0 < v < math.inf, "be None or positive")
        for name in ("warmup", "ema"):
            _check(self, name, lambda v: 0.0 <= v < 1.0, "lie in [0, 1)")
        for name, choices in (("schedule", ("cosine", "constant")), ("score", ("nll", "crps"))):
            _check(self, name, lambda v, choices=choices: v in choices, f"be one of {', '.join(choices)}")
        _check(self, "precision", lambda v: v in ("float32", "bf16"), "be float32 or bf16")
        _check(self, "seeds", _are_seeds, "be a tuple with one whole number a member")

    @property
    def members(self) -> int:
        """How many networks are trained."""
        return len(self.seeds)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for a manifest."""
        return asdict(self) | {"seeds": list(self.seeds)}

    @classmethod
    def of_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `as_dict`; unknown names are an error that lists the valid ones."""
        valid = [field.name for field in fields(cls)]
        unknown = sorted(set(values) - set(valid))
        if unknown:
            raise ConfigError(
                f"settings must be among {', '.join(valid)}, got {', '.join(unknown)}. Rename or drop it."
            )
        given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**given)

    def lr_at(self, step: int, steps: int) -> float:
        """The learning rate of a step, counted from 0, of `steps` in all."""
        warm = math.ceil(self.warmup * steps)
        if step < warm:
            return self.lr * (step + 1) / (warm + 1)
        if self.schedule == "constant":
            return self.lr
        return self.lr * 0.5 * (1.0 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _are_seeds(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(type(seed) is int and 0 <= seed < 2**62 for seed in value)


def _check(config: TrainingConfig, name: str, holds: Any, condition: str) -> None:
    value = getattr(config, name)
    try:
        good = bool(holds(value)) and not isinstance(value, bool)
    except TypeError:
        good = False
    if not good:
        raise ConfigError(f"{name} must {condition}, got {value!r}. Change it in the settings of the training.")
