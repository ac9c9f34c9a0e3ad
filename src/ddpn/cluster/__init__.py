"""Running on a Ray cluster (the extra `cluster`): jobs on its nodes, predictions, and one large training.

Importing this package imports neither torch nor Ray.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpn.cluster.prediction import predict_on_ray
    from ddpn.cluster.ray_executor import RayExecutor
    from ddpn.cluster.training import fit_on_ray

__all__ = ["RayExecutor", "fit_on_ray", "predict_on_ray"]

_LAZY = {
    "RayExecutor": "ddpn.cluster.ray_executor",
    "fit_on_ray": "ddpn.cluster.training",
    "predict_on_ray": "ddpn.cluster.prediction",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
