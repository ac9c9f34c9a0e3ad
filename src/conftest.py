"""Examples of adapters are run where their library is installed: `make test-forecasting`."""

from importlib.util import find_spec

collect_ignore = [
    f"ddpn/forecasting/{library}.py"
    for library in ("darts", "gluonts", "pyro", "pytorch_forecasting")
    if find_spec(library) is None
]
