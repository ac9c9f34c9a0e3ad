"""Count regressors with scikit-learn's interface."""

from ddpn.estimators.glm import CountGLM
from ddpn.estimators.regressor import CountRegressor, DDPNRegressor

__all__ = ["CountGLM", "CountRegressor", "DDPNRegressor"]
