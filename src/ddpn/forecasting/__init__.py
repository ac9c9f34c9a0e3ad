"""The Double Poisson for libraries of time series forecasting.

One class per library, each with an extra of the same name: `DoublePoissonOutput` for GluonTS, `DoublePoissonLikelihood`
for darts and `DoublePoissonDistributionLoss` for PyTorch Forecasting.
Importing this package imports none of these libraries.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpn.forecasting.darts import DoublePoissonLikelihood
    from ddpn.forecasting.gluonts import DoublePoissonOutput
    from ddpn.forecasting.pytorch_forecasting import DoublePoissonDistributionLoss

__all__ = ["DoublePoissonDistributionLoss", "DoublePoissonLikelihood", "DoublePoissonOutput"]

_LAZY = {
    "DoublePoissonDistributionLoss": "ddpn.forecasting.pytorch_forecasting",
    "DoublePoissonLikelihood": "ddpn.forecasting.darts",
    "DoublePoissonOutput": "ddpn.forecasting.gluonts",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
