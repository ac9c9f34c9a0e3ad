"""Replace arguments of the library in sentences by options of the command line.

Sentences of the library write an argument as `name`, or as `name=value` with the value as JSON
(`ddpn.runtime.errors.format_argument`). Imports no torch.
"""

import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence

from ddpn.cli.plan_options import OPTION_TEXTS
from ddpn.runtime.errors import Argument, DDPNError

_REFERENCE = re.compile(r"`(\w+)(?:=([^`]*))?`")
#: The option of `ddpn fit` for each argument.
FIT_OPTIONS = {name: text.flag or f"--{name.replace('_', '-')}" for name, text in OPTION_TEXTS.items()}


def format_option(option: str, values: Sequence[object]) -> str:
    """Format an option and its values as a user would type them in a shell.

    >>> format_option("--drop", ["age", "ward"]), format_option("--time", ["interview date"])
    ('--drop age,ward', "--time 'interview date'")
    >>> format_option("--drop", ["mentor, articles", "age"]), format_option("--missing", ["-999"])
    ("--drop 'mentor, articles' --drop age", '--missing=-999')
    """
    texts = [str(value) for value in values]
    words = texts if any("," in text or text != text.strip() for text in texts) else [",".join(texts)]
    # Without "=", a value that begins with a dash would be read as another option.
    return " ".join(f"{option}{'=' if word.startswith('-') else ' '}{shlex.quote(word)}" for word in words)


def replace_arguments(text: str, options: Mapping[str, str]) -> str:
    """Replace the arguments that a sentence names, such as `time`, by options of the command line, such as --time.

    `options` maps names of arguments to options. Arguments without an option stay as they are.

    >>> options = {"time": "--time", "drop": "--drop", "overwrite": "--overwrite"}
    >>> replace_arguments('Use `drop=["my day", "age"]`, leave out `time`, or pass `overwrite=True`.', options)
    "Use --drop 'my day,age', leave out --time, or pass --overwrite."
    """

    def replace(match: re.Match[str]) -> str:
        name, value_text = match.groups()
        if name not in options:
            return match[0]
        if value_text in (None, "True"):
            return options[name]
        try:
            value = json.loads(value_text)
        except ValueError:
            value = value_text
        return format_option(options[name], value if isinstance(value, list) else [value])

    return _REFERENCE.sub(replace, text)


def render_fit_options(sentence: str) -> str:
    """Replace the arguments that a sentence names, such as `time`, by the options of `ddpn fit`, such as --time."""
    return replace_arguments(sentence, FIT_OPTIONS)


def render_error(error: DDPNError, options: Mapping[str, str], typed: Collection[str]) -> str:
    """Return the message of an error, with arguments replaced by options.

    `options` maps names of arguments to options, and `typed` are the arguments whose options the user typed. If the
    invalid argument is not among these, its value comes from a settings file, and its name is not replaced.

    >>> from ddpn.runtime.errors import ConfigError
    >>> options = {"epochs": "--epochs", "fractional": "--fractional", "time": "--time"}
    >>> render_error(ConfigError(argument="epochs", must="be an integer", got="0"), options, {"epochs"})
    '--epochs must be an integer, got 0.'
    >>> render_error(ConfigError('Use `fractional="round"`, or drop `time`.'), options, {})
    'Use --fractional round, or drop --time.'
    >>> render_error(ConfigError(argument=Argument("time", "my day"), must="hold dates"), options, {"time"})
    "--time 'my day' must hold dates."
    """
    subject, argument = str(error.argument), error.argument
    if isinstance(argument, Argument) and argument.name in typed:
        subject = f"{options[argument.name]} {shlex.quote(argument.column)}"
    elif argument in typed:
        subject = options[str(argument)]
    return replace_arguments(error.sentence(subject), options)
