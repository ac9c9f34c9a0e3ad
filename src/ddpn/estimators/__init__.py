"""The scikit-learn face of ddpn."""

from ddpn.estimators.glm import CountGLM
from ddpn.estimators.regressor import CountRegressor

__all__ = ["CountGLM", "CountRegressor"]
