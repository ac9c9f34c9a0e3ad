"""Names that must be known: the nearest one is suggested."""

import difflib
from collections.abc import Iterable

from ddpn.errors import ConfigError


def known(what: str, given: Iterable[str], valid: Iterable[str], where: str) -> None:
    """Refuse names that are not valid; the nearest valid one is suggested."""
    listed = list(valid)
    for name in given:
        if name not in listed:
            near = difflib.get_close_matches(str(name), listed, n=1)
            hint = f'Did you mean "{near[0]}"?' if near else "Choose one of these."
            raise ConfigError(f"{what} in {where} must be among {', '.join(listed)}, got {name!r}. {hint}")
