"""Test the program as a whole: its commands, help, exit codes and version."""

import re
import subprocess
import sys
import time
from importlib.metadata import version

import pytest
import typer

COMMANDS = (
    "fit", "tune", "predict", "evaluate", "show", "report", "export", "serve", "diagnose", "likelihoods", "explain",
    "monitor", "reproduce", "data",
)  # fmt: skip


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS), ["data", "list"], ["data", "get"]])
def test_every_help_has_the_exit_codes_and_says_which_options_take_a_value(run_ddpn, command):
    short = run_ddpn(*command, "--help")
    result = run_ddpn(*command, "--help-all") if "--help-all" in short.output else short
    assert (short.exit_code, result.exit_code) == (0, 0)
    assert "Exit codes: 0 " in result.output
    assert "<bool>" not in result.output
    assert re.search(r"--help +Show this message and exit", result.output)
    options = re.findall(r"^│ \*? *(--[\w-]+)(?: +-\w)? +(\S+)", result.output, flags=re.MULTILINE)
    values = {name: value for name, value in options if value.isupper() or "<" in value}
    assert not any("<" in value for value in values.values()), "name what the option takes"


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_fits_a_screen_and_says_how_to_see_the_rest(run_ddpn, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "100")
    short, whole = (run_ddpn(*command, option).output for option in ("--help", "--help-all"))
    assert len(short.splitlines()) <= 45
    if command and "--help-all" in short:
        (hidden,) = re.findall(rf"(\d+) more options: \S+ {command[0]} --help-all", short)
        names = [set(re.findall(r"^│ (?:[* ]  )?(--[\w-]+)", text, flags=re.MULTILINE)) for text in (short, whole)]
        assert names[0] < names[1]
        assert len(names[1] - names[0]) == int(hidden)


def test_everyday_options_of_fit_are_in_its_short_help(run_ddpn):
    text = run_ddpn("fit", "--help").output
    assert all(
        f"{name} " in text
        for name in ("--target", "--drop", "--exposure", "--group", "--time", "--only", "--category", "--test-size")
    )
    assert "--beta" not in text


def test_help_names_every_command_and_completion(run_ddpn):
    shown = run_ddpn("--help").output
    assert all(name in shown for name in [*COMMANDS, "--install-completion"])


def test_the_version_is_printed(run_ddpn):
    assert run_ddpn("--version").output.strip() == version("ddpn")


def test_a_budget_begins_with_the_program(run_ddpn, files, monkeypatch):
    began = []

    def record_start(*arguments, started, **options):
        began.append(started)
        raise typer.Exit

    monkeypatch.setattr("ddpn.workflow.fitting.fit_into", record_start)
    before, words = time.monotonic(), ["fit", "visits.csv", "--config", "quick.toml", "-o", "new"]
    assert run_ddpn(*words, obj=before - 3.0).exit_code == 0
    assert run_ddpn(*words).exit_code == 0
    assert began[0] == before - 3.0
    assert before <= began[1] <= time.monotonic()


@pytest.mark.parametrize("module", ["ddpn", "ddpn.cli"])
def test_python_runs_the_program_by_its_name(module):
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, version("ddpn"))
