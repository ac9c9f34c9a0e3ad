"""Examples are programs, not a package: each is loaded from its file."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ddpn.networks.heads import HEADS

ROOT = Path(__file__).parents[2]


def loaded(path: str) -> ModuleType:
    """The module in a file of the repository."""
    spec = importlib.util.spec_from_file_location(f"loaded_{Path(path).stem}", ROOT / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def registered_heads() -> Iterator[None]:
    """The registry as it was: other tests run over it."""
    before = dict(HEADS)
    yield
    HEADS.clear()
    HEADS.update(before)


@pytest.fixture(scope="session")
def example():
    """A loader of examples by name."""
    return lambda name: loaded(f"examples/{name}.py")
