"""Members as users name them: by their names, such as `trees`, or as the leaderboard calls them. Imports no torch."""

from collections.abc import Iterable
from typing import Any

from ddpn.members import MEMBERS
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import listed, suggestion


def label_of(name: str, member: Any) -> str:
    """What tables and reports call a member, given as a `Member` or as its class."""
    return member.label or name.replace("_", " ")


def member_named(word: str, names: Iterable[str] = MEMBERS) -> str:
    """The name among `names` that a user means, who may write it as the leaderboard does.

    >>> member_named("trees"), member_named("Boosted trees")
    ('trees', 'trees')
    >>> member_named("tree")
    Traceback (most recent call last):
    ddpn.runtime.errors.ConfigError: No member named 'tree'. Did you mean 'trees'?
    """
    known = list(names)
    if word in known:
        return word
    # Labels are in the classes, whose modules import torch.
    by_label = {label_of(name, MEMBERS[name]).casefold(): name for name in known if name in MEMBERS}
    found = by_label.get(word.strip().casefold().replace("_", " "))
    if found is None:
        close = suggestion(word, [*known, *by_label])
        hint = f"Did you mean {by_label.get(close, close)!r}?" if close else f"The members are: {listed(known, 20)}."
        raise ConfigError(f"No member named {word!r}. {hint}")
    return found
