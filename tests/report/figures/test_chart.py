"""A figure as XML: marks where the data are, words escaped."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from ddpn.report.figures.chart import HEIGHT, WIDTH, Chart
from ddpn.report.figures.scales import Axis


@pytest.fixture
def chart() -> Chart:
    return Chart(Axis("x & <y>", 0.0, 10.0), Axis("up", 0.0, 2.0))


def parsed(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(chart.svg("one", "A <title>", 'A "word"'))


def test_a_figure_is_xml_with_a_title_and_a_description(chart):
    tree = parsed(chart)
    assert (tree.get("role"), tree.get("aria-labelledby")) == ("img", "one-t one-d")
    assert [tree.find(tag).text for tag in ("title", "desc")] == ["A <title>", 'A "word"']
    assert "x & <y>" in [text.text for text in tree.iter("text")]


def test_bars_are_as_high_and_wide_as_their_numbers(chart):
    chart.bars(np.array([0.0, 5.0, 7.0]), np.array([5.0, 7.0, 10.0]), np.array([2.0, 0.5, 0.0]), gap=0.0)
    first, second = (
        {key: float(bar.get(key)) for key in ("x", "y", "width", "height")} for bar in parsed(chart).iter("rect")
    )
    assert first["width"] / second["width"] == pytest.approx(2.5, rel=0.01)
    assert first["height"] / second["height"] == pytest.approx(4.0, rel=0.01)
    assert first["y"] + first["height"] == pytest.approx(second["y"] + second["height"], abs=0.1)


def places(tree: ElementTree.Element, kind: str) -> list[tuple[float, float]]:
    (path,) = [path for path in tree.iter("path") if path.get("class") == kind]
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.get("d"))]


def test_points_and_lines_share_their_places(chart):
    x, y = np.array([0.0, 10.0, 4.0]), np.array([0.0, 2.0, 1.0])
    chart.points(x, y)
    chart.line(x, y)
    chart.crosses(x, y)
    chart.ranges(x, y, y + 0.5)
    tree = parsed(chart)
    assert places(tree, "dot") == places(tree, "line") == places(tree, "cross") == places(tree, "range")
    (left, bottom), (right, top), middle = places(tree, "dot")
    assert 0 < left < right < WIDTH
    assert 0 < top < bottom < HEIGHT
    assert middle == pytest.approx((left + 0.4 * (right - left), (top + bottom) / 2), abs=0.1)


def test_nothing_is_drawn_of_nothing(chart):
    chart.points([], [])
    assert not [path for path in parsed(chart).iter("path") if path.get("class") == "dot"]


def test_a_band_and_rules_cross_the_whole_figure(chart):
    chart.band(0.5, 1.5)
    chart.across(1.0)
    chart.upright(10.0, "seen")
    tree = parsed(chart)
    (band,) = tree.iter("rect")
    (left, _), (right, _) = places(tree, "ref")
    assert float(band.get("width")) == pytest.approx(right - left, abs=0.1)
    assert {x for x, _ in places(tree, "seen")} == {right}


def test_the_outline_of_a_histogram_starts_and_ends_at_the_floor(chart):
    chart.steps(np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0]), "line-2")
    found = places(parsed(chart), "line-2")
    assert len(found) == 6
    assert found[0][1] == found[-1][1] == max(y for _, y in found)
