import numpy as np
import pytest

from ddpn.experiments.figures.isolated import beta, gamma

pytest.importorskip("matplotlib")
METHODS = ["ddpn", "beta_ddpn_1.0"]


def line_of(ax, label):
    (found,) = (line for line in ax.get_lines() if line.get_label() == label)
    return found.get_xydata().T


def test_every_beta_has_a_row_and_every_number_of_epochs_a_column(declare, finish, tmp_path):
    grid = {"epochs": [1, 2, 3]}
    experiment = declare("betas", simulation={"name": "isolated"}, methods=METHODS, grid=grid)
    for number, run in enumerate(experiment.runs()):
        finish(run, [[np.log(10.0 + number), 0.0], [np.log(14.0 + number), 0.0]])
    axes = np.reshape(beta(experiment, tmp_path).axes, (4, 3))
    assert [ax.get_title() for ax in axes[0]] == ["1 epochs", "2 epochs", "3 epochs"]
    assert [axes[row, 0].get_ylabel() for row in (0, 1, 2)] == ["DDPN\ny", "γ", "β-DDPN (1.0)\ny"]
    means = [[line_of(ax, "mean of the ensemble")[1][0] for ax in axes[row]] for row in (0, 2)]
    np.testing.assert_allclose(means, [[12, 13, 14], [15, 16, 17]], rtol=1e-6)


def test_gamma_its_truth_and_the_isolated_points_are_shown(declare, finish, tmp_path):
    grid = {"initial_gamma": [1.0, 148.0]}
    experiment = declare("gammas", simulation={"name": "isolated"}, methods=METHODS[:1], grid=grid)
    for run in experiment.runs():
        finish(run, [[2.0, 0.0], [2.0, np.log(3.0)], [2.0, np.log(5.0)]])
    axes = np.reshape(gamma(experiment, tmp_path).axes, (2, 2))
    assert [ax.get_title() for ax in axes[0]] == ["γ starts at 1", "γ starts at 148"]
    x, middle = line_of(axes[1, 0], "median γ of the members")
    np.testing.assert_allclose(middle, 3.0, rtol=1e-6)
    dotted = [line for line in axes[1, 0].get_lines() if line.get_linestyle() == ":"]
    np.testing.assert_allclose(dotted[0].get_ydata(), 6 - 0.03 * x**2, rtol=1e-12)
    assert line_of(axes[0, 0], "isolated points").T.tolist() == [[1.0, 16.0], [10.0, 10.0]]
    assert x.min() < 1.0 < 10.0 < x.max()


def test_what_is_not_finished_leaves_its_panel_empty(declare, finish, tmp_path):
    experiment = declare("betas", simulation={"name": "isolated"}, methods=METHODS, grid={"epochs": [1, 2]})
    first, _, _, last = experiment.runs()
    for run in (first, last):
        finish(run, [[2.0, 0.0]])
    axes = np.reshape(beta(experiment, tmp_path).axes, (4, 2))
    assert [[len(ax.get_lines()) > 0 for ax in row] for row in axes[::2]] == [[True, False], [False, True]]
