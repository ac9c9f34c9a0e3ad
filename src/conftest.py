"""Examples of adapters are run where their library is installed: `make test-forecasting`."""

from importlib.util import find_spec
from pathlib import Path

collect_ignore = [
    f"ddpn/forecasting/{library}.py"
    for library in ("darts", "gluonts", "numpyro", "pyro", "pytorch_forecasting")
    if find_spec(library) is None
]
# Modules without an example are not imported to look for one.
collect_ignore += [str(path) for path in Path(__file__).parent.rglob("*.py") if ">>>" not in path.read_text("utf-8")]
if find_spec("jax") is None:
    collect_ignore.append("ddpn/forecasting/jax_numerics.py")
