"""Test that libraries are imported on use only, and that a missing one is reported with its extra."""

import importlib.util
import subprocess
import sys

import pytest

from ddpn import ConfigError, forecasting

ADAPTERS = [
    ("gluonts", "DoublePoissonOutput", "gluonts.torch.distributions"),
    ("darts", "DoublePoissonLikelihood", "darts.utils.likelihood_models.torch"),
    ("pytorch_forecasting", "DoublePoissonDistributionLoss", "pytorch_forecasting.metrics"),
]


@pytest.mark.parametrize(("name", "kind", "module"), ADAPTERS, ids=[adapter[0] for adapter in ADAPTERS])
def test_a_missing_library_is_reported_with_its_extra(monkeypatch, name, kind, module):
    monkeypatch.setitem(sys.modules, module, None)
    path = f"{forecasting.__path__[0]}/{name}.py"
    spec = importlib.util.spec_from_file_location("adapter_without_its_library", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    extra = name.replace("_", "-")
    with pytest.raises(ConfigError, match=rf"ddpn\[{extra}\] is not installed: pip install 'ddpn\[{extra}\]'"):
        getattr(loaded, kind)()


def test_importing_the_package_imports_no_library():
    names = {"torch", "gluonts", "darts", "lightning"}
    check = f"import sys, ddpn.forecasting; print({names} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
