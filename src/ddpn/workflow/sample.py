"""Rows of a table, as models are fitted to them and judged by them."""

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

#: Rows worked on at a time: bounds memory, whatever the table's length.
BLOCK = 65_536


class Sample(NamedTuple):
    """Columns as a frame, counts, and what there is of exposures and weights."""

    X: Any
    y: np.ndarray
    exposure: np.ndarray | None
    weight: np.ndarray | None

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, which: np.ndarray) -> "Sample":
        return Sample(self.X[which], *(None if v is None else v[which] for v in self[1:]))  # type: ignore[arg-type]

    def counted(self) -> np.ndarray:
        """Which rows count at all, as a mask: those with a weight above 0."""
        return np.ones(len(self), dtype=bool) if self.weight is None else self.weight > 0

    def fingerprint(self) -> str:
        """A digest of names and values: the same table has the same again."""
        digest = hashlib.sha256(self.X.write_csv().encode())
        for values in self[1:]:
            digest.update(b"none" if values is None else values.astype("<f8").tobytes())
        return digest.hexdigest()

    def blocks(self) -> Iterator["Sample"]:
        """The same rows, in parts."""
        for start in range(0, len(self), BLOCK):
            yield Sample(*(None if v is None else v[start : start + BLOCK] for v in self))  # type: ignore[arg-type]
