import numpy as np
import pytest
from scipy import stats

from ddpn.experiments.figures.patients import pathologies, pmfs

pytest.importorskip("matplotlib")
DATA = {"name": "length_of_stay", "features": "standard"}


def line_of(ax, label):
    (found,) = (line for line in ax.get_lines() if line.get_label() == label)
    return found.get_xydata().T


@pytest.fixture
def patients(declare, finish):
    """Three patients: the second has most mass below 0 and the third least, by the first member; the second differs."""
    experiment = declare("stays", data=DATA, methods=["beta_gaussian_0.5", "beta_ddpn_0.5"])
    gaussian, ddpn = experiment.runs()
    log_variance = 2 * np.log(2.0)
    first = [[6.0, log_variance], [1.0, log_variance], [9.0, 0.0]]
    raw = np.stack([first, np.roll(first, 1, 0)], 1)
    finish(gaussian, np.zeros((2, 2)), raw=raw, y=[5, 2, 9])
    counts = np.log([[5.0, 1.0], [2.0, 1.0], [8.0, 1.0]])
    finish(ddpn, np.zeros((2, 2)), raw=np.stack([counts, counts + 1], 1), y=[5, 2, 9])
    return experiment


def test_the_two_patients_are_the_most_and_the_least_below_zero(patients, tmp_path):
    left, right = pathologies(patients, tmp_path).axes
    below = 100 * stats.norm.cdf(0, 1, 2)
    assert left.get_title() == f"test row 1: {below:.1f}% of the Gaussian below 0"
    assert right.get_title() == "test row 2: the Gaussian has mean 9.0, sd 1.00"
    assert [line_of(ax, "observed")[0][0] for ax in (left, right)] == [2, 9]


def test_cdfs_are_those_of_one_network(patients, tmp_path):
    left, _ = pathologies(patients, tmp_path).axes
    x, smooth = line_of(left, "β-Gaussian (0.5)")
    np.testing.assert_allclose(smooth, stats.norm.cdf(x, 1, 2), atol=1e-6)
    assert x[0] <= stats.norm.ppf(1e-4, 1, 2) + 1e-5
    edge, steps = line_of(left, "β-DDPN (0.5)")
    assert steps[0] == 0.0
    # gamma = 1 is a Poisson.
    np.testing.assert_allclose(steps[1:], stats.poisson.cdf(edge[1:], 2.0), atol=1e-6)
    np.testing.assert_array_equal(edge[1:], np.arange(len(edge) - 1))


def test_pmfs_of_members_and_of_their_ensemble(declare, finish, tmp_path):
    experiment = declare("stays", data=DATA, methods=["beta_ddpn_1.0"])
    y = [1, 1, 2, 3, 3, 3, 3, 4, 5, 12]
    raw = np.zeros((10, 2, 2))
    raw[:, :, 0] = np.log(np.arange(2.0, 22.0)).reshape(10, 2)
    finish(experiment.runs()[0], np.zeros((2, 2)), raw=raw, y=y)
    axes = pmfs(experiment, tmp_path).axes
    assert [ax.get_title() for ax in axes] == ["test row 0", "test row 3", "test row 9"]
    assert [line_of(ax, "observed")[0][0] for ax in axes] == [1, 3, 12]
    counts = np.array([bar.get_x() + bar.get_width() / 2 for bar in axes[1].patches]).round()
    heights = [bar.get_height() for bar in axes[1].patches]
    each = stats.poisson.pmf(counts[:, None], [8.0, 9.0])
    np.testing.assert_allclose(heights, each.mean(1), atol=1e-6)
    for member, line in enumerate(axes[1].get_lines()[:2]):
        np.testing.assert_allclose(line.get_ydata(), each[:, member], atol=1e-6)
    assert sum(heights) > 0.998
