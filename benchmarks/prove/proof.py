"""What a proof is and what all proofs share: a table, a model fitted to it, and the environment of commands."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

ROOT = Path(__file__).resolve().parents[2]
#: A small model of each kind that matters: networks, a GLM and boosted trees; a few seconds.
FIT = ["--target", "visits", "--members", "2", "--epochs", "8", "--likelihood", "double_poisson", "--seed", "1"]
FIT += ["--mix-with", "glm", "--compare-with", "constant,trees"]
COLUMNS = ("age", "ward")


class Result(NamedTuple):
    """`held` says whether the claim was kept (None: it could not be tried here), `tried` how often it was tried.

    `found` is what was measured.
    """

    held: bool | None
    tried: str
    found: str
    details: dict[str, Any] = {}


class Proof(NamedTuple):
    """A claim about the package, and the function that tries to refute it."""

    name: str
    kind: str
    claim: str
    run: Callable[["Place"], Result]


@dataclass
class Place:
    """A folder for one run; `share` is the part of the full number of trials, `seed` that of everything random."""

    folder: Path
    share: float = 1.0
    seed: int = 0
    say: Callable[[str], None] = field(default=lambda words: None)

    def times(self, full: int, least: int = 1) -> int:
        """So many trials, of `full` ones."""
        return max(least, round(full * self.share))

    def fresh(self, name: str) -> Path:
        """A new, empty folder."""
        return Path(tempfile.mkdtemp(dir=self.folder, prefix=f"{name}-"))

    @cached_property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    @cached_property
    def table(self) -> Path:
        """Counts of visits, to be fitted."""
        path = self.folder / "visits.csv"
        if not path.exists():
            table(240).write_csv(path)
        return path

    @cached_property
    def model(self) -> Path:
        """The model folder of `ddpn fit`."""
        path = self.folder / "visits.model"
        if not path.exists():
            command = ddpn("fit", self.table, *FIT, "-o", path)
            subprocess.run(command, check=True, capture_output=True, env=environment())
        return path


def table(rows: int, seed: int = 0) -> pl.DataFrame:
    """Ages, wards and Poisson counts of visits."""
    rng = np.random.default_rng(seed)
    age, ward = rng.uniform(18, 90, rows).round(1), rng.choice(list("ABC"), rows)
    mean = np.exp(0.2 + 0.015 * age + 0.5 * (ward == "B"))
    return pl.DataFrame({"age": age, "ward": ward, "visits": rng.poisson(mean)})


def ddpn(*words: object) -> list[str]:
    """The command line as a list for `subprocess`."""
    return [sys.executable, "-m", "ddpn.cli", *map(str, words)]


def environment(**more: str) -> dict[str, str]:
    """One thread per process; modules of this repository can be imported."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}


def listing(folder: Path) -> list[str]:
    """The names in a folder, hidden ones too."""
    return sorted(each.name for each in folder.iterdir())
