"""Share a sample with numbers, text, gaps, weights and exposures; and rows that come as a stream."""

from collections.abc import Iterator

import numpy as np
import polars as pl
import pytest

from ddpn.members.trees import mean
from ddpn.rows.count_rows import CountRows


@pytest.fixture(scope="session")
def sample_of_all_kinds() -> CountRows:
    """250 rows; the mean follows x, ward A and the exposure."""
    rng = np.random.default_rng(4)
    n = 250
    exposure, weight = rng.uniform(50.0, 400.0, n), rng.integers(1, 4, n).astype(float)
    X = pl.DataFrame(
        {
            "x": rng.normal(size=n),
            "ward": rng.choice(["A", "B", "C"], n).tolist(),
            "age": [None if rng.random() < 0.1 else float(v) for v in rng.normal(50, 9, n)],
            "smokes": rng.random(n) < 0.3,
        }
    )
    mean = exposure * np.exp(-4.0 + 0.5 * X["x"].to_numpy() + (X["ward"] == "A").to_numpy())
    return CountRows(X, rng.poisson(mean).astype(float), weight, exposure)


@pytest.fixture(scope="module", autouse=True)
def _limit_trees() -> Iterator[None]:
    """Boost trees of one size: test_trees.py tests how a size is chosen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mean, "_LEAVES", (4,))
        yield


class Stream:
    """Rows in memory, drawn in chunks: rows that an encoder was fitted to come again."""

    identity = "rows"

    def __init__(self, sample: CountRows, max_passes: float = 1.0) -> None:
        self.rows, self.max_passes, self.read = sample, max_passes, 0

    def __len__(self) -> int:
        return len(self.rows)

    def chunks(self, rows: int, seed: int) -> Iterator[np.ndarray]:
        rng, rows = np.random.default_rng(seed), min(rows, len(self))
        while True:
            order = rng.permutation(len(self))
            for start in range(0, len(order) - rows + 1, rows):
                self.read += rows
                yield order[start : start + rows]

    def sample(self, chunk: np.ndarray) -> CountRows:
        return self.rows.rows(chunk)


@pytest.fixture(scope="session")
def make_stream() -> type[Stream]:
    """Make a stream of the rows of a sample."""
    return Stream
