"""The scikit-learn face of ddpn."""

from ddpn.estimator.regressor import CountRegressor

__all__ = ["CountRegressor"]
