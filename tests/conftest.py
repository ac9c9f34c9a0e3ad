"""Small data with a known distribution and small models, which many tests share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# Imports are within the fixtures: pytest-xdist's own process reads this file too, and runs no test.
if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from ddpn import CountRegressor

#: Tests on Ray, which share one cluster.
RAY = "tests/cluster"
#: When this share of the tests is left, those on Ray begin.
LAST = 0.12
#: Two small networks with one encoding.
SMALL = {"members": 2, "hidden": (8,), "numeric": "standard", "epochs": 5, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="session")
def quick() -> Callable[..., CountRegressor]:
    """An ensemble that is trained in a twentieth of a second."""
    from ddpn import CountRegressor

    return lambda **options: CountRegressor(**SMALL | options)


@pytest.fixture(scope="session")
def counts() -> tuple[np.ndarray, np.ndarray]:
    """90 rows of three numbers, and Poisson counts whose mean depends on the first two."""
    import numpy as np

    rng = np.random.default_rng(5)
    X = rng.normal(size=(90, 3))
    return X, rng.poisson(np.exp(1.2 + 0.8 * X[:, 0] - 0.4 * X[:, 1])).astype(float)


@pytest.fixture(scope="session")
def exposures() -> np.ndarray:
    """One exposure per row of `counts`."""
    import numpy as np

    return np.random.default_rng(6).uniform(0.2, 4.0, 90)


@pytest.fixture(scope="session")
def larger() -> tuple[np.ndarray, np.ndarray]:
    """300 rows: more than one batch, and enough for validation rows."""
    import numpy as np

    rng = np.random.default_rng(8)
    X = rng.normal(size=(300, 2)) * (rng.uniform(size=(300, 2)) > 0.3)
    return X, rng.poisson(np.exp(1.0 + X[:, 0])).astype(float)


@pytest.fixture(scope="session")
def wards() -> tuple[pd.DataFrame, np.ndarray]:
    """90 rows of text, levels, numbers with gaps and flags; counts are higher in ward A."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(9)
    ward = np.array(["A", "B", "C"])[rng.integers(0, 3, 90)]
    age = np.where(rng.uniform(size=90) < 0.2, np.nan, rng.uniform(20, 80, 90))
    frame = pd.DataFrame({"ward": ward, "kind": pd.Categorical(ward), "age": age, "urgent": rng.uniform(size=90) < 0.5})
    return frame, rng.poisson(np.where(ward == "A", 9.0, 2.0)).astype(float)


@pytest.fixture(scope="session")
def fitted(quick, counts) -> CountRegressor:
    """An ensemble for tests that only predict with it."""
    return quick(members=3, epochs=40).fit(*counts)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of the paper's data; tests that need them are skipped where there is none."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("DDPN_DATA", beside))
    if not (folder / "length_of_stay").is_dir():
        pytest.skip(f"no data in {folder}: set DDPN_DATA to a folder that has them")
    return folder


@pytest.fixture(scope="session")
def rewrite() -> Callable[..., None]:
    """Change a saved model and update its hashes, as somebody would who wants it to be loaded."""
    from ddpn.files import sha256
    from ddpn.model_files import _checksum

    def change(folder: Path, files: dict[str, bytes] | None = None, **manifest: Any) -> None:
        known = json.loads((folder / "model.json").read_text()) | manifest
        for name, content in (files or {}).items():
            (folder / name).write_bytes(content)
            known["files"][name] = sha256(content)
        known["checksum"] = _checksum(known)
        (folder / "model.json").write_text(json.dumps(known))

    return change


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Iterator[Any]:
    """Leave tests out of the search for doctests: they have none."""
    from _pytest.doctest import DoctestModule

    return [each for each in (yield) if not isinstance(each, DoctestModule)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on Ray are the last tests: a process that was its driver has threads, and others start processes by a fork.

    Doctests, which start none and may register things, follow.
    """
    items.sort(key=lambda item: 2 if item.nodeid.startswith("src") else int(item.nodeid.startswith(RAY)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give whole files to processes, so that what is fitted once per file or folder is fitted in one process."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class FromBothEnds(LoadScopeScheduling):
        """Every other process starts at the end of the list of tests.

        The tests on Ray are one unit, which waits more than it computes. It begins while others can still compute, and
        its process has only doctests after it.
        """

        driver: Any = None

        def _split_scope(self, nodeid: str) -> str:
            return RAY if nodeid.startswith(RAY) else nodeid.partition("::")[0]

        def _assign_work_unit(self, node: Any) -> None:
            files = [unit for unit in self.workqueue if unit.startswith("tests/") and unit != RAY]
            left = sum(len(self.workqueue[unit]) for unit in files)
            if node is self.driver:
                units = [unit for unit in self.workqueue if unit not in files][:1]
                if not units:
                    node.shutdown()
                    return
            elif RAY in self.workqueue and left <= LAST * len(self.collection):
                # A process alone has all the other tests to run, too.
                units, self.driver = [RAY], node if len(self.nodes) > 1 else None
            else:
                units = files[-1:] if self.nodes.index(node) % 2 else files[:1]
            if units:
                self.workqueue.move_to_end(units[0], last=False)
            super()._assign_work_unit(node)

    config.option.loadscopereorder = False
    return FromBothEnds(config, log)
