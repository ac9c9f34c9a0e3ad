"""Predict counts with honest uncertainty."""

from typing import TYPE_CHECKING

from ddpn.runtime.errors import ConfigError, DataWarning, DDPNError, InputError, TrainingError
from ddpn.runtime.extras import import_on_use

if TYPE_CHECKING:
    from ddpn.analysis.diagnosis import diagnose
    from ddpn.analysis.explanations import explain
    from ddpn.distributions import (
        ConwayMaxwellPoisson,
        Discretized,
        DoubleBinomial,
        DoublePoisson,
        GeneralizedPoisson,
        Mixture,
        NegativeBinomial,
        Poisson,
        discretize,
    )
    from ddpn.estimators import CountGLM, CountRegressor, DDPNRegressor
    from ddpn.prediction.prediction import Prediction
    from ddpn.prediction.spec import PredictionSpec
    from ddpn.rows.count_rows import CountRows
    from ddpn.tables.similar_rows import group_similar_rows

_DISTRIBUTIONS = (
    "ConwayMaxwellPoisson", "Discretized", "DoubleBinomial", "DoublePoisson", "GeneralizedPoisson",
    "Mixture", "NegativeBinomial", "Poisson", "discretize",
)  # fmt: skip
#: Names that are imported on first use, so that `ddpn --help` need not wait for torch, or distributions for
#: scikit-learn.
_LAZY = dict.fromkeys(_DISTRIBUTIONS, "ddpn.distributions")
_LAZY |= {"CountRegressor": "ddpn.estimators.count_regressor", "DDPNRegressor": "ddpn.estimators.ddpn_regressor"}
_LAZY |= {"CountGLM": "ddpn.estimators.glm"}
_LAZY |= {"Prediction": "ddpn.prediction.prediction", "PredictionSpec": "ddpn.prediction.spec"}
_LAZY |= {"group_similar_rows": "ddpn.tables.similar_rows"}
_LAZY |= {"CountRows": "ddpn.rows.count_rows"}
_LAZY |= {"diagnose": "ddpn.analysis.diagnosis", "explain": "ddpn.analysis.explanations"}

__all__ = [
    "ConfigError",
    "ConwayMaxwellPoisson",
    "CountGLM",
    "CountRegressor",
    "CountRows",
    "DDPNError",
    "DDPNRegressor",
    "DataWarning",
    "Discretized",
    "DoubleBinomial",
    "DoublePoisson",
    "GeneralizedPoisson",
    "InputError",
    "Mixture",
    "NegativeBinomial",
    "Poisson",
    "Prediction",
    "PredictionSpec",
    "TrainingError",
    "diagnose",
    "discretize",
    "explain",
    "group_similar_rows",
]


__getattr__ = import_on_use(__name__, _LAZY)


def __dir__() -> list[str]:
    return __all__
