"""Training, validation and test rows: fixed by a seed, and kept beside the fingerprint of the data they are rows of."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ddpn.datasets.checks import seeded, whole
from ddpn.errors import InputError

#: The seed and the shares of the paper's splits.
SEED = 1998
PARTS = (0.8, 0.1, 0.1)
_NAMES = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of three parts that together are all rows, each once."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return iter((self.train, self.validation, self.test))

    @property
    def n(self) -> int:
        """Rows of the data."""
        return sum(len(part) for part in self)

    def save(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        """Write the rows and the fingerprint of their data to one npz file, whole or not at all."""
        target = Path(path)
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        with part.open("wb") as file:
            of = np.array(fingerprint)
            np.savez_compressed(file, fingerprint=of, train=self.train, validation=self.validation, test=self.test)
        os.replace(part, target)

    @classmethod
    def load(cls, path: str | os.PathLike[str], fingerprint: str) -> "Split":
        """Read rows that were saved for the data with this fingerprint; an error where they were not."""
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                of, parts = str(stored["fingerprint"]), [stored[name].astype(np.int64) for name in _NAMES]
        except (OSError, ValueError, TypeError, KeyError, EOFError, BadZipFile) as error:
            raise InputError(
                f"{path} must be a split that Split.save wrote, got {type(error).__name__}. Save it again."
            ) from None
        if of != fingerprint:
            raise InputError(
                f"the split in {path} must belong to the data, got rows of data with fingerprint {of[:12]} where the "
                f"data has {fingerprint[:12]}. Make a new split, or find the data it was made for."
            )
        return cls(*parts)


def split(n: int, seed: int = SEED, parts: Sequence[float] = PARTS) -> Split:
    """Shuffle 0..n-1 and cut: the first int(.8 n) rows train, those up to int(.9 n) validate, the rest test.

    >>> split(10)
    Split(train=array([9, 8, 7, 4, 1, 0, 5, 6]), validation=array([3]), test=array([2]))
    """
    n = whole("n", n, 1, "Split data that has rows.")
    if len(parts) != 3 or min(parts) < 0 or abs(sum(parts) - 1) > 1e-9:
        raise InputError(
            f"parts must be three shares of train, validation and test that sum to 1, got {json.dumps(list(parts))}. "
            f"Use (0.8, 0.1, 0.1)."
        )
    rows = np.random.default_rng(seeded(seed)).permutation(n)
    # .7 + .1 is a little less than .8 in floating point; the cut is where it is in words.
    return Split(*np.split(rows, [int(round(share, 9) * n) for share in (parts[0], parts[0] + parts[1])]))
