"""Error messages in the words of the command line: arguments as the options that the user typed."""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import typer

#: What ends the name of an argument at the beginning of a message.
_VERB = r"(?= (?:must|is|needs|cannot|has|says) )"


def with_options(sentence: str, options: Mapping[str, str], given: Collection[str]) -> str:
    """A message about arguments of Python as one about options.

    Names of `options` (argument to option) are replaced where they are code: in backticks, with a value as in name=3,
    with an underscore, and at the beginning or in brackets if the option was `given` (a setting of a file keeps its
    name).

    >>> options = {"epochs": "--epochs", "fractional": "--fractional", "time": "--time"}
    >>> with_options("epochs must be an integer, got 0.", options, {"epochs"})
    '--epochs must be an integer, got 0.'
    >>> with_options('Use fractional="round", or drop `time`.', options, {})
    'Use --fractional round, or drop --time.'
    >>> with_options("time 'my day' must hold dates.", options, {"time"})
    "--time 'my day' must hold dates."
    """
    if not options:
        return sentence
    every, code = _any(options), _any(name for name in options if "_" in name)
    typed = _any(name for name in options if name in given)
    sentence = re.sub(rf"`({every})`", lambda found: options[found[1]], sentence)
    sentence = re.sub(
        rf"(?<![\w'-])({every})=([\"']?)(\w+)\2", lambda found: f"{options[found[1]]} {found[3]}", sentence
    )
    sentence = re.sub(rf"^({typed}){_VERB}", lambda found: options[found[1]], sentence)
    sentence = re.sub(
        rf"^({typed}) '([^']*)'{_VERB}", lambda found: f"{options[found[1]]} {shlex.quote(found[2])}", sentence
    )
    sentence = re.sub(
        rf"^Unknown key '({typed})' in the options of (\w+)\.( No keys are accepted\.)?",
        lambda found: f"{options[found[1]]} does not apply to the likelihood {found[2]}.",
        sentence,
    )
    sentence = re.sub(rf"\(({typed})\)", lambda found: f"({options[found[1]]})", sentence)
    return re.sub(rf"(?<![\w'/.-])({code})(?![\w'/-])", lambda found: options[found[1]], sentence)


def _any(names: Any) -> str:
    """A pattern that matches any of these names; none where there are none."""
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True)) or "(?!)"


def number_sentence(error: typer.BadParameter, arguments: Sequence[str]) -> str | None:
    """The sentence about an option whose value is not a number; None for any other misuse."""
    param, message = error.param, str(error.message)
    kind = "an integer" if "integer" in message else "a number" if "number" in message or "float" in message else None
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
