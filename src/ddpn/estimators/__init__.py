"""Count regressors with scikit-learn's interface."""

from ddpn.estimators.count_regressor import CountRegressor
from ddpn.estimators.ddpn_regressor import DDPNRegressor
from ddpn.estimators.glm import CountGLM

__all__ = ["CountGLM", "CountRegressor", "DDPNRegressor"]
