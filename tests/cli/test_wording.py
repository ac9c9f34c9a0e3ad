"""Test sentences of the library in the words of the command line: options in them are read as they are meant."""

import shlex

import pytest

from ddpn.cli.wording import FIT_OPTIONS, format_option, render_fit_options, replace_arguments
from ddpn.runtime.column_lists import resolve_names
from ddpn.runtime.errors import format_argument

COLUMNS = ["age", "mentor, articles", "mentor", "interview date", "--drop", "it's", " padded ", "a`b", 'say "so"']


def read_names(words: list[str], flag: str) -> list[str]:
    """Read the values of an option as a command does."""
    values, remaining = [], iter(words)
    for word in remaining:
        option, sign, value = word.partition("=")
        assert option == flag
        values.append(value if sign else next(remaining))
    return values


@pytest.mark.parametrize("names", [COLUMNS, ["age", "mentor"], *([name] for name in COLUMNS)])
def test_a_written_option_is_read_as_the_same_names(names):
    values = read_names(shlex.split(format_option("--use", names)), "--use")
    assert resolve_names(values, COLUMNS, "use") == tuple(names)


@pytest.mark.parametrize("names", [COLUMNS, *([name] for name in COLUMNS)])
def test_columns_that_a_message_names_can_be_typed(names):
    sentence = render_fit_options(f"Leave it out: {format_argument('drop', names)}")
    values = read_names(shlex.split(sentence.removeprefix("Leave it out: ")), "--drop")
    assert resolve_names(values, COLUMNS, "drop") == tuple(names)


def test_other_arguments_and_code_stay():
    text = "`ddpn fit` and `n_networks=3` and `epochs`"
    assert replace_arguments(text, {"epochs": "--epochs"}) == "`ddpn fit` and `n_networks=3` and --epochs"
    assert (FIT_OPTIONS["time_budget"], FIT_OPTIONS["censored_above"]) == ("--budget", "--censored-above")
