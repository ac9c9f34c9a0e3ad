import numpy as np
import pytest
from scipy import stats

from ddpn.experiments.figures.simulations import recovery, wave

pytest.importorskip("matplotlib")


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
    assert "MAE 1.25\nCRPS 0.75" in [text.get_text() for text in axes[0, 0].texts]
    np.testing.assert_allclose(line_of(axes[0, 0], "mean")[1], 22.0, rtol=1e-6)
    np.testing.assert_allclose(line_of(axes[1, 0], "the ensemble's variance")[1], 22.0, rtol=1e-6)
    np.testing.assert_allclose(axes[2, 0].get_lines()[0].get_ydata(), 4.0, rtol=1e-5)
    np.testing.assert_allclose(axes[2, 1].get_lines()[0].get_ydata(), 0.0, atol=1e-9)
    np.testing.assert_allclose(edges(axes[0, 1].collections[0]), stats.norm(20, 1).interval(0.95), rtol=1e-5)


def test_the_true_variance_of_the_wave_is_that_of_its_pmf(declare, finish, tmp_path):
    experiment = declare("waves", simulation={"name": "wave"}, methods=["poisson"])
    finish(experiment.runs()[0], [[1.0]])
    axes = wave(experiment, tmp_path).axes
    x, variance = line_of(axes[1], "true variance")
    z = np.arange(31)
    for at in (0, 100, 250):
        weight = stats.poisson.pmf(z, 10 * np.sin(x[at]) + 10) ** 5
        mean = np.average(z, weights=weight)
        assert variance[at] == pytest.approx(np.average((z - mean) ** 2, weights=weight), rel=1e-6)
    assert (x[0], x[-1]) == pytest.approx((0.0, 2 * np.pi))


@pytest.mark.parametrize("exact", [False, True], ids=["two", "three"])
def test_recovery_sets_the_matched_model_and_ddpn_against_the_truth(declare, finish, tmp_path, exact):
    methods = ["ddpn", "gaussian", "poisson", "exact_ddpn"]
    experiment = declare("recovered", simulation={"name": "poisson"}, methods=methods)
    for run in experiment.runs()[: 4 if exact else 3]:
        finish(run, np.full((2, run.head.n_raw), [np.log(4.0), 0.0][: run.head.n_raw]))
    axes = recovery(experiment, tmp_path).axes
    expected = ["Poisson", "DDPN"] + (["DDPN, exact likelihood"] if exact else [])
    assert [ax.get_title() for ax in axes] == expected
    # gamma = 1: both are Poisson(4).
    for ax in axes:
        np.testing.assert_allclose(line_of(ax, "mean")[1], 4.0, rtol=1e-5)
        assert edges(ax.collections[0]) == stats.poisson(4).interval(0.95)
        x, truth = line_of(ax, "true mean")
        np.testing.assert_allclose(truth, np.exp(x / 2), rtol=1e-9)
        low, high = (line for line in ax.get_lines() if line.get_label() == "true 95% band")
        np.testing.assert_array_equal(high.get_ydata(), stats.poisson.ppf(0.975, np.exp(x / 2)))
        np.testing.assert_array_equal(low.get_ydata(), stats.poisson.ppf(0.025, np.exp(x / 2)))
