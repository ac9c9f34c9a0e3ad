"""Figures are written beside the runs, the same every time, and those that cannot be drawn leave the others."""

from dataclasses import replace

import pytest

from ddpn.paper.experiments import catalogue
from ddpn.paper.experiments.figures import FIGURES, simulations, write_figures
from ddpn.paper.experiments.figures.canvas import legend_below, panels, save, style
from ddpn.runtime.errors import ConfigError, InputError

matplotlib = pytest.importorskip("matplotlib")


def drawn():
    with style():
        figure, axes = panels(1, 2, (3.0, 2.0))
        for ax in axes[0]:
            ax.plot([0, 1], [1, 0], label="falls")
            ax.fill_between([0, 1], [0, 0], [1, 1], label="band")
        legend_below(figure, axes[0], columns=2)
    return figure


def test_a_figure_is_written_twice_the_same(tmp_path):
    first, second = (save(drawn(), tmp_path / folder / "beta.png").read_bytes() for folder in "ab")
    assert first == second
    assert first.startswith(b"\x89PNG")


pytest.importorskip("matplotlib")


def test_the_catalogue_asks_for_every_figure_and_for_no_other():
    asked = {name for each in catalogue.names() for name in catalogue.experiment(each).figures}
    assert asked == set(FIGURES)


def test_figures_without_runs_are_written_in_the_folder_of_the_experiment(tmp_path, monkeypatch):
    monkeypatch.setattr(simulations, "_NODES", 20)
    written = write_figures(catalogue.experiment("moments"), tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in written] == ["moments/epsilon.png"]
    assert all(path.stat().st_size > 10_000 for path in written)


def test_an_unknown_figure_is_reported_with_a_suggestion(tmp_path):
    experiment = replace(catalogue.experiment("moments"), figures=("epsilom",))
    with pytest.raises(ConfigError, match=r"figure of moments must be one of .* got 'epsilom'.*'epsilon'"):
        write_figures(experiment, tmp_path)


def test_a_figure_that_cannot_be_drawn_leaves_the_others(declare, finish, tmp_path):
    """ "recovery" needs a run of ddpn, and "beams" one of a method that is not even asked for."""
    experiment = declare(
        "three", simulation={"name": "poisson"}, methods=["poisson"], figures=["recovery", "wave", "beams"]
    )
    finish(experiment.runs()[0], [[1.0]])
    with pytest.raises(InputError) as caught:
        write_figures(experiment, tmp_path)
    folder = tmp_path / "three"
    assert sorted(path.name for path in folder.glob("*.*")) == ["wave.png"], "beside the runs"
    assert str(caught.value).startswith("recovery: No finished run of ddpn")
    assert " beams: " in str(caught.value)
    assert "wave:" not in str(caught.value)
