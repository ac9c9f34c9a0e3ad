"""A fast run of the demo: its files, its numbers against a sum over counts, and Ctrl-C without a traceback."""

import sys
from types import ModuleType

import polars
import pytest
import torch

from ddpn.paper.datasets import simulate
from ddpn.workflow.model_folder import load


@pytest.fixture(scope="module")
def demo(example):
    return example("demo")


@pytest.fixture(scope="module")
def folder(demo, tmp_path_factory):
    """A run with a short report in place of the real one, which tests/cli writes."""
    module = ModuleType("ddpn.analysis.report")
    module.write_report = lambda path, progress, **parts: path.write_text(f"<!doctype html>{sorted(parts)}")
    out = tmp_path_factory.mktemp("demo") / "new"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ddpn.analysis.report", module)
        demo.run(out, fast=True)
    return out


def test_reports_are_written(folder):
    for name in ("report.html", "wave.html"):
        assert (folder / name).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_table_of_the_simulation_has_its_draws(folder):
    table = polars.read_csv(folder / "wave.csv")
    drawn = simulate("wave")
    assert (table["x"].to_numpy() == drawn.x).all()
    assert (table["y"].to_numpy() == drawn.y).all()
    assert set(table["part"].to_numpy()[drawn.split.test]) == {"test"}


def test_against_the_truth(demo, folder):
    """The expected CRPS by its definition, a sum over the counts of the true distribution."""
    found = demo.against_truth(folder / "wave.model", points=40)
    labels = ["true distribution", "mixture", "networks", "GLM", "constant distribution", "Poisson GLM"]
    assert list(found) == labels
    x = torch.linspace(0.0, 2 * torch.pi, 40, dtype=torch.float64)
    truth, predictor = simulate("wave").distribution(x), load(folder / "wave.model").model.predictor_
    dist = predictor.distribution(polars.DataFrame({"x": x.numpy()}), of="poisson_glm")
    y = torch.arange(31.0, dtype=torch.float64).unsqueeze(1)
    expected = (truth.log_prob(y).exp() * dist.crps(y)).sum(0).mean().item()
    crps, excess, coverage, error = found["Poisson GLM"]
    assert crps == pytest.approx(expected, rel=1e-6)
    assert excess == pytest.approx(expected - found["true distribution"][0], rel=1e-6)
    low, high = dist.interval(0.9)
    covered = (truth.log_prob(y).exp() * ((low <= y) & (y <= high))).sum(0).mean().item()
    assert coverage == pytest.approx(covered, abs=1e-9)
    assert error > 1.0
    assert found["true distribution"][1] == found["true distribution"][3] == 0.0


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
