"""Share jobs that worker processes can import."""

import importlib
import sys
from pathlib import Path

import pytest
from joblib.externals.loky import get_reusable_executor


@pytest.fixture(scope="session")
def work():
    """The module of small jobs."""
    folder = str(Path(__file__).parent)
    sys.path.insert(0, folder)
    get_reusable_executor().shutdown(wait=True)  # whose processes, from earlier tests, do not know this folder
    yield importlib.import_module("small_jobs")
    sys.path.remove(folder)
