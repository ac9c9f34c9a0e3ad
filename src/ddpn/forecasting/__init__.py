"""The Double Poisson as an output distribution, likelihood or loss in libraries for time series forecasting.

There is one class per library, with an extra of the same name as the library: `DoublePoissonOutput` for GluonTS,
`DoublePoissonLikelihood` for darts and `DoublePoissonDistributionLoss` for PyTorch Forecasting. Importing this package
imports none of these libraries.
"""

from typing import TYPE_CHECKING

from ddpn.runtime.extras import import_on_use

if TYPE_CHECKING:
    from ddpn.forecasting.darts import DoublePoissonLikelihood
    from ddpn.forecasting.gluonts import DoublePoissonOutput
    from ddpn.forecasting.pytorch_forecasting import DoublePoissonDistributionLoss

__all__ = ["DoublePoissonDistributionLoss", "DoublePoissonLikelihood", "DoublePoissonOutput"]

__getattr__ = import_on_use(
    __name__,
    {
        "DoublePoissonDistributionLoss": f"{__name__}.pytorch_forecasting",
        "DoublePoissonLikelihood": f"{__name__}.darts",
        "DoublePoissonOutput": f"{__name__}.gluonts",
    },
)
