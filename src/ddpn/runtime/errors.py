"""The errors and warnings of ddpn. An error that a user can cause is a `DDPNError` whose message is one sentence."""

import errno
import inspect
import json
import warnings
from collections.abc import Sequence
from typing import NamedTuple

#: The most row labels in a message, which gives the number of further rows.
_MAX_LISTED_ROWS = 5


class Argument(NamedTuple):
    """The name of an argument whose value is a column name, together with this column name.

    Errors about cells of the column mention both.

    Parameters
    ----------
    name : str
        The argument.
    column : str
        The column.

    Examples
    --------
    >>> str(Argument("target", "visits"))
    "target 'visits'"
    """

    name: str
    column: str

    def __str__(self) -> str:
        return f"{self.name} {self.column!r}"


class DDPNError(Exception):
    """The base class of all errors that ddpn raises on purpose.

    An error about an argument stores its message in parts. So the message can call the argument by its name in Python,
    and by its option on the command line. For the same reason, other arguments in a message are in backticks, as `name`
    or `name="value"` (`format_argument`).

    Parameters
    ----------
    message : str
        The whole message. If `argument` is given but `must` is not, it is the part of the message after the argument.
    argument : str or Argument, optional
        The argument whose value is invalid.
    must : str
        The condition that the value violates, such as "be above 0".
    got : str
        The invalid value.
    rows : sequence
        The labels of rows with invalid values.
    remedy : str
        A sentence that says what the user can do.

    Examples
    --------
    >>> str(InputError(argument="weight", must="be positive", got="-1", rows=[3, 8], remedy="Drop these rows."))
    'weight must be positive, got -1 at rows 3, 8. Drop these rows.'
    >>> str(InputError("File not found: x.csv"))
    'File not found: x.csv'
    """

    def __init__(
        self,
        message: str = "",
        *,
        argument: "str | Argument | None" = None,
        must: str = "",
        got: str = "",
        rows: Sequence[object] = (),
        remedy: str = "",
    ) -> None:
        super().__init__(message)
        self.message, self.argument, self.must, self.got = message, argument, must, got
        self.rows, self.remedy = tuple(rows), remedy

    def sentence(self, subject: str) -> str:
        """Return the message, with `subject` as the name of the argument.

        Parameters
        ----------
        subject : str
            The name to use for the argument.
        """
        if self.argument is None:
            return self.message
        text = f"{subject} must {self.must}" if self.must else f"{subject} {self.message}"
        text += f", got {self.got}" if self.got else ""
        text += f" {format_rows(self.rows)}" if self.rows else ""
        return f"{text}. {self.remedy}".rstrip()

    def __str__(self) -> str:
        return self.sentence(str(self.argument))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class InputError(DDPNError, ValueError):
    """An error about invalid data, arguments or files."""


class ConfigError(DDPNError, ValueError):
    """An error about an invalid option or combination of options."""


class TrainingError(DDPNError, RuntimeError):
    """An error that stops the training, for example because the loss is not finite."""


class DataWarning(UserWarning):
    """A warning that the columns or rows of a table may mislead a model or its scores.

    For example, a column leaks the target, rows form groups, or a number means "unknown".

    Turn these warnings off with `warnings.filterwarnings("ignore", category=ddpn.DataWarning)`.
    """


def format_argument(name: str, value: object = None) -> str:
    """Format an argument, and its value as JSON, in backticks.

    The command line replaces such a text by its option.

    >>> format_argument("overwrite"), format_argument("drop", ["age", "my day"])
    ('`overwrite`', '`drop=["age", "my day"]`')
    """
    text = name if value is None else f"{name}={json.dumps(value, ensure_ascii=False)}"
    escaped = text.replace("`", "\\u0060")  # a backtick would end the reference
    return f"`{escaped}`"


def format_rows(labels: Sequence[object]) -> str:
    """Format the labels of rows with invalid values, for the end of an error message.

    >>> format_rows([17]), format_rows([3, 8])
    ('at row 17', 'at rows 3, 8')
    """
    return f"at {'row' if len(labels) == 1 else 'rows'} {join_words(labels, _MAX_LISTED_ROWS)}"


def join_words(words: Sequence[object], shown: int = 8) -> str:
    """Join words with commas and "and".

    If there are more than `shown` words, write the first ones and the number of the others.

    >>> join_words([1, 2, 3, 4], shown=2)
    '1, 2 and 2 more'
    """
    text = ", ".join(str(word) for word in words[:shown])
    return text if len(words) <= shown else f"{text} and {len(words) - shown} more"


def describe_os_error(error: OSError) -> str:
    """Describe an `OSError`, such as a full disk or a missing file, in one sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "The disk is full. Nothing was written."
    return f"{error.filename or 'A file'}: {error.strerror or error}."


def describe_error(error: BaseException) -> str:
    """Describe an error in one line: its type and the first line of its message."""
    if isinstance(error, OSError):
        return describe_os_error(error)
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"


def warn_user(sentence: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the line of the user's code that called ddpn."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "ddpn":
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, category, stacklevel=level)
