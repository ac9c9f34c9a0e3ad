"""Check values and names of arguments, and look up classes by name. Imports no torch."""

from collections import UserDict
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from numbers import Integral, Real
from typing import Any, TypeGuard, TypeVar

from ddpn.runtime.errors import Argument, ConfigError, DDPNError, InputError
from ddpn.runtime.errors import format_rows as format_rows
from ddpn.runtime.errors import join_words as join_words

T = TypeVar("T")
#: The similarity from which on a name is probably another one that is misspelled, such as "poison" for "poisson".
_MISSPELLED = 0.8


def is_integer(value: object) -> TypeGuard[int]:
    """Return True if `value` is a Python or NumPy integer, but not a boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Return True if `value` is a real number, but not a boolean."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_integer(name: str | Argument, value: object, minimum: int = 0, error: type[DDPNError] = ConfigError) -> int:
    """Return `value` as an int; if it is not an integer of at least `minimum`, raise `error`.

    `name` is the argument in the error message.

    >>> check_integer("size", 8, minimum=1)
    8
    """
    if not is_integer(value) or value < minimum:
        raise error(argument=name, must=f"be an integer of at least {minimum}", got=f"{value!r:.40}")
    return int(value)


def check_number(name: str, value: object, condition: str, holds: bool | None = None) -> float:
    """Return `value` as a float. If it is not a number, or if `holds` is False, raise a `ConfigError`.

    `holds` says whether the value meets the condition; None means that any number does. `condition` completes the error
    message "`name` must be ...", for example with "above 0".

    >>> check_number("beta", 0.5, "above 0", holds=0.5 > 0)
    0.5
    """
    if not is_number(value) or holds is False:
        raise ConfigError(argument=name, must=f"be {condition}", got=f"{value!r:.40}")
    return float(value)


def check_choice(name: str, value: object, choices: Iterable[str], error: type[DDPNError] = ConfigError) -> str:
    """Return `value`; if it is not among `choices`, raise `error` and suggest the most similar choice.

    `name` is the argument in the error message. If `choices` is a `Registry`, the message also says how to register the
    user's own class, unless `value` is almost the name of a choice.

    >>> check_choice("kind", "central", ("central", "calibrated"))
    'central'
    """
    names = list(choices)
    if value not in names:
        remedy = f"{_did_you_mean(value, names)} {_describe_registration(value, choices)}".strip()
        words = " or ".join(repr(c) for c in names) if len(names) < 3 else f"one of {', '.join(names)}"
        raise error(argument=name, must=f"be {words}", got=repr(value), remedy=remedy)
    return str(value)


def check_keys(keys: Iterable[object], names: Iterable[str], where: str) -> None:
    """Raise a `ConfigError` for the first key that is not among `names`, and suggest the most similar name.

    In the error message, `where` is the argument or file that has the keys.

    >>> check_keys(["epoch"], ["epochs", "lr"], "options")
    Traceback (most recent call last):
    ddpn.runtime.errors.ConfigError: Unknown key 'epoch' in options. Did you mean 'epochs'? Known keys: epochs, lr.
    """
    valid_keys = list(names)
    for key in keys:
        if key not in valid_keys:
            if not valid_keys:
                raise ConfigError(f"Unknown key {key!r} in {where}. No keys are accepted.")
            hint = f"{_did_you_mean(key, valid_keys)} Known keys: {', '.join(valid_keys)}."
            hint = f"{hint} {_describe_registration(key, names)}".strip()
            raise ConfigError(f"Unknown key {key!r} in {where}. {hint}")


def check_column(name: str, columns: Sequence[str], role: str = "", error: type[DDPNError] = ConfigError) -> str:
    """Return `name`, the name of a column. If it is not among `columns`, raise `error` and suggest a similar one.

    In the error message, `role` is the argument that names the column, or words for its use; "" mentions neither.
    """
    if name not in columns:
        role = f" (`{role}`)" if role.isidentifier() else f" ({role})" if role else ""
        hint = _did_you_mean(name, columns) or f"The columns are: {join_words(columns, 20)}."
        raise error(f"No column named {name!r}{role}. {hint}")
    return name


def refuse_old_names(**new_names: str) -> Callable[[type[T]], type[T]]:
    """Decorate a class so that passing a renamed argument raises a `TypeError` with its new name.

    `new_names` maps old names to new ones.

    >>> @refuse_old_names(size="width")
    ... class Layer:
    ...     def __init__(self, width=1):
    ...         self.width = width
    >>> Layer(size=3)
    Traceback (most recent call last):
    TypeError: Layer() has no argument 'size'. Use 'width'.
    """

    def decorate(cls: type[T]) -> type[T]:
        init = cls.__init__

        @wraps(init)
        def init_without_old_names(self: T, *arguments: Any, **options: Any) -> None:
            for old, new in new_names.items():
                if old in options:
                    raise TypeError(f"{cls.__name__}() has no argument {old!r}. Use {new!r}.")
            init(self, *arguments, **options)

        cls.__init__ = init_without_old_names  # type: ignore[assignment, method-assign]
        return cls

    return decorate


def find_similar_name(word: object, names: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the name most similar to `word`, or None if no name is similar.

    `cutoff` is the smallest similarity, from 0 to 1 (`difflib.get_close_matches`).
    """
    by_lower = {name.lower(): name for name in reversed(list(names))}
    close = get_close_matches(str(word).lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None


def _did_you_mean(word: object, names: Iterable[str]) -> str:
    similar = find_similar_name(word, names)
    return f"Did you mean {similar!r}?" if similar else ""


def _describe_registration(word: object, names: Iterable[str]) -> str:
    """Say how to register a class as `word` if `names` is a `Registry` to which users can add; otherwise return ""."""
    return names.describe_registration(word) if isinstance(names, Registry) else ""


class Registry(UserDict[str, Any]):
    """A mapping from names to classes, some of which are imported only when they are looked up.

    An entry is a class, or a string "module:Class". `registry["name"] = Class` adds an entry. Listing the names imports
    nothing. The first argument is the word for an entry in error messages. The last argument is the full name of the
    registry, "" if users cannot add entries.

    >>> registry = Registry("container", {"ordered": "collections:OrderedDict"})
    >>> list(registry), registry["ordered"].__name__
    (['ordered'], 'OrderedDict')
    """

    def __init__(self, kind: str, entries: dict[str, Any], name: str = "") -> None:
        super().__init__(entries)
        self.kind, self.name = kind, name

    def __getitem__(self, name: str) -> Any:
        entry = self.data[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self.data[name] = getattr(import_module(module), attribute)
        return entry

    def find(self, name: object) -> Any:
        """Return the class registered as `name`; if there is none, raise a `ConfigError` with a suggestion."""
        return self[check_choice(self.kind, name, self)]

    def find_saved(self, name: str) -> Any:
        """Return the class registered as `name`, the name that a saved model refers to.

        If there is none, raise an `InputError` that says how to register it.
        """
        if name not in self.data:
            raise InputError(
                f"The model has the {self.kind} {name!r}, which this program does not know. "
                f"Register it first: {self._format_registration(name)}"
            )
        return self[name]

    def describe_registration(self, word: object, further_names: Iterable[str] = ()) -> str:
        """Return sentences that say how to register a class as `word`, for errors about an unknown name.

        Return "" if `word` is almost the name of an entry, or one of `further_names`, so that it is probably
        misspelled.
        """
        names = [*self.data, *further_names]
        if not self.name or not isinstance(word, str) or find_similar_name(word, names, _MISSPELLED):
            return ""
        return f"If it is your own, register it first: {self._format_registration(word)}"

    def _format_registration(self, name: str) -> str:
        assignment = f"{self.name}[{name!r}] = ..."
        return f"{assignment} On the command line, run a script that does this and then calls ddpn.cli.main()."
