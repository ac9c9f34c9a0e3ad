"""A fast run of the demo: files where it says, numbers against a sum over counts, Ctrl-C without a traceback."""

import sys

import polars
import pytest
import torch

from ddpn.datasets import simulate
from ddpn.workflow.model_folder import load


@pytest.fixture(scope="module")
def demo(example):
    return example("demo")


@pytest.fixture(scope="module")
def folder(demo, tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "new"
    demo.run(out, fast=True)
    return out


def test_reports_are_there(folder):
    for name in ("report.html", "wave.html"):
        assert (folder / name).read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html")


def test_the_table_of_the_simulation_holds_its_draws(demo, folder):
    table = polars.read_csv(folder / "wave.csv")
    drawn = simulate("wave")
    assert (table["x"].to_numpy() == drawn.x).all()
    assert (table["y"].to_numpy() == drawn.y).all()
    assert set(table["part"].to_numpy()[drawn.split.test]) == {"test"}


def test_against_the_truth(demo, folder):
    """The expected CRPS by its definition, a sum over the counts of the truth."""
    found = demo.against_truth(folder / "wave.model", places=40)
    assert list(found) == ["truth", "ddpn", "constant", "poisson_glm", "poisson_boosting"]
    x = torch.linspace(0.0, 2 * torch.pi, 40, dtype=torch.float64)
    truth, glm = simulate("wave").distribution(x), load(folder / "wave.model").baselines["poisson_glm"]
    law = glm.law(polars.DataFrame({"x": x.numpy()}), None)
    y = torch.arange(31.0, dtype=torch.float64).unsqueeze(1)
    expected = (truth.log_prob(y).exp() * law.crps(y)).sum(0).mean().item()
    crps, gap, coverage, error = found["poisson_glm"]
    assert crps == pytest.approx(expected, rel=1e-6)
    assert gap == pytest.approx(expected - found["truth"][0], rel=1e-6)
    low, high = law.interval(0.9)
    held = (truth.log_prob(y).exp() * ((low <= y) & (y <= high))).sum(0).mean().item()
    assert coverage == pytest.approx(held, abs=1e-9)
    assert error > 1.0
    assert found["truth"][1] == found["truth"][3] == 0.0


def test_ctrl_c_ends_it_in_one_sentence(demo, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("ddpn.cli.app", lambda words, standalone_mode: 130)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--fast", "--out", str(tmp_path / "demo")])
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    with pytest.raises(SystemExit) as stop:
        demo.main()
    assert stop.value.code == 130
    assert "Stopped. Run it again" in capsys.readouterr().err


def test_a_command_that_fails_ends_it_with_its_code(demo, monkeypatch):
    monkeypatch.setattr("ddpn.cli.app", lambda words, standalone_mode: 2)
    with pytest.raises(SystemExit) as stop:
        demo.ddpn("fit")
    assert stop.value.code == 2
