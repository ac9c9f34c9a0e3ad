"""The models that are compared: an adapter with options, and the environment that it runs in."""

from dataclasses import dataclass, field
from typing import Any

#: The model that others are compared with.
REFERENCE = "lightgbm_nb"


@dataclass(frozen=True)
class Model:
    """A row of the results."""

    label: str
    adapter: str
    #: requirements/NAME.txt; "" is the interpreter that runs the benchmark.
    environment: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        return self.adapter == "ours"


def _make_own_model(label: str, factory: str) -> Model:
    return Model(label, "ours", options={"factory": factory})


#: Models by name. The first of our models that has results stands for all of ours when other models are ranked.
MODELS: dict[str, Model] = {
    "ddpn": _make_own_model("ddpn: default of `ddpn fit`", "portfolio"),
    "ddpn_networks": _make_own_model("ddpn: networks + GLM", "networks"),
    "ddpn_boosted": _make_own_model("ddpn: boosted trees", "boosted"),
    "ddpn_glm": _make_own_model("ddpn: Double Poisson GLM", "glm"),
    REFERENCE: Model("LightGBM Poisson, 5 seeds, as Negative Binomial", "lightgbm_poisson", "lightgbm"),
    "lightgbm_dp": Model(
        "LightGBM mean + variance, as Double Poisson", "lightgbm_poisson", "lightgbm", {"variance": True}
    ),
    "xgboostlss_nb": Model("XGBoostLSS, Negative Binomial", "xgboost_lss", "xgboostlss"),
    "ngboost_poisson": Model("NGBoost, Poisson", "ngboost_poisson", "ngboost"),
    "quantile_forest": Model("quantile forest", "quantile_forests", "quantile_forest"),
    "catboost_quantiles": Model("CatBoost, MultiQuantile", "catboost_quantiles", "catboost"),
    "sklearn_hgb": Model("scikit-learn boosting, Poisson", "sklearn_boosting", "sklearn"),
    "glm_poisson": Model("GLM, Poisson", "statsmodels_glm", "statsmodels", {"family": "poisson"}),
    "glm_nb": Model("GLM, Negative Binomial", "statsmodels_glm", "statsmodels", {"family": "negative_binomial"}),
    "realmlp_quantiles": Model("RealMLP (pytabkit), quantiles", "pytabkit_quantiles", "pytabkit"),
    "autogluon_quantiles": Model("AutoGluon, quantiles, 60 s", "autogluon_quantiles", "autogluon"),
}
