"""Share a table in several Parquet files of several row groups."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

ROWS, PART, GROUP = 9000, 3000, 700


@pytest.fixture(scope="session")
def table() -> pl.DataFrame:
    """Counts that follow a number, a category and an interaction; `row` numbers the rows."""
    rng = np.random.default_rng(5)
    x, z, kind = rng.normal(size=ROWS), rng.uniform(size=ROWS), rng.choice(["a", "b", "c"], ROWS)
    y = rng.poisson(np.exp(0.5 + 0.6 * x + (kind == "a") * (z > 0.5)))
    return pl.DataFrame({"x": x, "z": z, "kind": kind, "row": np.arange(ROWS), "y": y})


@pytest.fixture(scope="session")
def write_parts() -> Callable[[pl.DataFrame, Path], None]:
    """Write a table to a folder, in files of `PART` rows each."""

    def write(frame: pl.DataFrame, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for number, start in enumerate(range(0, frame.height, PART)):
            frame[start : start + PART].write_parquet(folder / f"part-{number}.parquet", row_group_size=GROUP)

    return write


@pytest.fixture(scope="session")
def folder(table, write_parts, tmp_path_factory) -> Path:
    """The table in three files."""
    folder = tmp_path_factory.mktemp("parts")
    write_parts(table, folder)
    return folder
