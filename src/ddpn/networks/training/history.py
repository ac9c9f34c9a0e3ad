"""`History`: a record of what happened in each epoch of a training run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ddpn.storage.contents import JsonObject


@dataclass
class History:
    """The history of a training run.

    Attributes
    ----------
    epochs : list of dict
        One record per epoch: the training loss and the validation score of each network (if there are validation rows),
        the learning rate and the time in seconds.
    best_epoch, best_score : list
        The best epoch of each network, counted from 1, and its score, which is the lowest. Without validation rows, the
        best epoch is the last one, and the score is infinite.
    rollbacks : list of str
        One sentence per rollback. In a rollback, a network returns to the start of an epoch after a non-finite loss.
    stopped : str
        The reason why the training ended before its last epoch, or "" if it did not.
    interrupted : bool
        True if Ctrl-C ended the training.
    """

    epochs: list[JsonObject] = field(default_factory=list)
    best_epoch: list[int] = field(default_factory=list)
    best_score: list[float] = field(default_factory=list)
    rollbacks: list[str] = field(default_factory=list)
    stopped: str = ""
    interrupted: bool = False

    def __post_init__(self) -> None:
        # JSON has no infinity, so the score of a network that was never validated is None there.
        self.best_score = [math.inf if score is None else score for score in self.best_score]

    @property
    def seconds(self) -> float:
        """The total time of training and validation in seconds, including the time before an interruption."""
        return sum(record["seconds"] for record in self.epochs)

    def select_networks(self, networks: slice) -> "History":
        """Return a copy of the history with the networks in this slice only; the list of rollbacks stays complete."""
        epochs = [{k: v[networks] if isinstance(v, list) else v for k, v in record.items()} for record in self.epochs]
        best, scores = self.best_epoch[networks], self.best_score[networks]
        return replace(self, epochs=epochs, rollbacks=list(self.rollbacks), best_epoch=best, best_score=scores)

    @classmethod
    def from_parts(cls, parts: Sequence["History"]) -> "History":
        """Join the histories of groups of networks that were trained together, in the order of `parts`.

        This is the inverse of `select_networks`. What all networks share, such as the learning rates, is taken from the
        first part.
        """
        epochs = []
        for records in zip(*(part.epochs for part in parts), strict=True):
            lists = {
                k: [v for record in records for v in record[k]] for k, v in records[0].items() if isinstance(v, list)
            }
            epochs.append(records[0] | lists)
        best, scores = ([v for part in parts for v in getattr(part, name)] for name in ("best_epoch", "best_score"))
        return replace(parts[0], epochs=epochs, best_epoch=best, best_score=scores)

    def as_dict(self) -> JsonObject:
        """Return the history as a dictionary that can be written as JSON."""
        plain = {name: list(value) if isinstance(value, list) else value for name, value in vars(self).items()}
        return plain | {"best_score": [score if score < math.inf else None for score in self.best_score]}
