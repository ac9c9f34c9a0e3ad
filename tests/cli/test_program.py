"""The program as a whole: quick to help, its exit codes documented, completion for shells."""

import resource
import subprocess
import sys
from importlib.metadata import version

import pytest

from ddpn.cli import program

HELP = """
import sys
from ddpn.cli import main
try:
    main()
finally:
    print("torch" in sys.modules, "sklearn" in sys.modules, "polars" in sys.modules, file=sys.stderr)
"""
COMMANDS = ["fit", "predict", "evaluate", "show", "report", "data", "reproduce"]


def test_help_imports_nothing_heavy():
    command = [sys.executable, "-c", HELP, "fit", "--help"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--members" in found.stdout
    assert found.stderr.split() == ["False", "False", "False"]


@pytest.mark.parametrize(
    ("given", "used"), [({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active")], ids=["nothing", "active"]
)
def test_threads_wait_quietly_unless_told_otherwise(monkeypatch, given, used):
    environment = dict(given)
    monkeypatch.setattr(program, "app", lambda: None)
    with monkeypatch.context() as within:
        within.setattr(program.os, "environ", environment)
        program.main()
    assert environment == {"OMP_WAIT_POLICY": used}


def test_help_is_there_at_once():
    # Seconds of work, not of waiting: other programs share the machine.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "ddpn.cli", "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_every_help_has_the_exit_codes(ddpn, command):
    found = ddpn(*command, "--help")
    assert found.exit_code == 0
    assert "Exit codes: 0 done; 1 the data" in found.output


def test_help_names_every_command_and_completion(ddpn):
    shown = ddpn("--help").output
    assert all(name in shown for name in [*COMMANDS, "--install-completion"])


def test_the_version(ddpn):
    assert ddpn("--version").output.strip() == version("ddpn")


def test_an_option_that_is_not_there_is_code_2(ddpn):
    found = ddpn("fit", "x.csv", "-o", "m", "--tarket", "y")
    assert found.exit_code == 2
    assert "No such option" in found.stderr
