"""Test that errors and warnings are sentences, and exit codes are as documented."""

import errno
import signal
import subprocess
import sys
import threading
import warnings

import pytest
import typer

from ddpn.cli.console import CtrlCRunner, end_on_ctrl_c, print_table, report_errors
from ddpn.runtime.errors import ConfigError, InputError, TrainingError


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (InputError("y must be positive."), 1, "Error: y must be positive."),
        (TrainingError("It cannot continue."), 1, "Error: It cannot continue."),
        (ConfigError("x must be positive."), 2, "Error: x must be positive."),
        (KeyboardInterrupt(), 130, "Stopped. Nothing was saved."),
        (OSError(errno.ENOSPC, "No space"), 1, "Error: The disk is full."),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 1, "Error: /x: Permission denied."),
    ],
)
def test_errors_are_one_sentence_with_a_code(error, code, words, capsys):
    with pytest.raises(typer.Exit) as exit_error, report_errors("Nothing was saved."):
        raise error
    assert exit_error.value.exit_code == code
    printed = capsys.readouterr().err
    assert printed.startswith(words)
    assert printed.count("\n") == 1


def test_ctrl_c_that_arrives_twice_is_reported(monkeypatch, capsys):
    echo, calls = typer.echo, []

    def interrupt(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        echo(*arguments, **options)

    monkeypatch.setattr(typer, "echo", interrupt)
    with pytest.raises(typer.Exit), report_errors("Nothing was saved."):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "Stopped. Nothing was saved.\n"


#: A call of many seconds into a library, which ends when it is done and not when a signal arrives.
LONG = """
import hashlib, os, signal, threading
from ddpn.cli.console import report_errors, end_on_ctrl_c

signal.signal(signal.SIGINT, signal.default_int_handler)
with report_errors("Nothing was written."), end_on_ctrl_c("Nothing was written."):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""


def test_ctrl_c_is_answered_in_the_middle_of_a_long_call():
    result = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (130, "Stopped. Nothing was written.\n")


def test_ctrl_c_between_two_instructions_is_the_usual_exception():
    before = signal.set_wakeup_fd(-1)
    with pytest.raises(KeyboardInterrupt), end_on_ctrl_c(""):
        signal.raise_signal(signal.SIGINT)
    assert signal.set_wakeup_fd(before) == -1


def test_other_errors_are_not_hidden():
    with pytest.raises(ZeroDivisionError), report_errors(""):
        _ = 1 / 0
    with pytest.raises(BrokenPipeError), report_errors(""):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_warnings_are_sentences_once_each(capsys):
    with report_errors(""):
        for _ in range(2):
            warnings.warn("Two columns are equal.", UserWarning, stacklevel=1)
        warnings.warn("old name", DeprecationWarning, stacklevel=1)
    assert capsys.readouterr().err == "Warning: Two columns are equal.\n"


def test_tables_are_wide_enough_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table("x" * 130)
    print_table("y", to_stderr=True)
    assert capsys.readouterr() == ("x" * 130 + "\n", "y\n")


# Ctrl-C in the steps of a fit -----------------------------------------------------------------------------------------


def raise_ctrl_c():
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_between_steps_is_remembered_and_a_second_one_does_not_hit_what_follows():
    def work():
        try:
            raise_ctrl_c()
        finally:
            raise_ctrl_c()

    with CtrlCRunner() as runner:
        with pytest.raises(KeyboardInterrupt):
            raise_ctrl_c()  # as usual, until the first step
        assert runner.run(lambda: None)
        assert not runner.run(work)
        raise_ctrl_c()
        assert not runner.run(lambda: pytest.fail("it was begun"))
    with CtrlCRunner() as runner:
        assert runner.run(lambda: None)
        raise_ctrl_c()
        assert not runner.run(lambda: pytest.fail("it was begun after Ctrl-C between two steps"))
    with pytest.raises(KeyboardInterrupt):
        raise_ctrl_c()  # as usual again


def test_other_threads_run_steps_as_they_are():
    completed = []
    thread = threading.Thread(target=lambda: completed.append(CtrlCRunner().__enter__().run(lambda: None)))
    thread.start()
    thread.join()
    assert completed == [True]
