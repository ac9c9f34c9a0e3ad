"""The levels of categorical columns that fitted members know by name."""

from collections.abc import Iterable

from ddpn.members.folds import copies_of
from ddpn.members.member import Member


def known_levels(members: Iterable[Member], width: int) -> list[tuple[str, ...]]:
    """The levels of each column that some member, or some copy of it, distinguishes; empty for numbers.

    Parameters
    ----------
    members : iterable of Member
        Fitted members.
    width : int
        The number of columns.
    """
    found: list[dict[str, None]] = [{} for _ in range(width)]
    for copy in (copy for member in members for copy in copies_of(member)):
        for own, levels in zip(found, _levels(copy), strict=False):
            own.update(dict.fromkeys(levels or ()))
    return [tuple(own) for own in found]


def _levels(member: Member) -> list[tuple[str, ...] | None]:
    """The levels of each column of one member; None for columns of numbers."""
    encoder, table, design = (getattr(member, name, None) for name in ("encoder", "table", "design"))
    if design is not None:
        return list(design.levels)
    if table is not None:
        return list(table.levels)
    return [] if encoder is None else [getattr(column, "known_levels", None) for column in encoder.columns_]
