"""What is unusual about a table, counted block by block, and the sentences about it."""

from collections import Counter
from typing import Any

import numpy as np

from ddpn.calibration.reasons import TableSummary
from ddpn.predictor import Predictor
from ddpn.workflow.prediction_request import Request


class Findings:
    """Counts over the blocks of a table; those of blocks that an earlier run predicted come from its manifest."""

    def __init__(self, predictor: Predictor, request: Request) -> None:
        self._predictor = predictor
        self.summary = None if predictor.profile is None else TableSummary(predictor.profile)
        self._uncalibrated = request.member if request.member not in predictor.intervals else None
        self._alpha = None if predictor.ood is None else predictor.ood.alpha if request.ood is None else request.ood
        self._rows = self._flagged = 0
        self._groups: Counter[str] = Counter()
        self._notes: dict[str, str] = {}

    def add(self, predictions: Any, groups: np.ndarray | None) -> None:
        """Count the predictions of a block, and the groups of its rows."""
        self._rows += predictions.height
        if self._alpha is not None and self._predictor.ood is not None:
            flags = self._predictor.ood.is_ood(predictions["ood_pvalue"].to_numpy(), self._alpha)
            self._flagged += int(flags.sum())
        self._groups.update([] if groups is None else groups.tolist())

    def note(self, sentence: str) -> None:
        """Keep a sentence about how the cells of a column were read: the first about each column."""
        self._notes.setdefault(sentence.partition(":")[0], sentence)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        states = None if self.summary is None else self.summary.states.tolist()
        return {
            "rows": self._rows,
            "flagged": self._flagged,
            "groups": dict(self._groups),
            "notes": self._notes,
            "states": states,
        }

    def merge(self, known: dict[str, Any]) -> None:
        """Add the counts of `as_dict` of other blocks, which come after those that were counted before."""
        self._rows, self._flagged = self._rows + known["rows"], self._flagged + known["flagged"]
        self._groups.update(known["groups"])
        self._notes = known["notes"] | self._notes
        if self.summary is not None:
            self.summary.add(np.asarray(known["states"], dtype=np.int64))

    def sentences(self) -> list[str]:
        """Sentences about what is unusual in the table, and the share of rows that is flagged."""
        found = list(self._notes.values())
        if self._uncalibrated is not None:
            found.append(f"The intervals of the member {self._uncalibrated} are not calibrated.")
        if self._predictor.groups is not None and self._groups:
            labels = np.array(list(self._groups.elements()), dtype=object)
            found.append(self._predictor.groups.unseen(labels))
        found += [] if self.summary is None else self.summary.sentences()
        if self._alpha is not None and self._rows:
            expected = f"{100 * self._alpha:.3g}% expected of rows like the training data"
            share = self._flagged / self._rows
            found.append(f"{share:.1%} of rows are flagged as out-of-distribution ({expected}).")
        return [sentence for sentence in found if sentence]
