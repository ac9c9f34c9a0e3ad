"""Examples of adapters are run where their library is installed: `make test-forecasting`."""

from importlib.util import find_spec

collect_ignore = [
    f"ddpn/forecasting/{library}.py"
    for library in ("darts", "gluonts", "numpyro", "pyro", "pytorch_forecasting")
    if find_spec(library) is None
]
if find_spec("jax") is None:
    collect_ignore.append("ddpn/forecasting/jax_numerics.py")
