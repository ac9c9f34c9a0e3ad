"""Test that figures draw what scipy computes from raw outputs, and that one which cannot be drawn leaves the others."""

import gzip

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, xlogy

from ddpn.paper.datasets import simulate_shelves, split
from ddpn.paper.datasets.dataset import LARGE_SHARES, SEED
from ddpn.paper.experiments import catalogue, figures
from ddpn.paper.experiments.figures import (
    FIGURES,
    draw_beams,
    draw_beta,
    draw_epsilon,
    draw_epsilon_wide,
    draw_gamma,
    draw_image_pmfs,
    draw_image_pmfs_ensembles,
    draw_image_pmfs_single,
    draw_ood_densities,
    draw_ood_pmfs,
    draw_ood_variances,
    draw_pathologies,
    draw_recovery,
    draw_wave,
    write_figures,
)
from ddpn.paper.experiments.runs import SNAPSHOTS, WEIGHTS
from ddpn.runtime.errors import InputError
from ddpn.storage.tensor_files import read, write

pytest.importorskip("matplotlib")
image = pytest.importorskip("PIL.Image")
STAYS = {"name": "length_of_stay", "features": "standard"}
METHODS = ["ddpn", "beta_ddpn_1.0"]


def get_line(ax, label):
    (matching,) = (line for line in ax.get_lines() if line.get_label() == label)
    return matching.get_xydata().T


def get_edges(collection):
    """Return the least and greatest y of a filled band."""
    vertices = collection.get_paths()[0].vertices
    return vertices[:, 1].min(), vertices[:, 1].max()


def test_the_wave_shows_mean_band_and_both_variances(declare, finish, tmp_path):
    experiment = declare("waves", simulation={"name": "wave"}, methods=["poisson", "gaussian"])
    poisson, gaussian = experiment.runs()
    finish(poisson, np.log([[20.0], [24.0]]))
    finish(gaussian, [[20.0, 0.0], [20.0, 0.0]])
    axes = np.reshape(draw_wave(experiment, tmp_path).axes, (3, 2))
    assert [ax.get_title() for ax in axes[0]] == ["Poisson", "Gaussian"]
    assert "MAE 1.500\nCRPS 0.750" in [text.get_text() for text in axes[0, 0].texts]
    np.testing.assert_allclose(get_line(axes[0, 0], "mean")[1], 22.0, rtol=1e-6)
    np.testing.assert_allclose(get_line(axes[1, 0], "the ensemble's variance")[1], 22.0, rtol=1e-6)
    np.testing.assert_allclose(axes[2, 0].get_lines()[0].get_ydata(), 4.0, rtol=1e-5)
    np.testing.assert_allclose(axes[2, 1].get_lines()[0].get_ydata(), 0.0, atol=1e-9)
    np.testing.assert_allclose(get_edges(axes[0, 1].collections[0]), stats.norm(20, 1).interval(0.95), rtol=1e-5)


def test_recovery_sets_the_matched_model_and_ddpn_against_the_truth(declare, finish, tmp_path):
    methods = ["ddpn", "gaussian", "poisson", "exact_ddpn"]
    experiment = declare("recovered", simulation={"name": "poisson"}, methods=methods)
    for run in experiment.runs():
        finish(run, np.full((2, run.head.n_raw), [np.log(4.0), 0.0][: run.head.n_raw]))
    axes = draw_recovery(experiment, tmp_path).axes
    assert [ax.get_title() for ax in axes] == ["Poisson", "DDPN", "DDPN, exact likelihood"]
    assert all("MAE 1.500\nCRPS 0.750" in [text.get_text() for text in ax.texts] for ax in axes)
    # gamma = 1: both are Poisson(4).
    for ax in axes:
        np.testing.assert_allclose(get_line(ax, "mean")[1], 4.0, rtol=1e-5)
        assert get_edges(ax.collections[0]) == stats.poisson(4).interval(0.95)
        x, truth = get_line(ax, "true mean")
        np.testing.assert_allclose(truth, np.exp(x / 2), rtol=1e-9)
        low, high = (line for line in ax.get_lines() if line.get_label() == "true 95% band")
        np.testing.assert_array_equal(high.get_ydata(), stats.poisson.ppf(0.975, np.exp(x / 2)))
        np.testing.assert_array_equal(low.get_ydata(), stats.poisson.ppf(0.025, np.exp(x / 2)))


def write_snapshots(run, finish, mus):
    """Write a finished run whose networks have these mu, by snapshot and at the end, and gamma = mu / 5."""
    named = {}
    for at, mu in mus.items():
        folder = finish(run, np.log(np.stack([mu, np.divide(mu, 5.0)], axis=1)))
        named |= {f"{at}/{name}": tensor for name, tensor in read(folder / WEIGHTS)[0].items()}
    write(folder / SNAPSHOTS, named, {})


SNAPSHOTS_AT = {"epochs": 3, "batch_size": 32, "lr": 1e-3, "weight_decay": 0.0, "hidden": [3], "snapshots": [1, 2]}


def test_every_beta_has_a_column_and_every_snapshot_a_line(declare, finish, tmp_path):
    content = {"simulation": {"name": "isolated"}, "training": SNAPSHOTS_AT}
    experiment = declare("betas", methods=METHODS, **content)
    for number, run in enumerate(experiment.runs()):
        # The second network is the median at the end.
        write_snapshots(run, finish, {1: [9.0, 40.0 + number, 9.0], 2: [9.0, 30.0, 9.0], "end": [8.5, 11.0, 20.0]})
    axes = np.reshape(draw_beta(experiment, tmp_path).axes, (2, 2))
    assert [ax.get_title() for ax in axes[0]] == ["β = 0", "β = 1"]
    assert [ax.get_ylabel() for ax in axes[:, 0]] == ["μ", "γ"]
    for number, (counts, gammas) in enumerate(axes.T):
        mus = [get_line(counts, f"{epoch} epochs")[1][0] for epoch in (1, 2, 3)]
        np.testing.assert_allclose(mus, [40.0 + number, 30.0, 11.0], rtol=1e-5)
        drawn = [line.get_ydata()[0] for line in gammas.get_lines() if line.get_linestyle() == "-"]
        np.testing.assert_allclose(drawn, np.divide(mus, 5.0), rtol=1e-5)
        assert counts.texts[0].get_text() == "2 of 3 networks\nfit the right point"


def test_gamma_its_truth_and_the_isolated_points_are_shown(declare, finish, tmp_path):
    content = {"simulation": {"name": "isolated"}, "training": SNAPSHOTS_AT, "grid": {"initial_gamma": [1.0, 148.0]}}
    experiment = declare("gammas", methods=METHODS, **content)
    for run in experiment.runs():
        write_snapshots(run, finish, {1: [9.0], 2: [9.0], "end": [10.0]})
    axes = np.reshape(draw_gamma(experiment, tmp_path).axes, (4, 2))
    titles = [[ax.get_title() for ax in axes[row]] for row in (0, 2)]
    assert titles[0] == ["β = 0, γ starts at 1", "β = 0, γ starts at 148"]
    assert titles[1] == ["β = 1, γ starts at 1", "β = 1, γ starts at 148"]
    x, truth = get_line(axes[1, 0], "truth")
    np.testing.assert_allclose(truth, 6 - 0.03 * x**2, rtol=1e-12)
    assert get_line(axes[0, 0], "isolated points").T.tolist() == [[1.0, 16.0], [10.0, 10.0]]
    assert x.min() < 1.0 < 10.0 < x.max()


def compute_moments(mean, variance, terms=4000):
    """Compute moments by so many terms of their definition."""
    y, gamma = np.arange(float(terms)), mean / variance
    log = -y + xlogy(y, y) - gammaln(y + 1) - gamma * (mean - y + xlogy(y, y) - y * np.log(mean))
    weight = np.exp(log - log.max())
    first = np.average(y, weights=weight)
    return first, np.average((y - first) ** 2, weights=weight)


def test_on_the_papers_grid_a_hundred_terms_are_as_good(tmp_path):
    """The paper sums 100 terms; its largest deviation of the mean on this grid is 2.71."""
    left, right, *_ = draw_epsilon(catalogue.read_experiment("moments"), tmp_path).axes
    assert (left.get_xlim(), left.get_ylim()) == (pytest.approx((0.5, 50), abs=0.2), pytest.approx((0.1, 10), abs=0.1))
    means, variances = np.linspace(0.5, 50, 200), np.linspace(0.1, 10, 200)
    grids = [np.asarray(ax.collections[0].get_array()).reshape(200, 200) for ax in (left, right)]
    assert grids[0].max() == pytest.approx(2.71, abs=0.005)
    for row, column in ((0, 0), (199, 0), (100, 3), (199, 199)):
        mean, variance = compute_moments(means[column], variances[row], terms=100)
        assert grids[0][row, column] == pytest.approx(abs(mean - means[column]), abs=1e-6)
        assert grids[1][row, column] == pytest.approx(abs(variance - variances[row]), abs=1e-5)


def test_the_grids_are_the_deviations_of_the_exact_moments(tmp_path):
    left, right, *_ = draw_epsilon_wide(catalogue.read_experiment("moments"), tmp_path).axes
    nodes = left.get_lines()[0].get_xdata()
    assert (nodes[0], nodes[-1]) == pytest.approx((0.1, 10**1.7))
    grids = [np.asarray(ax.collections[0].get_array()).reshape(len(nodes), -1) for ax in (left, right)]
    for row, column in ((0, 0), (150, 20), (60, 120), (110, 110), (180, 100)):
        mean, variance = compute_moments(nodes[column], nodes[row])
        assert grids[0][row, column] == pytest.approx(abs(mean - nodes[column]), abs=1e-6)
        assert grids[1][row, column] == pytest.approx(abs(variance - nodes[row]), abs=1e-5)


@pytest.fixture
def patients(declare, finish):
    """Three patients: the second has most mass below 0 and the third least, by the first member; the second differs."""
    experiment = declare("stays", data=STAYS, methods=["beta_gaussian_0.5", "beta_ddpn_0.5"])
    gaussian, ddpn = experiment.runs()
    log_variance = 2 * np.log(2.0)
    first = [[6.0, log_variance], [1.0, log_variance], [9.0, 0.0]]
    raw = np.stack([first, np.roll(first, 1, 0)], 1)
    finish(gaussian, np.zeros((2, 2)), raw=raw, y=[5, 2, 9])
    counts = np.log([[5.0, 1.0], [2.0, 1.0], [8.0, 1.0]])
    finish(ddpn, np.zeros((2, 2)), raw=np.stack([counts, counts + 1], 1), y=[5, 2, 9])
    return experiment


def test_the_two_patients_are_the_most_and_the_least_below_zero_by_one_network(patients, tmp_path):
    left, right = draw_pathologies(patients, tmp_path).axes
    below = 100 * stats.norm.cdf(0, 1, 2)
    assert left.get_title() == f"test row 1: {below:.1f}% of the Gaussian below 0"
    assert right.get_title() == "test row 2: the Gaussian has mean 9.0, sd 1.00"
    assert [get_line(ax, "observed")[0][0] for ax in (left, right)] == [2, 9]
    x, smooth = get_line(left, "β-Gaussian (0.5)")
    np.testing.assert_allclose(smooth, stats.norm.cdf(x, 1, 2), atol=1e-6)
    assert x[0] <= stats.norm.ppf(1e-4, 1, 2) + 1e-5
    edge, steps = get_line(left, "β-DDPN (0.5)")
    assert steps[0] == 0.0
    # gamma = 1 is a Poisson.
    np.testing.assert_allclose(steps[1:], stats.poisson.cdf(edge[1:], 2.0), atol=1e-6)
    np.testing.assert_array_equal(edge[1:], np.arange(len(edge) - 1))


N = 40
IMAGES = {"name": "coco_people", "size": 16, "augment": False}


@pytest.fixture
def image_counts(tmp_path, monkeypatch):
    """Counts of 40 images, each of one colour: that of image i is 6 i."""
    folder = tmp_path / "data" / "coco_people"
    (folder / "images").mkdir(parents=True)
    y = np.random.default_rng(3).integers(1, 9, N)
    for number in range(N):
        image.new("RGB", (20, 10), (6 * number, 0, 0)).save(folder / "images" / f"{number:03}.png")
    lines = ["image_id,person_count", *(f"{number:03}.png,{count}" for number, count in enumerate(y))]
    (folder / "person_counts.csv").write_text("\n".join(lines))
    monkeypatch.setenv("DDPN_DATA", str(tmp_path / "data"))
    return y


@pytest.fixture
def people(declare, finish, image_counts):
    """Two networks whose means are the count of the image and twice that, of equal means and variances."""
    methods = ["gaussian", "ddpn", "beta_ddpn_0.5", "beta_ddpn_1.0"]
    experiment = declare("people", data=IMAGES, methods=methods)
    y = image_counts[split(N, SEED, LARGE_SHARES).test]
    log = np.log([y, 2 * y]).T
    for run in experiment.runs()[:3]:
        raw = np.stack([np.exp(log), log] if run.method.is_continuous else [log, np.zeros_like(log)], -1)
        finish(run, np.zeros((2, 2)), raw=raw, y=y)
    return experiment


def reshape_axes(figure, rows):
    """Return the picture and the prediction of images, one row per method."""
    return np.reshape(figure.axes, (rows, 3, 2))


def test_each_image_is_beside_its_own_pmf(people, image_counts, tmp_path):
    (line,) = reshape_axes(draw_image_pmfs(people, tmp_path), 1)
    assert line[0, 0].get_title(loc="left") == "β-DDPN (0.5)", "the best that is finished"
    test = split(N, SEED, LARGE_SHARES).test
    ordered = np.sort(image_counts[test])
    for (picture, ax), quantile in zip(line, (0.1, 0.5, 0.95), strict=True):
        count = ordered[round(quantile * (len(ordered) - 1))]
        row = np.flatnonzero(image_counts[test] == count)[0]
        pixels = picture.get_images()[0].get_array()
        assert pixels.shape == (16, 16, 3)
        assert (pixels == [6 * test[row], 0, 0]).all()
        *members, whole, star = (drawn.get_xydata().T for drawn in ax.get_lines())
        assert star.tolist() == [[count], [0.0]]
        pmfs = stats.poisson.pmf(whole[0][:, None], [count, 2 * count])
        np.testing.assert_allclose(whole[1], pmfs.mean(1), atol=1e-6)
        np.testing.assert_allclose([member[1] for member in members], pmfs.T, atol=1e-6)


def test_all_finished_methods_are_shown_in_the_papers_order(people, image_counts, tmp_path):
    ensembles, singles = (
        reshape_axes(draw(people, tmp_path), 3) for draw in (draw_image_pmfs_ensembles, draw_image_pmfs_single)
    )
    titles = [line[0, 0].get_title(loc="left") for line in ensembles]
    assert titles == ["Figure 20: DDPN", "Figure 21: β-DDPN (0.5)", "Figure 25: Gaussian"]
    assert singles[2, 0, 0].get_title(loc="left") == "Figure 15: Gaussian"
    y = np.sort(image_counts[split(N, SEED, LARGE_SHARES).test])
    count = y[round(0.5 * (len(y) - 1))]
    # An ensemble of Gaussians is one Normal with the mixture's moments; a single network is the first one.
    x, density = ensembles[2, 1, 1].get_lines()[-2].get_xydata().T
    np.testing.assert_allclose(
        density, stats.norm.pdf(x, 1.5 * count, np.sqrt(0.25 * count**2 + 1.5 * count)), atol=1e-6
    )
    x, density = singles[2, 1, 1].get_lines()[0].get_xydata().T
    np.testing.assert_allclose(density, stats.norm.pdf(x, count, np.sqrt(count)), atol=1e-6)
    x, pmf = singles[0, 1, 1].get_lines()[0].get_xydata().T
    np.testing.assert_allclose(pmf, stats.poisson.pmf(x, count), atol=1e-6)
    assert len(singles[0, 1, 1].get_lines()) == 2


# Point clouds ---------------------------------------------------------------------------------------------------------

BEAMS, POINTS = 60, 32
SHELVES = {"name": "shelves", "beams": BEAMS, "points": POINTS}


@pytest.fixture
def finish_beams(declare, finish):
    """Finish a run on these beams whose two networks have the true count as their mean, and gamma = 1."""

    def make(data, y):
        experiment = declare("beams", data=data, methods=["ddpn"])
        raw = np.stack([np.log([y, y]).T, np.zeros((len(y), 2))], -1)
        finish(experiment.runs()[0], np.zeros((2, 2)), raw=raw, y=y)
        return experiment

    return make


def list_panels(figure, rows=3):
    """List the row, class and count of beams as printed, with their three panels."""
    axes = np.reshape(figure.axes, (rows, 3))
    for front, side, pmf in axes:
        row, text = front.get_title(loc="left").removeprefix("test row ").split(": ")
        name, count = text.removesuffix("s").removesuffix(" product").split(", ")
        yield int(row), name, int(count), (front, side, pmf)


def sort_points(ax):
    offsets = np.asarray(ax.collections[0].get_offsets())
    return offsets[np.lexsort(offsets.T)]


def sort_cloud(cloud, sides):
    coordinates = cloud[:, sides]
    return coordinates[np.lexsort(coordinates.T)]


def test_points_class_and_count_are_those_of_the_test_rows(finish_beams, tmp_path):
    data = simulate_shelves(BEAMS, max_points=POINTS)
    x, y = data.part("test")
    counts = []
    with pytest.raises(InputError, match=r"The data has changed since .*ddpn"):
        draw_beams(finish_beams(SHELVES, y + 1), tmp_path)
    for row, name, count, (front, side, pmf) in list_panels(draw_beams(finish_beams(SHELVES, y), tmp_path)):
        packed = x[row].numpy()
        cloud = packed[2:][packed[2:, 0] == 1.0, 1:]
        assert (name, count) == (data.classes[int(packed[0, 0])], y[row])
        np.testing.assert_allclose(sort_points(front), sort_cloud(cloud, [0, 1]))
        np.testing.assert_allclose(sort_points(side), sort_cloud(cloud, [2, 1]))
        *_, whole, star = (drawn.get_xydata().T for drawn in pmf.get_lines())
        assert whole[0][whole[1].argmax()] in (count - 1, count)
        assert star.tolist() == [[count], [0.0]]
        counts.append(count)
    assert counts == [np.sort(y)[round(q * (len(y) - 1))] for q in (0.1, 0.5, 0.95)]


# Out-of-distribution rows ---------------------------------------------------------------------------------------------

DATA = {"name": "reviews", "text": ["text"], "max_length": 8}
#: Test rows and OOD rows.
TEXTS, VERSES = 1200, 1500


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def means(rng):
    """Means, and so variances, of a Poisson network for test rows and OOD rows."""
    return rng.gamma(9.0, 0.4, TEXTS), rng.gamma(9.0, 0.7, VERSES)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("texts")


@pytest.fixture(scope="module")
def texts(declare, finish_in, out, means):
    """A Poisson network of two equal networks and a Gaussian one with two means."""
    experiment = declare("texts", data=DATA, ood="bible", methods=["poisson", "gaussian"])
    poisson, gaussian = experiment.runs()
    test, ood = (np.repeat(np.log(side)[:, None, None], 2, 1) for side in means)
    finish_in(out, poisson, np.zeros((2, 1)), raw=test, y=np.ones(TEXTS), ood=ood)
    test, ood = (np.stack([np.tile([1.0, 3.0], (len(side), 1)), np.log(side)[:, None] + [0, 0]], -1) for side in means)
    finish_in(out, gaussian, np.zeros((2, 2)), raw=test, y=np.ones(TEXTS), ood=ood)
    return experiment


@pytest.fixture
def rows_of_test_texts(tmp_path, monkeypatch):
    """Reviews whose test part has as many rows as were predicted, and the verses."""
    folder = tmp_path / "data"
    for name in ("reviews", "bible"):
        (folder / name).mkdir(parents=True)
    rows = 5 * TEXTS
    lines = ["Title,Review Text,Rating", *(f"x,review {row},1" for row in range(rows))]
    (folder / "reviews" / "womens_clothing.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (folder / "bible" / "eng-eng-kjv.txt").write_text("\n".join(f"verse {row}" for row in range(VERSES)))
    monkeypatch.setenv("DDPN_DATA", str(folder))
    return split(rows, SEED, LARGE_SHARES).test


def test_the_papers_texts_are_above_their_own_predictions(texts, out, means, rows_of_test_texts):
    counts, densities = (draw(texts, out).axes for draw in (draw_ood_pmfs, draw_ood_densities))
    for axes in (counts, densities):
        words, drawn, verses, below = np.reshape(axes, (4, 4))
        assert [ax.texts[0].get_text() for ax in words] == [
            f'"review {rows_of_test_texts[row]}"' for row in (10, 25, 95, 249)
        ]
        # There are 1,500 verses, fewer than the paper has.
        shown = [105, 419, 1654 % VERSES, 4809 % VERSES]
        assert [ax.texts[0].get_text() for ax in verses] == [f'"verse {row}"' for row in shown]
        for group, rows, side in ((drawn, (10, 25, 95, 249), means[0]), (below, shown, means[1])):
            for ax, row in zip(group, rows, strict=True):
                x, p = ax.get_lines()[-1].get_xydata().T
                if axes is counts:
                    expected = stats.poisson.pmf(x, side[row])
                else:  # networks 2 apart
                    expected = stats.norm.pdf(x, 2.0, np.sqrt(side[row] + 1.0))
                np.testing.assert_allclose(p, expected, atol=1e-5)


def test_a_likelihood_without_a_finished_run_is_named(declare, finish, tmp_path):
    experiment = declare("texts", data=DATA, ood="bible", methods=["poisson"])
    finish(experiment.runs()[0], [[0.0]])
    with pytest.raises(InputError, match=r"^No finished run of Gaussians in .*texts"):
        draw_ood_densities(experiment, tmp_path)


def test_every_row_is_in_the_histogram_of_its_kind(texts, out, means):
    for ax, more in zip(draw_ood_variances(texts, out).axes, (0.0, 1.0), strict=True):
        for patch, side in zip(ax.patches, means, strict=True):
            shares, edges, _ = patch.get_data()
            assert shares.sum() == pytest.approx(1.0)
            # The networks of the Gaussian are 2 apart, which adds 1 to the variance.
            below = (np.log10(side + more) < edges[20]).mean()
            assert shares[:20].sum() == pytest.approx(below, abs=0.01)


def test_the_catalogue_asks_for_every_figure_and_for_no_other():
    asked = {
        name
        for experiment_name in catalogue.list_names()
        for name in catalogue.read_experiment(experiment_name).figures
    }
    assert asked == set(FIGURES)


def test_a_figure_is_written_in_the_folder_of_its_experiment_twice_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "_NODES", 20)
    first, second = (write_figures(catalogue.read_experiment("moments"), tmp_path / name) for name in "ab")
    paths = [str(path.relative_to(tmp_path)) for path in first]
    assert paths == ["a/moments/epsilon.png", "a/moments/epsilon_wide.png"]
    assert first[0].read_bytes() == second[0].read_bytes()
    assert first[0].read_bytes().startswith(b"\x89PNG")


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
