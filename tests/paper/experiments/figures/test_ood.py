import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from ddpn.paper.experiments.figures.ood import ood_pmfs, roc
from ddpn.runtime.errors import InputError

pytest.importorskip("matplotlib")
DATA = {"name": "reviews", "text": ["text"], "max_length": 8}
#: Test rows and OOD rows.
N, M = 1200, 1500
TEN = [
    "poisson", "negative_binomial", "gaussian", "faithful_gaussian", "natural_gaussian", "beta_gaussian_0.5",
    "beta_gaussian_1.0", "ddpn", "beta_ddpn_0.5", "beta_ddpn_1.0",
]  # fmt: skip


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
def texts(declare, finish_in, out, means, rng):
    """A Poisson network of two equal members and a Gaussian one with two means; OOD texts are shorter."""
    experiment = declare("texts", data=DATA, ood="bible", methods=["poisson", "gaussian"])
    poisson, gaussian = experiment.runs()
    test, ood = (np.repeat(np.log(side)[:, None, None], 2, 1) for side in means)
    sizes = {"length": rng.integers(20, 100, N), "ood_length": rng.integers(5, 60, M)}
    finish_in(out, poisson, np.zeros((2, 1)), raw=test, y=np.ones(N), ood=ood, **sizes)
    test, ood = (np.stack([np.tile([1.0, 3.0], (len(side), 1)), np.log(side)[:, None] + [0, 0]], -1) for side in means)
    finish_in(out, gaussian, np.zeros((2, 2)), raw=test, y=np.ones(N), ood=ood, **sizes)
    return experiment


@pytest.fixture(scope="module")
def curves(texts, out):
    return roc(texts, out).axes


@pytest.fixture(scope="module")
def pmfs(texts, out):
    return ood_pmfs(texts, out).axes


def key_of(ax):
    """The rows of a key: its label and three numbers."""
    assert ax.get_legend().get_title().get_text().split() == ["AUROC", "AUPR", "FPR80"]
    rows = [text.get_text().rsplit(maxsplit=3) for text in ax.get_legend().get_texts()]
    return {label: [float(number) for number in numbers] for label, *numbers in rows}


def test_curves_and_areas_are_those_of_the_total_variance(curves, means):
    left, right, key, *_ = curves
    truth, scores = np.repeat([0, 1], [N, M]), np.concatenate(means)
    x, y = left.get_lines()[0].get_data()
    # Over x + y, which ascends where the curve is upright too.
    alarms, caught, _ = roc_curve(truth, scores)
    np.testing.assert_allclose(y - x, np.interp(x + y, alarms + caught, caught - alarms), atol=0.02)
    assert len(x) > 300
    area, precision, alarms = key_of(key)["Poisson"]
    assert area == pytest.approx(roc_auc_score(truth, scores), abs=0.01)
    # A fifth of the test rows is held out.
    weights = np.repeat([0.8, 1.0], [N, M])
    assert precision == pytest.approx(average_precision_score(truth, scores, sample_weight=weights), abs=0.01)
    assert alarms == pytest.approx((means[0] > np.quantile(means[1], 0.2)).mean(), abs=0.02)
    recall, found = right.get_lines()[0].get_data()
    p, r, _ = precision_recall_curve(truth, scores, sample_weight=weights)
    # The first few rows make a curve jump.
    np.testing.assert_allclose(found[recall > 0.1], np.interp(recall[recall > 0.1], r[::-1], p[::-1]), atol=0.02)


def test_rows_of_equal_length_are_evaluated_too_and_length_alone_beside(curves):
    axes = np.reshape(curves, (2, 3))
    everything, equal = (key_of(ax) for ax in axes[:, 2])
    assert list(everything) == list(equal) == ["Poisson", "Gaussian", "length alone (short)"]
    assert everything["length alone (short)"][0] > 0.8
    assert equal["length alone (short)"][0] == pytest.approx(0.5, abs=0.03)
    assert equal["Poisson"][0] == pytest.approx(everything["Poisson"][0], abs=0.05)
    assert axes[0, 2].get_title() == "1,200 test rows, 1,500 OOD rows"
    test, ood = (int(part.split()[0].replace(",", "")) for part in axes[1, 2].get_title().split(", "))
    assert test == ood < N


def test_length_alone_takes_the_direction_of_ood_texts(texts, finish, means, tmp_path, rng):
    raw, ood = (np.repeat(np.log(side)[:, None, None], 2, 1) for side in means)
    sizes = {"length": rng.integers(5, 60, N), "ood_length": rng.integers(20, 100, M)}
    finish(texts.runs()[0], np.zeros((2, 1)), raw=raw, y=np.ones(N), ood=ood, **sizes)
    assert key_of(roc(texts, tmp_path).axes[2])["length alone (long)"][0] > 0.8


def test_without_lengths_there_is_one_row_of_panels(texts, finish, tmp_path):
    for run in texts.runs():
        raw = np.zeros((10, 2, run.head.n_raw))
        finish(run, raw[0], raw=raw, y=np.ones(10), ood=raw)
    figure = roc(texts, tmp_path)
    assert len(figure.axes) == 3
    # Equal scores detect nothing.
    assert key_of(figure.axes[2])["Poisson"][0] == 0.5


@pytest.mark.parametrize("draw", [roc, ood_pmfs])
def test_runs_without_ood_rows_are_reported(declare, finish, tmp_path, draw):
    experiment = declare("texts", data=DATA, methods=["poisson"])
    finish(experiment.runs()[0], [[0.0]])
    with pytest.raises(InputError, match=r"No predictions of OOD rows in .*poisson"):
        draw(experiment, tmp_path)


def test_ten_methods_look_different_without_their_colours(declare, finish, tmp_path, rng):
    experiment = declare("texts", data=DATA, ood="bible", methods=TEN)
    for run in experiment.runs():
        raw = rng.normal(0.5, 0.1, (20, 2, run.head.n_raw))
        finish(run, raw[0], raw=raw, y=np.ones(20), ood=raw + 0.1)
    key = roc(experiment, tmp_path).axes[2]
    looks = {(line.get_color(), line.get_linewidth(), str(line._dash_pattern)) for line in key.get_legend().get_lines()}
    assert len(looks) == len(key.get_legend().get_lines()) == 10
    # Two rows per kind: distributions, and below them the variances.
    assert len(ood_pmfs(experiment, tmp_path).axes) == 20


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
