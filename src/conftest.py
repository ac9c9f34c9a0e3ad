"""Examples of adapters are run where their library is installed: `make test-forecasting`."""

from importlib.util import find_spec
from pathlib import Path

#: Modules that need a library.
NEEDS = {f"ddpn/forecasting/{library}.py": library for library in ("darts", "gluonts", "pytorch_forecasting")}


# A hook instead of `collect_ignore`: pytest makes all paths of that list again for every file that it looks at.
def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Modules without an example are not imported to look for one."""
    if collection_path.suffix != ".py":
        return None
    library = NEEDS.get(collection_path.relative_to(Path(__file__).parent).as_posix())
    if library is not None and find_spec(library) is None:
        return True
    return True if ">>>" not in collection_path.read_text("utf-8") else None
