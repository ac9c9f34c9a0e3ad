"""Bars that lie."""

from xml.etree import ElementTree

import pytest

from ddpn.report.figures.bars import Bar, cut, lying_bars
from ddpn.report.figures.scales import Axis


def test_parts_follow_each_other_and_names_are_cut_but_kept():
    bars = [Bar("a <very> long name of a column", (0.25, 0.75), "± 2"), Bar("b", (0.5,), "x", (0.4, 0.6))]
    tree = ElementTree.fromstring(lying_bars("n", "t", "d", Axis("share", 0.0, 1.0), bars, ("bar", "bar-2"), 0.9))
    boxes = [(box.get("class"), float(box.get("x")), float(box.get("width"))) for box in tree.iter("rect")]
    assert [kind for kind, *_ in boxes] == ["bar", "bar-2", "bar"]
    assert boxes[1][1] == pytest.approx(boxes[0][1] + boxes[0][2], abs=0.2)
    assert boxes[1][2] == pytest.approx(3 * boxes[0][2], rel=0.01)
    assert tree.find("g/title").text == "a <very> long name of a column"
    assert tree.find("g/text").text == "a <very> long name…"
    assert {"whisker", "line-2"} <= {path.get("class") for path in tree.iter("path")}


def test_a_bar_below_zero_lies_left_of_it():
    axis = Axis("change", -0.1, 0.3)
    tree = ElementTree.fromstring(lying_bars("n", "t", "d", axis, [Bar("a", (-0.1,), "-10%")], ("bar",)))
    (bar,) = tree.iter("rect")
    zero = float(next(path for path in tree.iter("path") if path.get("class") == "axis").get("d")[1:].split()[0])
    assert float(bar.get("x")) + float(bar.get("width")) == pytest.approx(zero, abs=0.2)


def test_short_names_stay():
    assert cut("age") == "age"
