"""`ddpn fit --cluster` saves the model of `ddpn fit`."""

import json

import numpy as np
import polars as pl
from typer.testing import CliRunner

from ddpn.cli import app


def test_the_program_saves_the_same_portfolio(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    x = rng.normal(size=160)
    pl.DataFrame({"x": x, "visits": rng.poisson(np.exp(0.5 + 0.6 * x))}).write_csv("visits.csv")
    (tmp_path / "quick.toml").write_text(
        'target = "visits"\nhidden = [8]\nepochs = 3\nlikelihood = "poisson"\ncompare_with = []\n'
    )
    command = ["fit", "visits.csv", "--config", "quick.toml", "--device", "cpu", "--json"]
    there = CliRunner().invoke(app, [*command, "-o", "there", "--cluster", cluster.address])
    here = CliRunner().invoke(app, [*command, "-o", "here"])
    assert there.exit_code == here.exit_code == 0, there.output
    assert "Fitted networks ..." in there.stderr
    assert "Fitted GLM, fold 5 ..." in there.stderr
    names = {path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*.safetensors")}
    assert len(names) > 3
    assert {n for n in names if (tmp_path / "there" / n).read_bytes() != (tmp_path / "here" / n).read_bytes()} == set()
    scores = [json.loads(each.stdout)["test"]["entries"] for each in (there, here)]
    assert [row["crps"] for row in scores[0]] == [row["crps"] for row in scores[1]]
    assert not list(tmp_path.glob(".there*jobs"))
