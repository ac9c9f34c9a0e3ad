"""Error messages in the words of the command line: arguments as the options that the user typed."""

import re
import shlex
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import typer

#: What ends the name of an argument at the beginning of a message.
_VERB = r"(?= (?:must|is|needs|cannot|has|says) )"
_RUNNING: ContextVar[Any] = ContextVar("running", default=None)


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


def command_start() -> float:
    """When the command began, as `time.monotonic` counts: with the program, if this runs the command, else now."""
    context = _RUNNING.get()
    started = None if context is None else context.find_object(float)
    return time.monotonic() if started is None else started


def typed_options() -> tuple[dict[str, str], set[str]]:
    """The options of the command that runs, by argument, and those that were given on the command line."""
    context = _RUNNING.get()
    if context is None:
        return {}, set()
    options = {each.name: max(each.opts, key=len) for each in context.command.params if each.opts[0].startswith("-")}
    return options, {name for name in options if _is_given(context, name)}


@contextmanager
def running(context: Any) -> Iterator[None]:
    """Within this, messages name the options of the command of this context."""
    token = _RUNNING.set(context)
    try:
        yield
    finally:
        _RUNNING.reset(token)


def _is_given(context: Any, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


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
