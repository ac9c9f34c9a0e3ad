from dataclasses import replace

import pytest

from ddpn.errors import ConfigError, InputError
from ddpn.experiments import settings
from ddpn.experiments.figures import FIGURES, epsilon_grids, write_figures

pytest.importorskip("matplotlib")


def test_the_catalogue_asks_for_every_figure_and_for_no_other():
    asked = {name for each in settings.names() for name in settings.experiment(each).figures}
    assert asked == set(FIGURES)


def test_figures_are_written_beside_the_runs(declare, finish, tmp_path):
    experiment = declare("waves", simulation={"name": "wave"}, methods=["poisson"], figures=["wave"])
    finish(experiment.runs()[0], [[1.0]])
    written = write_figures(experiment, tmp_path)
    assert written == [tmp_path / "waves" / "wave.svg", tmp_path / "waves" / "wave.png"]
    assert all(path.stat().st_size > 10_000 for path in written)


def test_the_grids_need_no_run(tmp_path):
    written = epsilon_grids(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in written] == ["moments/epsilon.svg", "moments/epsilon.png"]
    assert all(path.exists() for path in written)


def test_an_unknown_figure_is_refused_with_the_nearest(tmp_path):
    experiment = replace(settings.experiment("moments"), figures=("epsilom",))
    with pytest.raises(ConfigError, match=r"figures in moments.toml must be among .* got 'epsilom'.*\"epsilon\""):
        write_figures(experiment, tmp_path)


def test_a_figure_that_cannot_be_drawn_leaves_the_others(declare, finish, tmp_path):
    """ "recovery" needs a run of ddpn, and "beams" one of a method that is not even asked for."""
    experiment = declare(
        "three", simulation={"name": "poisson"}, methods=["poisson"], figures=["recovery", "wave", "beams"]
    )
    finish(experiment.runs()[0], [[1.0]])
    with pytest.raises(InputError) as told:
        write_figures(experiment, tmp_path)
    folder = tmp_path / "three"
    assert sorted(path.name for path in folder.glob("*.*")) == ["wave.png", "wave.svg"]
    assert str(told.value).startswith("figures must all have what they show, got 1 of 3. recovery: ")
    assert " beams: " in str(told.value)
    assert "wave:" not in str(told.value)
