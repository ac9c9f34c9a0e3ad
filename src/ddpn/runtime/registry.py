"""Registries: names of classes that are imported when they are first used. Imports no torch."""

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

from ddpn.runtime.validation import check_choice


class Registry(MutableMapping[str, Any]):
    """Classes by name. An entry is the class itself, or "module:Class", which is imported on first use.

    `registry["name"] = Class` adds one; listing names imports nothing.

    >>> registry = Registry("container", {"ordered": "collections:OrderedDict"})
    >>> list(registry), registry["ordered"].__name__
    (['ordered'], 'OrderedDict')
    """

    def __init__(self, kind: str, entries: dict[str, Any]) -> None:
        self.kind, self._entries = kind, dict(entries)

    def __getitem__(self, name: str) -> Any:
        entry = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self._entries[name] = getattr(import_module(module), attribute)
        return entry

    def find(self, name: Any, argument: str | None = None) -> Any:
        """The class called `name`; raises a `ConfigError` with a suggestion if there is none."""
        return self[check_choice(argument or self.kind, name, self._entries)]

    def __setitem__(self, name: str, entry: Any) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # the inherited method would import the class

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}, {list(self)})"
