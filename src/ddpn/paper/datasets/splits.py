"""Training, validation and test rows: fixed by a seed, and saved with the fingerprint of the data they belong to."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_choice, check_integer
from ddpn.storage.files import atomic_path

#: The seed of the paper's splits, and their shares: of tables, and of larger data (texts, images, point clouds).
SEED = 1998
SHARES, LARGE_SHARES = (0.8, 0.1, 0.1), (0.7, 0.1, 0.2)
PARTS = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of three parts, which together are all rows, each once.

    Parameters
    ----------
    train, validation, test : array of int
        The row numbers of each part.
    """

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return iter((self.train, self.validation, self.test))

    @property
    def n(self) -> int:
        """The number of rows of the data."""
        return sum(len(part) for part in self)

    def rows(self, part: str) -> NDArray[np.int64]:
        """The row numbers of "train", "validation" or "test"."""
        return getattr(self, check_choice("part", part, PARTS, InputError))

    def save(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        """Write the rows and the fingerprint of their data to one npz file."""
        with atomic_path(Path(path)) as draft, draft.open("wb") as file:
            rows = {part: self.rows(part) for part in PARTS}
            np.savez_compressed(file, allow_pickle=False, fingerprint=np.array(fingerprint), **rows)

    @classmethod
    def load(cls, path: str | os.PathLike[str], fingerprint: str) -> "Split":
        """Read rows that were saved for the data with this fingerprint; raise an error if they belong to others."""
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                found, parts = str(stored["fingerprint"]), [stored[part].astype(np.int64) for part in PARTS]
        except (OSError, ValueError, TypeError, KeyError, EOFError, BadZipFile) as error:
            raise InputError(f"{path} must be a file that Split.save wrote, got {type(error).__name__}.") from error
        if found != fingerprint:
            raise InputError(
                f"The split in {path} must belong to this data, got the fingerprint {found[:12]} where the data has "
                f"{fingerprint[:12]}."
            )
        return cls(*parts)


def split(n: int, seed: int = SEED, shares: Sequence[float] = SHARES) -> Split:
    """Shuffle rows and cut them into training, validation and test rows.

    By default the first int(.8 n) train, those up to int(.9 n) validate, the rest test.

    Parameters
    ----------
    n : int
        The number of rows.
    seed : int
        Seed of the shuffle.
    shares : sequence of float
        Shares of the three parts, which sum to 1.

    Examples
    --------
    >>> split(10)
    Split(train=array([9, 8, 7, 4, 1, 0, 5, 6]), validation=array([3]), test=array([2]))
    """
    check_integer("n", n, 1, InputError)
    if len(shares) != 3 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
        raise InputError(f"shares must be those of train, validation and test, which sum to 1, got {tuple(shares)}.")
    rows = np.random.default_rng(check_integer("seed", seed, 0, InputError)).permutation(n)
    # .7 + .1 is a little less than .8 in floating point.
    return Split(*np.split(rows, [int(round(share, 9) * n) for share in (shares[0], shares[0] + shares[1])]))
