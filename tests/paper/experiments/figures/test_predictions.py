"""Figures of predictions for single rows: what is drawn is what scipy computes from the raw outputs."""

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn.distributions import Poisson
from ddpn.paper.datasets import inventory, simulate_shelves, split
from ddpn.paper.datasets.dataset import LARGE_SHARES, SEED
from ddpn.paper.experiments.figures.canvas import panels
from ddpn.paper.experiments.figures.predictions import (
    beams,
    draw_pmf,
    image_pmfs,
    ood_pmfs,
    pathologies,
)
from ddpn.paper.inputs import unpack
from ddpn.runtime.errors import InputError

pytest.importorskip("matplotlib")
image = pytest.importorskip("PIL.Image")
STAYS = {"name": "length_of_stay", "features": "standard"}


def test_members_ensemble_and_what_was_observed():
    ax = panels(1, 1, (3.0, 2.0))[1][0, 0]
    draw_pmf(ax, Poisson(torch.tensor([2.0, 5.0])), 60.0)
    y = np.array([bar.get_x() + bar.get_width() / 2 for bar in ax.patches]).round()
    expected = stats.poisson.pmf(y[:, None], [2.0, 5.0])
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], expected.mean(1), atol=1e-6)
    for member, line in enumerate(ax.get_lines()[:2]):
        np.testing.assert_allclose(line.get_ydata(), expected[:, member], atol=1e-6)
    assert expected.mean(1).sum() > 0.998
    # What was observed is shown, however unlikely it was.
    assert ax.get_xlim()[1] >= 60.0


def line_of(ax, label):
    (found,) = (line for line in ax.get_lines() if line.get_label() == label)
    return found.get_xydata().T


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
    left, right = pathologies(patients, tmp_path).axes
    below = 100 * stats.norm.cdf(0, 1, 2)
    assert left.get_title() == f"test row 1: {below:.1f}% of the Gaussian below 0"
    assert right.get_title() == "test row 2: the Gaussian has mean 9.0, sd 1.00"
    assert [line_of(ax, "observed")[0][0] for ax in (left, right)] == [2, 9]
    x, smooth = line_of(left, "β-Gaussian (0.5)")
    np.testing.assert_allclose(smooth, stats.norm.cdf(x, 1, 2), atol=1e-6)
    assert x[0] <= stats.norm.ppf(1e-4, 1, 2) + 1e-5
    edge, steps = line_of(left, "β-DDPN (0.5)")
    assert steps[0] == 0.0
    # gamma = 1 is a Poisson.
    np.testing.assert_allclose(steps[1:], stats.poisson.cdf(edge[1:], 2.0), atol=1e-6)
    np.testing.assert_array_equal(edge[1:], np.arange(len(edge) - 1))


N = 40
IMAGES = {"name": "coco_people", "size": 16, "augment": False}


@pytest.fixture
def counts(tmp_path, monkeypatch):
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
def people(declare, finish, counts):
    """Two members, gamma = 1, whose means are the count of the image and twice that."""
    experiment = declare("people", data=IMAGES, methods=["ddpn", "beta_ddpn_0.5"])
    y = counts[split(N, SEED, LARGE_SHARES).test]
    raw = np.stack([np.log([y, 2 * y]).T, np.zeros((len(y), 2))], -1)
    finish(experiment.runs()[1], np.zeros((2, 2)), raw=raw, y=y)
    return experiment


def test_each_image_is_above_its_own_pmf(people, counts, tmp_path):
    axes = np.reshape(image_pmfs(people, tmp_path).axes, (2, 3))
    test = split(N, SEED, LARGE_SHARES).test
    ordered = np.sort(counts[test])
    for (above, below), quantile in zip(axes.T, (0.1, 0.5, 0.95), strict=True):
        count = ordered[round(quantile * (len(ordered) - 1))]
        row = np.flatnonzero(counts[test] == count)[0]
        assert above.get_title() == f"test row {row}: {count} {'person' if count == 1 else 'people'}"
        shown = above.get_images()[0].get_array()
        assert shown.shape == (16, 16, 3)
        assert (shown == [6 * test[row], 0, 0]).all()
        y = np.array([bar.get_x() + bar.get_width() / 2 for bar in below.patches]).round()
        expected = stats.poisson.pmf(y[:, None], [count, 2 * count]).mean(1)
        np.testing.assert_allclose([bar.get_height() for bar in below.patches], expected, atol=1e-6)
        (observed,) = (line for line in below.get_lines() if line.get_label() == "observed")
        assert observed.get_xdata()[0] == count


def test_other_images_than_those_of_the_run_are_reported(people, tmp_path):
    path = tmp_path / "data" / "coco_people" / "person_counts.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *(f"{row}0" for row in rows)]))
    with pytest.raises(InputError, match=r"The data has changed since .*beta_ddpn_0.5 was tested"):
        image_pmfs(people, tmp_path)


# Point clouds ---------------------------------------------------------------------------------------------------------

BEAMS, POINTS = 60, 32
SHELVES = {"name": "shelves", "beams": BEAMS, "points": POINTS}
STORED = {"name": "inventory", "points": POINTS}


@pytest.fixture
def finished(declare, finish):
    """A run on these beams whose two members have the true count as their mean, and gamma = 1."""

    def make(data, y):
        experiment = declare("beams", data=data, methods=["ddpn"])
        raw = np.stack([np.log([y, y]).T, np.zeros((len(y), 2))], -1)
        finish(experiment.runs()[0], np.zeros((2, 2)), raw=raw, y=y)
        return experiment

    return make


def shown(figure, rows=3):
    """For every beam its row, class and count as printed, and its three panels."""
    axes = np.reshape(figure.axes, (rows, 3))
    for front, side, pmf in axes:
        row, text = front.get_title(loc="left").removeprefix("test row ").split(": ")
        name, count = text.removesuffix("s").removesuffix(" product").split(", ")
        yield int(row), name, int(count), (front, side, pmf)


def points(ax):
    found = np.asarray(ax.collections[0].get_offsets())
    return found[np.lexsort(found.T)]


def expected(cloud, sides):
    found = cloud[:, sides]
    return found[np.lexsort(found.T)]


def test_points_class_and_count_are_those_of_the_test_rows(finished, tmp_path):
    data = simulate_shelves(BEAMS, max_points=POINTS)
    x, y = data.part("test")
    counts = []
    with pytest.raises(InputError, match=r"The data has changed since .*ddpn"):
        beams(finished(SHELVES, y + 1), tmp_path)
    for row, name, count, (front, side, pmf) in shown(beams(finished(SHELVES, y), tmp_path)):
        beam = unpack(x[row])
        assert (name, count) == (data.classes[beam.geometry], y[row])
        np.testing.assert_allclose(points(front), expected(beam.points, [0, 1]))
        np.testing.assert_allclose(points(side), expected(beam.points, [2, 1]))
        heights = {round(bar.get_x() + 0.4): bar.get_height() for bar in pmf.patches}
        assert max(heights, key=heights.get) in (count - 1, count)
        counts.append(count)
    assert counts == [np.sort(y)[round(q * (len(y) - 1))] for q in (0.1, 0.5, 0.95)]


def write_beams(folder, clouds):
    """Beams of one can, two cans, ... with these points."""
    (folder / "points").mkdir(parents=True)
    for i, cloud in enumerate(clouds):
        np.save(folder / "points" / f"{i}.npy", cloud)
    rows = [f"{i},can,{1 + i}" for i in range(len(clouds))]
    (folder / "beams.csv").write_text("\n".join(["beam,class,count", *rows]))


def test_a_folder_of_beams_is_read(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    write_beams(tmp_path / "inventory", [rng.normal(size=(50, 3)) for _ in range(60)])
    data = inventory(max_points=POINTS)
    x, y = data.part("test")
    for row, name, count, (_, side, _) in shown(beams(finished(STORED, y), tmp_path)):
        beam = unpack(x[row])
        assert (name, count) == (data.classes[beam.geometry], y[row])
        np.testing.assert_allclose(points(side), expected(beam.points, [2, 1]))


# Out-of-distribution rows ---------------------------------------------------------------------------------------------


pytest.importorskip("matplotlib")
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
    """A Poisson network of two equal members and a Gaussian one with two means."""
    experiment = declare("texts", data=DATA, ood="bible", methods=["poisson", "gaussian"])
    poisson, gaussian = experiment.runs()
    test, ood = (np.repeat(np.log(side)[:, None, None], 2, 1) for side in means)
    finish_in(out, poisson, np.zeros((2, 1)), raw=test, y=np.ones(TEXTS), ood=ood)
    test, ood = (np.stack([np.tile([1.0, 3.0], (len(side), 1)), np.log(side)[:, None] + [0, 0]], -1) for side in means)
    finish_in(out, gaussian, np.zeros((2, 2)), raw=test, y=np.ones(TEXTS), ood=ood)
    return experiment


@pytest.fixture(scope="module")
def pmfs(texts, out):
    return ood_pmfs(texts, out).axes


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
