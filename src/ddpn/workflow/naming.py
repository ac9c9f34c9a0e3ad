"""Names a user wrote, checked against those there are: the nearest is suggested."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from ddpn.errors import ConfigError, InputError

#: Rows and names shown of many.
_SHOWN = 5


def listed(words: Sequence[object], shown: int = 8) -> str:
    """With commas; of many the first ones.

    >>> listed([1, 2, 3, 4], shown=2)
    '1, 2 and 2 more'
    """
    text = ", ".join(str(word) for word in words[:shown])
    return text if len(words) <= shown else f"{text} and {len(words) - shown} more"


def row_numbers(rows: Sequence[int]) -> str:
    """Row numbers as a user counts them, of many the first five.

    >>> row_numbers([0, 7])
    'rows 1, 8 (row 1 is the first below the header)'
    """
    numbers = [int(row) + 1 for row in rows]
    return f"{'row' if len(numbers) == 1 else 'rows'} {listed(numbers, _SHOWN)} (row 1 is the first below the header)"


def nearest(word: str, known: Iterable[str]) -> str:
    """The remedy for a name that is not known: the nearest one, or all of them."""
    known = list(known)
    by_small_letters = {name.lower(): name for name in reversed(known)}
    close = get_close_matches(word.lower(), by_small_letters, n=1, cutoff=0.5)
    if close:
        return f"Did you mean {by_small_letters[close[0]]!r}?"
    return f"There are: {listed(known, 20)}."


def check_column(name: str, columns: Sequence[str], role: str, source: str = "the table") -> str:
    """`name`, if there is such a column."""
    if name not in columns:
        got = f"got {name!r}, which {source} does not have"
        raise InputError(f"{role} must name a column, {got}. {nearest(name, columns)}")
    return name


def check_keys(keys: Iterable[str], known: Sequence[str], source: str) -> None:
    """All of `keys` are known, or the first that is not is told, with all that are."""
    for key in keys:
        if key not in known:
            hint = nearest(key, known)
            hint = hint if hint.startswith("Did") else "Take one of these."
            raise ConfigError(f"keys in {source} must be among {', '.join(known)}, got {key!r}. {hint}")
