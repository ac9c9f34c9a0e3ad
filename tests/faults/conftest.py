"""A small model folder without a command: the proofs of `benchmarks/prove` are tried on it with few cases."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A place for proofs, with a model that `ddpn fit` would write."""
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks.prove.proof import Place

        from ddpn.tables.reading import read
        from ddpn.workflow.fitting import fit
        from ddpn.workflow.plan import Plan
        from ddpn.workflow.preparing import prepare

        found = Place(tmp_path_factory.mktemp("prove"), share=0.0)
        model = {"members": 2, "hidden": (8,), "epochs": 2, "device": "cpu", "likelihood": "double_poisson"}
        model |= {"mix_with": ("glm",)}
        plan = Plan(target="visits", compare_with=("constant", "trees"), model=model)
        folder = fit(prepare(read(str(found.table)), plan), {"data": "visits.csv", "command": "ddpn fit"}).folder
        folder.save(found.folder / "visits.model")
        yield found
    finally:
        sys.path.remove(str(ROOT))
        for name in [name for name in sys.modules if name == "benchmarks" or name.startswith("benchmarks.")]:
            del sys.modules[name]
