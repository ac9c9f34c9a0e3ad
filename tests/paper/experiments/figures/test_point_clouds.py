import numpy as np
import pytest

from ddpn.paper.datasets import inventory, simulate_shelves, write_beams, write_shelves
from ddpn.paper.experiments.figures.predictions import beams
from ddpn.paper.inputs import unpack
from ddpn.runtime.errors import InputError

pytest.importorskip("matplotlib")
#: More than one portion of what is simulated at a time, so that places in later ones are seen to be right.
BEAMS, POINTS = 300, 32
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
    data = simulate_shelves(BEAMS, max_points=POINTS, progress=False)
    x, y = data.part("test")
    counts = []
    for row, name, count, (front, side, pmf) in shown(beams(finished(SHELVES, y), tmp_path)):
        beam = unpack(x[row])
        assert (name, count) == (data.classes[beam.geometry], y[row])
        np.testing.assert_allclose(points(front), expected(beam.points, [0, 1]))
        np.testing.assert_allclose(points(side), expected(beam.points, [2, 1]))
        heights = {round(bar.get_x() + 0.4): bar.get_height() for bar in pmf.patches}
        assert max(heights, key=heights.get) in (count - 1, count)
        counts.append(count)
    assert counts == [np.sort(y)[round(q * (len(y) - 1))] for q in (0.1, 0.5, 0.95)]


def test_what_stands_there_is_as_many_and_where_the_points_are(finished, tmp_path):
    y = simulate_shelves(BEAMS, max_points=POINTS, progress=False).part("test")[1]
    for _, name, count, (_, side, _) in shown(beams(finished(SHELVES, y), tmp_path)):
        # Bottles and cartons are a body and a top.
        assert len(side.patches) == count * (2 if name in ("bottle", "carton") else 1)
        ends = np.array([patch.get_bbox().get_points() for patch in side.patches])
        low, high = ends[:, 0].min(0), ends[:, 1].max(0)
        # The camera's noise at 2 m is 8 mm in a standard deviation.
        assert (points(side) > low - 0.04).all()
        assert (points(side) < high + 0.04).all()


def test_a_folder_of_beams_is_read(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    write_shelves(tmp_path / "inventory", 60, progress=False)
    data = inventory(max_points=POINTS)
    x, y = data.part("test")
    for row, name, count, (_, side, _) in shown(beams(finished(STORED, y), tmp_path)):
        beam = unpack(x[row])
        assert (name, count) == (data.classes[beam.geometry], y[row])
        np.testing.assert_allclose(points(side), expected(beam.points, [2, 1]))
        assert not side.patches


def test_a_beam_without_points_says_so(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    write_beams(tmp_path / "inventory", [(np.zeros((0, 3)), "can", count) for count in range(1, 21)])
    figure = beams(finished(STORED, inventory(max_points=POINTS).part("test")[1]), tmp_path)
    for _, _, _, (front, side, _) in shown(figure):
        assert [text.get_text() for ax in (front, side) for text in ax.texts] == ["no points", "no points"]


def test_other_beams_than_those_of_the_run_are_refused(finished, tmp_path):
    y = simulate_shelves(BEAMS, max_points=POINTS, progress=False).part("test")[1]
    with pytest.raises(InputError, match=r"The data has changed since .*ddpn"):
        beams(finished(SHELVES, y + 1), tmp_path)
