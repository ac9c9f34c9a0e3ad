"""What happened during a training."""

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass
class History:
    """One record an epoch (loss and score a member, lr, seconds), and what was kept of it."""

    epochs: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: list[int] = field(default_factory=list)
    best_score: list[float] = field(default_factory=list)
    rollbacks: list[str] = field(default_factory=list)
    stopped: str = ""

    def __post_init__(self) -> None:
        # JSON has no infinity: there, a member that was never validated has no score.
        self.best_score = [math.inf if score is None else score for score in self.best_score]

    @property
    def seconds(self) -> float:
        """Time in training and validation, over all sittings."""
        return sum(record["seconds"] for record in self.epochs)

    def as_dict(self) -> dict[str, Any]:
        """A copy, for a manifest."""
        return {
            "epochs": list(self.epochs),
            "best_epoch": list(self.best_epoch),
            "best_score": [score if score < math.inf else None for score in self.best_score],
            "rollbacks": list(self.rollbacks),
            "stopped": self.stopped,
        }
