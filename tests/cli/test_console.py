"""Errors and warnings are sentences; exit codes are as documented."""

import errno
import warnings

import pytest
import typer

from ddpn.cli.console import show, stdout_kept_free, told
from ddpn.errors import ConfigError, InputError, TrainingError


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (InputError("y must be so."), 1, "Error: y must be so.\n"),
        (TrainingError("it must go on."), 1, "Error: it must go on.\n"),
        (ConfigError("x must be so."), 2, "Error: x must be so.\n"),
        (KeyboardInterrupt(), 130, "Stopped. Go on so.\n"),
        (OSError(errno.ENOSPC, "No space"), 1, "Error: the disk must have room for the output, got a full one."),
        (
            PermissionError(errno.EACCES, "Permission denied", "/x"),
            1,
            "Error: the file /x must be usable, got: Permission",
        ),
    ],
)
def test_errors(error, code, sentence, capsys):
    with pytest.raises(typer.Exit) as found, told("Go on so."):
        raise error
    assert found.value.exit_code == code
    err = capsys.readouterr().err
    assert err.startswith(sentence)
    assert err.count("\n") == 1


def test_other_errors_are_not_hidden():
    with pytest.raises(ZeroDivisionError), told("Go on so."):
        _ = 1 / 0
    with pytest.raises(BrokenPipeError), told("Go on so."):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_warnings_are_sentences_once_each(capsys):
    with told("Go on so."):
        for _ in range(2):
            warnings.warn("columns must differ, got two alike.", UserWarning, stacklevel=1)
        warnings.warn("old name", DeprecationWarning, stacklevel=1)
    assert capsys.readouterr().err == "Warning: columns must differ, got two alike.\n"


def test_what_libraries_print_goes_to_standard_error(capsys):
    with stdout_kept_free():
        print("a bar")
    assert capsys.readouterr() == ("", "a bar\n")


def test_tables_are_wide_enough_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    show("x" * 130)
    show("y", to_stderr=True)
    assert capsys.readouterr() == ("x" * 130 + "\n", "y\n")
