"""Error messages in the words of the command line: arguments as the options that the user typed."""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_args

import typer

from ddpn.runtime.errors import Argument, DDPNError

#: How texts of errors refer to arguments: `name`, or `name=value`, maybe with quotation marks.
_REFERENCE = re.compile(r'`(\w+)(?:="?(\w+)"?)?`')
_NUMBERS = {int: "an integer", float: "a number"}


def in_options(error: DDPNError, options: Mapping[str, str], given: Collection[str]) -> str:
    """The sentence of an error, with the names of options (by argument) instead of those of arguments.

    An argument that was not `given` on the command line is a setting of a file, which keeps its name.

    >>> from ddpn.runtime.errors import ConfigError
    >>> options = {"epochs": "--epochs", "fractional": "--fractional", "time": "--time"}
    >>> in_options(ConfigError(argument="epochs", must="be an integer", got="0"), options, {"epochs"})
    '--epochs must be an integer, got 0.'
    >>> in_options(ConfigError('Use `fractional="round"`, or drop `time`.'), options, {})
    'Use --fractional round, or drop --time.'
    >>> in_options(ConfigError(argument=Argument("time", "my day"), must="hold dates"), options, {"time"})
    "--time 'my day' must hold dates."
    """
    subject, argument = str(error.argument), error.argument
    if isinstance(argument, Argument) and argument.name in given:
        subject = f"{options[argument.name]} {shlex.quote(argument.column)}"
    elif argument in given:
        subject = options[str(argument)]

    def reference(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in options:
            return found[0]
        return options[name] if value in (None, "True") else f"{options[name]} {value}"

    return _REFERENCE.sub(reference, error.sentence(subject))


def number_sentence(error: typer.BadParameter, arguments: Sequence[str], types: Mapping[str, Any]) -> str | None:
    """The sentence about an option whose value is not a number; None for any other misuse.

    `types` are those of the parameters of the command.
    """
    param = error.param
    found = None if param is None else types.get(str(param.name))
    kind = next((words for kind, words in _NUMBERS.items() if kind in (found, *get_args(found))), None)
    if param is None or kind is None:
        return None
    return f"{max(param.opts, key=len)} must be {kind}, got {_value(param.opts, arguments)!r}."


def _value(names: Sequence[str], arguments: Sequence[str]) -> str:
    """What was given for an option."""
    for at, word in reversed(list(enumerate(arguments))):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals or at + 1 == len(arguments) else arguments[at + 1]
    return ""
