"""Share a loader of examples: they are programs, not a package, and are loaded from their files."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ddpn.networks.heads import HEADS

ROOT = Path(__file__).parents[2]


def load_module(path: str) -> ModuleType:
    """Load the module in a file of the repository."""
    spec = importlib.util.spec_from_file_location(f"loaded_{Path(path).stem}", ROOT / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def restore_heads() -> Iterator[None]:
    """Restore the registry afterwards, as other tests run over it."""
    before = dict(HEADS)
    yield
    HEADS.clear()
    HEADS.update(before)


@pytest.fixture(scope="session")
def load_example():
    """Return a loader of examples by name."""
    return lambda name: load_module(f"examples/{name}.py")
