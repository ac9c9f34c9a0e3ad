"""The scikit-learn face of ddpn."""

from ddpn.estimator.glm import CountGLM
from ddpn.estimator.regressor import CountRegressor

__all__ = ["CountGLM", "CountRegressor"]
