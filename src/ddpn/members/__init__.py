"""What can be part of a predictor: each member turns inputs into count distributions.

A new kind of member is one class (see `Member`) and one line: `MEMBERS["name"] = Class`. Listing names imports nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddpn.runtime.registry import Registry

if TYPE_CHECKING:
    from ddpn.members.blending import choose_weights
    from ddpn.members.member import Member

__all__ = ["MEMBERS", "Member", "choose_weights"]

#: Kinds of members by name. "networks" are what `CountRegressor` trains; `mix_with` and `compare_with` take the others.
MEMBERS = Registry(
    "member",
    {
        "networks": "ddpn.members.networks:Networks",
        "large_networks": "ddpn.members.large_networks:LargeNetworks",
        "glm": "ddpn.members.glm:GLM",
        "constant": "ddpn.members.constant:Constant",
        "poisson_glm": "ddpn.members.glm:PoissonGLM",
        "trees": "ddpn.members.trees.member:Trees",
        "joint_trees": "ddpn.members.trees.member:JointTrees",
    },
)
_LAZY = {"Member": "ddpn.members.member", "choose_weights": "ddpn.members.blending"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
