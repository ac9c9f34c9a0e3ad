"""What can be part of a predictor: each member turns inputs into count distributions.

A new kind of member is one class (see `Member`) and one line: `MEMBERS["name"] = Class`. Listing names imports nothing.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ddpn.runtime.errors import ConfigError
from ddpn.runtime.extras import import_on_use
from ddpn.runtime.validation import Registry, listed, suggestion

if TYPE_CHECKING:
    from ddpn.members.member import Member

__all__ = ["MEMBERS", "Member", "find_member_name", "format_member_label", "list_mixable_members"]

#: Kinds of members by name, in the order in which `members="auto"` fits those that are a part of the default model.
MEMBERS = Registry(
    "member",
    {
        "constant": "ddpn.members.glm:Constant",
        "trees": "ddpn.members.trees.member:Trees",
        "glm": "ddpn.members.glm:GLM",
        "networks": "ddpn.members.networks:Networks",
        "large_networks": "ddpn.members.networks:LargeNetworks",
        "poisson_glm": "ddpn.members.glm:PoissonGLM",
    },
)


def list_mixable_members() -> list[str]:
    """Names of the members that networks can be mixed with and compared with."""
    return [name for name in MEMBERS if name != "networks"]


def format_member_label(name: str, member: "Member | type[Member]") -> str:
    """What tables and reports call a member, given as a `Member` or as its class."""
    return member.label or name.replace("_", " ")


def find_member_name(word: str, names: Iterable[str] = MEMBERS) -> str:
    """The name among `names` that a user means, who may write it as the leaderboard does.

    >>> find_member_name("trees"), find_member_name("Boosted trees")
    ('trees', 'trees')
    >>> find_member_name("tree")
    Traceback (most recent call last):
    ddpn.runtime.errors.ConfigError: No member named 'tree'. Did you mean 'trees'?
    """
    known = list(names)
    if word in known:
        return word
    # Labels are in the classes, whose modules import torch.
    by_label = {format_member_label(name, MEMBERS[name]).casefold(): name for name in known if name in MEMBERS}
    found = by_label.get(word.strip().casefold().replace("_", " "))
    if found is None:
        close = suggestion(word, [*known, *by_label])
        hint = f"Did you mean {by_label.get(close, close)!r}?" if close else f"The members are: {listed(known, 20)}."
        raise ConfigError(f"No member named {word!r}. {hint}")
    return found


__getattr__ = import_on_use(__name__, {"Member": f"{__name__}.member"})
