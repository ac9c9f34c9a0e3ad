"""`OptimizerOptions`: the options of the optimizer, which are validated without importing torch."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ddpn.runtime.validation import check_choice, check_integer, check_number, is_number


@dataclass(frozen=True, kw_only=True)
class OptimizerOptions:
    """Options of the optimizer, shared by `NetworkOptions` and `TrainingConfig`.

    They are documented in `ddpn.networks.training.TrainingConfig`.
    """

    lr: float = 2e-3
    weight_decay: float = 0.2
    warmup: float = 0.05
    schedule: Literal["cosine", "constant"] = "cosine"
    clip: float | None = 5.0
    ema: float = 0.998
    patience: int | None = None
    precision: Literal["float32", "bf16"] = "float32"

    def __post_init__(self) -> None:
        self._check("lr", "finite and positive", lambda v: 0.0 < v < math.inf)
        self._check("weight_decay", "finite and at least 0", lambda v: 0.0 <= v < math.inf)
        if self.clip is not None:
            self._check("clip", "None or finite and positive", lambda v: 0.0 < v < math.inf)
        for name in ("warmup", "ema"):
            self._check(name, "in [0, 1)", lambda v: 0.0 <= v < 1.0)
        if self.patience is not None:
            object.__setattr__(self, "patience", check_integer("patience", self.patience, minimum=1))
        check_choice("schedule", self.schedule, ("cosine", "constant"))
        check_choice("precision", self.precision, ("float32", "bf16"))

    def _check(self, name: str, condition: str, holds: Callable[[float], bool]) -> None:
        value = getattr(self, name)
        check_number(name, value, condition, is_number(value) and holds(value))
