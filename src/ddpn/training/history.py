"""`History`: what happened during a training."""

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass
class History:
    """One record per epoch (loss and score per member, lr, seconds), and each member's best epoch and score.

    `interrupted` is true if Ctrl-C ended the training; `stopped` says why it ended before its last epoch, else "".
    `rollbacks` holds one sentence per member that was reset to the beginning of its epoch after a non-finite loss.
    """

    epochs: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: list[int] = field(default_factory=list)
    best_score: list[float] = field(default_factory=list)
    rollbacks: list[str] = field(default_factory=list)
    stopped: str = ""
    interrupted: bool = False

    def __post_init__(self) -> None:
        # JSON has no infinity: there, a member that was never validated has no score.
        self.best_score = [math.inf if score is None else score for score in self.best_score]

    @property
    def seconds(self) -> float:
        """Time in training and validation, over all sessions of a resumed training."""
        return sum(record["seconds"] for record in self.epochs)

    def as_dict(self) -> dict[str, Any]:
        """A copy of plain values, for a manifest."""
        plain = {name: list(value) if isinstance(value, list) else value for name, value in vars(self).items()}
        return plain | {"best_score": [score if score < math.inf else None for score in self.best_score]}
