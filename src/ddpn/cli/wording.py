"""Sentences of the library in the words of the command line: options in place of arguments. Imports no torch.

Messages write an argument as `name`, or as `name=value` with the value as JSON (`ddpn.runtime.errors.format_argument`).
"""

import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence

from ddpn.cli.plan_options import OPTION_TEXTS
from ddpn.runtime.errors import Argument, DDPNError

_REFERENCE = re.compile(r"`(\w+)(?:=([^`]*))?`")
#: The options of `ddpn fit`, by argument.
FIT_OPTIONS = {name: text.flag or f"--{name.replace('_', '-')}" for name, text in OPTION_TEXTS.items()}


def format_option(option: str, values: Sequence[object]) -> str:
    """Write an option with its values, such as names of columns, so that a shell and the command read exactly these.

    >>> format_option("--drop", ["age", "ward"]), format_option("--time", ["interview date"])
    ('--drop age,ward', "--time 'interview date'")
    >>> format_option("--drop", ["mentor, articles", "age"]), format_option("--missing", ["-999"])
    ("--drop 'mentor, articles' --drop age", '--missing=-999')
    """
    texts = [str(value) for value in values]
    words = texts if any("," in text or text != text.strip() for text in texts) else [",".join(texts)]
    # A value that begins with a dash would be read as another option.
    return " ".join(f"{option}{'=' if word.startswith('-') else ' '}{shlex.quote(word)}" for word in words)


def replace_arguments(text: str, options: Mapping[str, str]) -> str:
    """Return a sentence with options (by argument) in place of the arguments that it refers to.

    >>> options = {"time": "--time", "drop": "--drop", "overwrite": "--overwrite"}
    >>> replace_arguments('Use `drop=["my day", "age"]`, leave out `time`, or pass `overwrite=True`.', options)
    "Use --drop 'my day,age', leave out --time, or pass --overwrite."
    """

    def replace(match: re.Match[str]) -> str:
        name, written = match.groups()
        if name not in options:
            return match[0]
        if written in (None, "True"):
            return options[name]
        try:
            value = json.loads(written)
        except ValueError:
            value = written
        return format_option(options[name], value if isinstance(value, list) else [value])

    return _REFERENCE.sub(replace, text)


def in_fit_options(sentence: str) -> str:
    """Return a sentence about a table, or a fit, with the options of `ddpn fit` that it refers to."""
    return replace_arguments(sentence, FIT_OPTIONS)


def in_options(error: DDPNError, options: Mapping[str, str], given: Collection[str]) -> str:
    """Return the sentence of an error, with the names of options (by argument) instead of those of arguments.

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
    return replace_arguments(error.sentence(subject), options)
