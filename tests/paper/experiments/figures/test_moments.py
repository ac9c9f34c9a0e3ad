import numpy as np
import pytest
from scipy.special import gammaln, xlogy

from ddpn.paper.experiments.catalogue import experiment
from ddpn.paper.experiments.figures.simulations import epsilon

pytest.importorskip("matplotlib")


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
