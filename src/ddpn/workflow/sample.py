"""Rows of a table, as models are fitted to them and judged by them."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Rows worked on at a time: bounds memory, whatever the table's length.
BLOCK = 65_536


@dataclass(frozen=True, eq=False)
class Sample:
    """Columns as a frame, counts, and what there is of exposures and weights."""

    X: Any
    y: np.ndarray
    exposure: np.ndarray | None
    weight: np.ndarray | None

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, which: np.ndarray | slice) -> "Sample":
        """Some of the rows, by number."""
        exposure, weight = (None if values is None else values[which] for values in (self.exposure, self.weight))
        return Sample(self.X[which], self.y[which], exposure, weight)

    def blocks(self) -> Iterator["Sample"]:
        """The same rows, in parts."""
        for start in range(0, len(self), BLOCK):
            yield self.rows(slice(start, start + BLOCK))

    def counted(self) -> np.ndarray:
        """Which rows count at all, as a mask: those with a weight above 0."""
        return np.ones(len(self), dtype=bool) if self.weight is None else self.weight > 0

    def fingerprint(self) -> str:
        """A digest of names and values: the same table has the same again."""
        digest = hashlib.sha256(self.X.write_csv().encode())
        for values in (self.y, self.exposure, self.weight):
            digest.update(b"none" if values is None else values.astype("<f8").tobytes())
        return digest.hexdigest()
