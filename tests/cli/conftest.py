"""The program in this process and in its own, in an empty folder, and a small table."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from ddpn.cli import app

QUICK = 'members = 2\nhidden = [8]\nnumeric = "standard"\nepochs = 3\ndevice = "cpu"\ntarget = "visits"\n'


@pytest.fixture
def ddpn(tmp_path, monkeypatch):
    """Runs the command, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments, **options: CliRunner().invoke(app, list(arguments), **options)


@pytest.fixture
def program(tmp_path) -> Callable[..., subprocess.Popen]:
    """Starts the program as a user does."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def start(*arguments: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, "-m", "ddpn.cli", *arguments], cwd=tmp_path, env=environment, **pipes)

    return start


@pytest.fixture(scope="session")
def table() -> pl.DataFrame:
    """240 patients: visits follow severity and ward."""
    rng = np.random.default_rng(3)
    severity, ward = rng.normal(size=240), rng.choice(["A", "B", "C"], 240)
    visits = rng.poisson(np.exp(0.5 + 0.6 * severity + (ward == "A")))
    columns = {"patient": [f"p{row}" for row in range(240)], "severity": severity, "ward": ward, "visits": visits}
    return pl.DataFrame(columns)


@pytest.fixture
def files(tmp_path, table) -> Path:
    """The table and quick settings, in the empty folder."""
    table.write_csv(tmp_path / "visits.csv")
    (tmp_path / "quick.toml").write_text(QUICK)
    return tmp_path


@pytest.fixture(scope="session")
def saved(tmp_path_factory, table) -> Path:
    """A fitted model."""
    folder = tmp_path_factory.mktemp("model")
    table.write_csv(folder / "visits.csv")
    (folder / "quick.toml").write_text(QUICK)
    model = folder / "model"
    arguments = ["fit", str(folder / "visits.csv"), "--config", str(folder / "quick.toml"), "-o", str(model)]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 0, found.output
    return model
