"""What can be part of a predictor: each member turns inputs into count distributions.

A new kind of member is one class (see `Member`) and one line: `MEMBERS["name"] = Class`. Listing names imports nothing.
"""

from typing import TYPE_CHECKING, Any

from ddpn.runtime.validation import Registry

if TYPE_CHECKING:
    from ddpn.members.member import Member

__all__ = ["MEMBERS", "Member", "mixable"]

#: Kinds of members by name, in the order in which `members="auto"` fits those that are a part of the default model.
MEMBERS = Registry(
    "member",
    {
        "constant": "ddpn.members.constant:Constant",
        "trees": "ddpn.members.trees.member:Trees",
        "glm": "ddpn.members.glm:GLM",
        "networks": "ddpn.members.networks:Networks",
        "large_networks": "ddpn.members.networks:LargeNetworks",
        "poisson_glm": "ddpn.members.glm:PoissonGLM",
        "joint_trees": "ddpn.members.trees.member:JointTrees",
    },
)


def mixable() -> list[str]:
    """Names of the members that networks can be mixed with and compared with."""
    return [name for name in MEMBERS if name != "networks"]


def __getattr__(name: str) -> Any:
    if name == "Member":
        from ddpn.members.member import Member

        return Member
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
