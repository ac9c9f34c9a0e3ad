import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, xlogy

from ddpn.paper.experiments.catalogue import experiment
from ddpn.paper.experiments.figures.simulations import beta, epsilon, gamma, recovery, wave

pytest.importorskip("matplotlib")
METHODS = ["ddpn", "beta_ddpn_1.0"]


def line_of(ax, label):
    (found,) = (line for line in ax.get_lines() if line.get_label() == label)
    return found.get_xydata().T


def edges(collection):
    """Least and greatest y of a filled band."""
    vertices = collection.get_paths()[0].vertices
    return vertices[:, 1].min(), vertices[:, 1].max()


def test_the_wave_shows_mean_band_and_both_variances(declare, finish, tmp_path):
    experiment = declare("waves", simulation={"name": "wave"}, methods=["poisson", "gaussian"])
    poisson, gaussian = experiment.runs()
    finish(poisson, np.log([[20.0], [24.0]]))
    finish(gaussian, [[20.0, 0.0], [20.0, 0.0]])
    axes = np.reshape(wave(experiment, tmp_path).axes, (3, 2))
    assert [ax.get_title() for ax in axes[0]] == ["Poisson", "Gaussian"]
    assert "MAE 1.50\nCRPS 0.75" in [text.get_text() for text in axes[0, 0].texts]
    np.testing.assert_allclose(line_of(axes[0, 0], "mean")[1], 22.0, rtol=1e-6)
    np.testing.assert_allclose(line_of(axes[1, 0], "the ensemble's variance")[1], 22.0, rtol=1e-6)
    np.testing.assert_allclose(axes[2, 0].get_lines()[0].get_ydata(), 4.0, rtol=1e-5)
    np.testing.assert_allclose(axes[2, 1].get_lines()[0].get_ydata(), 0.0, atol=1e-9)
    np.testing.assert_allclose(edges(axes[0, 1].collections[0]), stats.norm(20, 1).interval(0.95), rtol=1e-5)


def test_recovery_sets_the_matched_model_and_ddpn_against_the_truth(declare, finish, tmp_path):
    methods = ["ddpn", "gaussian", "poisson", "exact_ddpn"]
    experiment = declare("recovered", simulation={"name": "poisson"}, methods=methods)
    for run in experiment.runs():
        finish(run, np.full((2, run.head.n_raw), [np.log(4.0), 0.0][: run.head.n_raw]))
    axes = recovery(experiment, tmp_path).axes
    assert [ax.get_title() for ax in axes] == ["Poisson", "DDPN", "DDPN, exact likelihood"]
    # gamma = 1: both are Poisson(4).
    for ax in axes:
        np.testing.assert_allclose(line_of(ax, "mean")[1], 4.0, rtol=1e-5)
        assert edges(ax.collections[0]) == stats.poisson(4).interval(0.95)
        x, truth = line_of(ax, "true mean")
        np.testing.assert_allclose(truth, np.exp(x / 2), rtol=1e-9)
        low, high = (line for line in ax.get_lines() if line.get_label() == "true 95% band")
        np.testing.assert_array_equal(high.get_ydata(), stats.poisson.ppf(0.975, np.exp(x / 2)))
        np.testing.assert_array_equal(low.get_ydata(), stats.poisson.ppf(0.025, np.exp(x / 2)))


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


def moments(mean, variance):
    """By 4000 terms of the definition."""
    y, gamma = np.arange(4000.0), mean / variance
    log = -y + xlogy(y, y) - gammaln(y + 1) - gamma * (mean - y + xlogy(y, y) - y * np.log(mean))
    weight = np.exp(log - log.max())
    first = np.average(y, weights=weight)
    return first, np.average((y - first) ** 2, weights=weight)


def test_the_grids_are_the_deviations_of_the_exact_moments(tmp_path):
    left, right, *_ = epsilon(experiment("moments"), tmp_path).axes
    nodes = left.get_lines()[0].get_xdata()
    assert (nodes[0], nodes[-1]) == pytest.approx((0.1, 10**1.7))
    grids = [np.asarray(ax.collections[0].get_array()).reshape(len(nodes), -1) for ax in (left, right)]
    for row, column in ((0, 0), (150, 20), (60, 120), (110, 110), (180, 100)):
        mean, variance = moments(nodes[column], nodes[row])
        assert grids[0][row, column] == pytest.approx(abs(mean - nodes[column]), abs=1e-6)
        assert grids[1][row, column] == pytest.approx(abs(variance - nodes[row]), abs=1e-5)
