"""The registry of members: the types of models that predict count distributions and can be mixed.

To add a type of member, write a subclass of `Member` and register it: `MEMBERS["name"] = MyMember`. Listing the names
in `MEMBERS` does not import the classes.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ddpn.runtime.errors import ConfigError
from ddpn.runtime.extras import import_on_use
from ddpn.runtime.validation import Registry, find_similar_name, join_words

if TYPE_CHECKING:
    from ddpn.members.member import Member

__all__ = ["MEMBERS", "Member", "find_member_name", "format_member_label", "list_mixable_members"]

#: Kinds of members by name. `members="auto"` fits the default ones in this order.
MEMBERS = Registry(
    "member",
    {
        "constant": "ddpn.members.constant:Constant",
        "trees": "ddpn.members.trees.member:Trees",
        "glm": "ddpn.members.glm:GLM",
        "networks": "ddpn.members.networks:Networks",
        "large_networks": "ddpn.members.networks:LargeNetworks",
        "poisson_glm": "ddpn.members.glm:PoissonGLM",
    },
    "ddpn.members.MEMBERS",
)


def list_mixable_members() -> list[str]:
    """List the names of all members except "networks".

    These members can be mixed with the networks, or compared with them.
    """
    return [name for name in MEMBERS if name != "networks"]


def format_member_label(name: str, member: "Member | type[Member]") -> str:
    """Return the display name of a member for tables and reports.

    It is the `label` of the member, if it has one, or else `name` with spaces for underscores. `member` is a fitted
    `Member` or its class.
    """
    return member.label or name.replace("_", " ")


def find_member_name(word: str, names: Iterable[str] = MEMBERS) -> str:
    """Find the registered name of a member, given this name or the member's label in reports.

    `word` is what the user wrote, and `names` are the registered names to compare it with. Raise a `ConfigError` with a
    suggestion if `word` matches none of them.

    >>> find_member_name("trees"), find_member_name("Boosted trees")
    ('trees', 'trees')
    >>> find_member_name("tree")
    Traceback (most recent call last):
    ddpn.runtime.errors.ConfigError: No member named 'tree'. Did you mean 'trees'?
    """
    candidates = list(names)
    if word in candidates:
        return word
    # Labels are read last, because the modules of the classes import torch.
    by_label = {format_member_label(name, MEMBERS[name]).casefold(): name for name in candidates if name in MEMBERS}
    name_by_label = by_label.get(word.strip().casefold().replace("_", " "))
    if name_by_label is None:
        close = find_similar_name(word, [*candidates, *by_label])
        hint = (
            f"Did you mean {by_label.get(close, close)!r}?"
            if close
            else f"The members are: {join_words(candidates, 20)}."
        )
        registration = MEMBERS.describe_registration(word, by_label) if names is MEMBERS else ""
        raise ConfigError(f"No member named {word!r}. {hint} {registration}".rstrip())
    return name_by_label


__getattr__ = import_on_use(__name__, {"Member": f"{__name__}.member"})
