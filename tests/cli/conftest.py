"""Share the program in this process and an empty folder, a small table, and a model that the program fitted to it."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from ddpn.cli import app

QUICK = 'n_networks = 2\nhidden = [8]\nnumeric = "standard"\nepochs = 3\ndevice = "cpu"\ntarget = "visits"\n'
ROWS = 260


@pytest.fixture
def run_ddpn(tmp_path, monkeypatch):
    """Run the command, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments, **options: CliRunner().invoke(app, list(arguments), **options)


@pytest.fixture(scope="session")
def table() -> pl.DataFrame:
    """260 patients: visits follow severity and ward."""
    rng = np.random.default_rng(3)
    severity, ward = rng.normal(size=ROWS), rng.choice(["A", "B", "C"], ROWS)
    visits = rng.poisson(np.exp(0.5 + 0.6 * severity + (ward == "A")))
    columns = {"patient": [f"p{row}" for row in range(ROWS)], "severity": severity, "ward": ward, "visits": visits}
    return pl.DataFrame(columns)


@pytest.fixture
def files(tmp_path, table) -> Path:
    """The table and quick settings, in the empty folder."""
    table.write_csv(tmp_path / "visits.csv")
    (tmp_path / "quick.toml").write_text(QUICK)
    return tmp_path


class Fit(NamedTuple):
    """A model folder, and what the command that made it printed."""

    model: Path
    printed: Any


@pytest.fixture(scope="session")
def fit(tmp_path_factory, table) -> Fit:
    """A fit with all defaults of the command besides the small networks."""
    folder = tmp_path_factory.mktemp("model")
    table.write_csv(folder / "visits.csv")
    (folder / "quick.toml").write_text(QUICK)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "200")
        arguments = ["fit", "visits.csv", "--config", "quick.toml", "-o", "model"]
        result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return Fit(folder / "model", result)


@pytest.fixture(scope="session")
def model_path(fit) -> Path:
    """The model folder alone."""
    return fit.model
