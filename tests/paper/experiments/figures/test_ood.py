import numpy as np
import pytest
from scipy import stats

from ddpn.paper.experiments.figures.ood import ood_pmfs
from ddpn.runtime.errors import InputError

pytest.importorskip("matplotlib")
DATA = {"name": "reviews", "text": ["text"], "max_length": 8}
#: Test rows and OOD rows.
N, M = 1200, 1500


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def means(rng):
    """Means, and so variances, of a Poisson network for test rows and OOD rows."""
    return rng.gamma(9.0, 0.4, N), rng.gamma(9.0, 0.7, M)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("texts")


@pytest.fixture(scope="module")
def texts(declare, finish_in, out, means):
    """A Poisson network of two equal members and a Gaussian one with two means."""
    experiment = declare("texts", data=DATA, ood="bible", methods=["poisson", "gaussian"])
    poisson, gaussian = experiment.runs()
    test, ood = (np.repeat(np.log(side)[:, None, None], 2, 1) for side in means)
    finish_in(out, poisson, np.zeros((2, 1)), raw=test, y=np.ones(N), ood=ood)
    test, ood = (np.stack([np.tile([1.0, 3.0], (len(side), 1)), np.log(side)[:, None] + [0, 0]], -1) for side in means)
    finish_in(out, gaussian, np.zeros((2, 2)), raw=test, y=np.ones(N), ood=ood)
    return experiment


@pytest.fixture(scope="module")
def pmfs(texts, out):
    return ood_pmfs(texts, out).axes


def test_runs_without_ood_rows_are_reported(declare, finish, tmp_path):
    experiment = declare("texts", data=DATA, methods=["poisson"])
    finish(experiment.runs()[0], [[0.0]])
    with pytest.raises(InputError, match=r"No predictions of OOD rows in .*poisson"):
        ood_pmfs(experiment, tmp_path)


def test_distributions_are_those_of_the_median_rows(pmfs, means):
    pmf, _, density, _ = pmfs
    test, ood = (np.sort(side)[(len(side) - 1) // 2] for side in means)
    y = np.array([bar.get_x() + bar.get_width() / 2 for bar in pmf.patches]).round()
    np.testing.assert_allclose([b.get_height() for b in pmf.patches], stats.poisson.pmf(y, test), atol=1e-6)
    x, drawn = pmf.get_lines()[0].get_data()
    np.testing.assert_allclose(drawn, stats.poisson.pmf(x, ood), atol=1e-6)
    x, drawn = density.get_lines()[0].get_data()
    expected = stats.norm.pdf(x[:, None], [1.0, 3.0], np.sqrt(ood)).mean(1)
    np.testing.assert_allclose(drawn, expected, atol=1e-6)
    assert (pmf.get_ylabel(), density.get_ylabel()) == ("probability", "density")


def test_every_row_is_in_the_histogram_of_its_kind(pmfs, means):
    _, variance, _, wider = pmfs
    for ax, more in ((variance, 0.0), (wider, 1.0)):
        for patch, side in zip(ax.patches, means, strict=True):
            shares, edges, _ = patch.get_data()
            assert shares.sum() == pytest.approx(1.0)
            # The members of the Gaussian are 2 apart, which adds 1 to the variance.
            below = (side + more < edges[20]).mean()
            assert shares[:20].sum() == pytest.approx(below, abs=0.01)


def test_what_is_drawn_high_is_not_cut_off(declare, finish, tmp_path):
    """The panels of a row share their height, and the second one is the higher."""
    experiment = declare("texts", data=DATA, ood="bible", methods=["poisson", "ddpn"])
    poisson, ddpn = experiment.runs()
    for run, raw in ((poisson, [[2.0], [2.0]]), (ddpn, [[2.0, 3.0], [2.0, 3.0]])):
        rows = np.tile(raw, (10, 1, 1))
        finish(run, raw, raw=rows, y=np.ones(10), ood=rows)
    axes = ood_pmfs(experiment, tmp_path).axes
    highest = max(bar.get_height() for bar in axes[1].patches)
    assert axes[0].get_ylim() == axes[1].get_ylim()
    assert axes[1].get_ylim()[0] == 0.0 < highest < axes[1].get_ylim()[1]
