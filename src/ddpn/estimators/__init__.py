"""Estimators with scikit-learn's interface. Imported on first use, as they need torch and scikit-learn."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpn.estimators.glm import CountGLM
    from ddpn.estimators.regressor import CountRegressor, DDPNRegressor

__all__ = ["CountGLM", "CountRegressor", "DDPNRegressor"]
_MODULES = {
    "CountGLM": "ddpn.estimators.glm",
    "CountRegressor": "ddpn.estimators.regressor",
    "DDPNRegressor": "ddpn.estimators.regressor",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
