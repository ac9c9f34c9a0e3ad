"""Test that `pip install ddpn` is enough to fit, predict and report a table: no package of an extra is imported."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import numpy as np
import polars as pl

from ddpn.workflow.model_folder import SavedModel

ROOT = Path(__file__).resolve().parents[2]
#: Runs commands of the program, with the packages of the first argument missing.
PROGRAM = """
import sys
from importlib.abc import MetaPathFinder

missing = set(sys.argv[1].split(","))

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from ddpn.cli import app
for words in (
    ["fit", "t.csv", "--target", "y", "-o", "m"],
    ["predict", "m", "t.csv", "-o", "p.csv", "--ood", "0.05"],
    ["predict", "m", "t.parquet", "-o", "p.parquet"],
    ["report", "m", "t.csv", "-o", "r.html"],
):
    if app(words, standalone_mode=False):
        sys.exit(f"{words} failed")
"""


def list_core_packages() -> set[str]:
    """List the distributions that the core dependencies bring, by their normalised names."""
    names: set[str] = set()
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    while requirements:
        requirement = requirements.pop()
        name = normalize_name(re.match(r"[\w.-]+", requirement)[0])
        if "extra ==" in requirement or name in names:
            continue
        names.add(name)
        try:
            requirements += distribution(name).requires or []
        except ModuleNotFoundError:
            continue  # of another platform
    return names


def normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_main_job_needs_no_extra(tmp_path):
    core = list_core_packages() | {"ddpn", "pip", "setuptools"}
    owners = {
        module: {normalize_name(package) for package in names} for module, names in packages_distributions().items()
    }
    missing = sorted(module for module, names in owners.items() if not names & core)
    assert {"pyarrow", "pandas", "optuna", "statsmodels"} <= set(missing)
    assert not {"polars", "lightgbm", "matplotlib", "torch", "sklearn"} & set(missing)
    rng = np.random.default_rng(0)
    x, group = rng.normal(size=120), rng.choice(["a", "b"], 120)
    table = pl.DataFrame({"x": x, "group": group, "y": rng.poisson(np.exp(1.0 + 0.5 * x + (group == "a")))})
    table.write_csv(tmp_path / "t.csv")
    table.write_parquet(tmp_path / "t.parquet")
    command = [sys.executable, "-c", PROGRAM, ",".join(missing)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "not installed" not in done.stderr
    assert pl.read_csv(tmp_path / "p.csv").height == pl.read_parquet(tmp_path / "p.parquet").height == 120
    weights = {name: member["weight"] for name, member in SavedModel(tmp_path / "m").describe()["members"].items()}
    assert {"trees", "glm", "networks", "constant", "poisson_glm"} <= set(weights)
    assert "<svg" in (tmp_path / "r.html").read_text()
