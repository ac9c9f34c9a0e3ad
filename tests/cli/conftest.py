"""The program in this process, in an empty folder."""

import pytest
from typer.testing import CliRunner

from ddpn.cli import app


@pytest.fixture
def ddpn(tmp_path, monkeypatch):
    """Runs the command, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(app, list(arguments))
