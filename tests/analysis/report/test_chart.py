"""A figure as XML: marks where the data are, text escaped; places, ticks and bins."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from ddpn.analysis.report.chart import (
    CROSS,
    HEIGHT,
    LINE,
    POINT,
    RANGE,
    WIDTH,
    Axis,
    Bar,
    Chart,
    bar_chart,
    count_bins,
    short,
    wants_log,
)


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
    figure = chart.figure("one", "A <title>", 'A "word"', "caption", ("dot", "seen"))
    assert (figure.svg, figure.legend) == (chart.svg("one", "A <title>", 'A "word"'), (("dot", "seen"),))


def test_bars_are_as_high_and_wide_as_their_numbers(chart):
    chart.bars(np.array([0.0, 5.0, 7.0, 10.0]), np.array([2.0, 0.5, 0.0]), gap=0.0)
    first, second = (
        {key: float(bar.get(key)) for key in ("x", "y", "width", "height")} for bar in parsed(chart).iter("rect")
    )
    assert first["width"] / second["width"] == pytest.approx(2.5, rel=0.01)
    assert first["height"] / second["height"] == pytest.approx(4.0, rel=0.01)
    assert first["y"] + first["height"] == pytest.approx(second["y"] + second["height"], abs=0.1)


def places(tree: ElementTree.Element, kind: str) -> list[tuple[float, float]]:
    (path,) = [path for path in tree.iter("path") if path.get("class") == kind]
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.get("d"))]


def test_all_marks_have_the_same_places(chart):
    x, y = np.array([0.0, 10.0, 4.0]), np.array([0.0, 2.0, 1.0])
    chart.draw(POINT, "dot", x, y)
    chart.draw(LINE, "line", x, y)
    chart.draw(CROSS, "cross", x, y)
    chart.draw(RANGE, "range", x, y, y + 0.5)
    tree = parsed(chart)
    assert places(tree, "dot") == places(tree, "line") == places(tree, "cross") == places(tree, "range")
    (left, bottom), (right, top), middle = places(tree, "dot")
    assert 0 < left < right < WIDTH
    assert 0 < top < bottom < HEIGHT
    assert middle == pytest.approx((left + 0.4 * (right - left), (top + bottom) / 2), abs=0.1)


def test_a_band_spans_the_whole_width(chart):
    chart.band(0.5, 1.5)
    chart.draw(LINE, "ref", [0.0, 10.0], [1.0, 1.0])
    tree = parsed(chart)
    (band,) = tree.iter("rect")
    (left, middle), (right, _) = places(tree, "ref")
    assert float(band.get("width")) == pytest.approx(right - left, abs=0.1)
    assert float(band.get("y")) + float(band.get("height")) / 2 == pytest.approx(middle, abs=0.1)


def test_the_parts_of_a_bar_follow_each_other_and_long_names_are_cut_but_kept():
    bars = [Bar("a <very> long name of a column", (0.25, 0.75), "± 2"), Bar("b", (0.5,), "x", (0.4, 0.6))]
    tree = parsed(bar_chart(Axis("share", 0.0, 1.0), bars, ("bar", "bar-2"), 0.9))
    boxes = [(box.get("class"), float(box.get("x")), float(box.get("width"))) for box in tree.iter("rect")]
    assert [kind for kind, *_ in boxes] == ["bar", "bar-2", "bar"]
    assert boxes[1][1] == pytest.approx(boxes[0][1] + boxes[0][2], abs=0.2)
    assert boxes[1][2] == pytest.approx(3 * boxes[0][2], rel=0.01)
    assert tree.find("g/title").text == "a <very> long name of a column"
    assert [text.text for text in tree.findall("g/text")] == ["a <very> long name…", "b"]
    assert {"whisker", "line-2"} <= {path.get("class") for path in tree.iter("path")}


def test_a_negative_bar_is_left_of_zero():
    tree = parsed(bar_chart(Axis("change", -0.1, 0.3), [Bar("a", (-0.1,), "-10%")]))
    (bar,) = tree.iter("rect")
    zero = [path for path in tree.iter("path") if path.get("class") == "axis"][-1].get("d")[1:].split()[0]
    assert float(bar.get("x")) + float(bar.get("width")) == pytest.approx(float(zero), abs=0.2)


# Axes and bins ---

RNG = np.random.default_rng(9)
COUNTS = {
    "0 and 1": RNG.integers(0, 2, 80),
    "one value": np.full(9, 4),
    "small": RNG.poisson(3.0, 500),
    "hundreds": RNG.poisson(300.0, 500),
    "a long tail": RNG.negative_binomial(0.4, 0.002, 800),
    "millions": RNG.poisson(3e6, 400),
    "millions and zeros": np.concatenate([np.zeros(300), RNG.poisson(3e6, 30)]),
}


@pytest.mark.parametrize("values", COUNTS.values(), ids=COUNTS.keys())
def test_every_count_falls_into_one_of_few_bins(values):
    bins = count_bins(values.astype(float))
    assert np.all(np.diff(bins.edges) >= 1)
    assert np.all(bins.edges == np.round(bins.edges))
    assert bins.edges[0] <= values.min()
    assert values.max() < bins.edges[-1]
    assert len(bins.edges) <= 42
    shares = bins.shares(values.astype(float), np.ones(len(values)))
    assert shares == pytest.approx(np.histogram(values, bins.edges - 0.5)[0] / len(values))


def test_few_counts_have_a_bin_each_and_long_tails_a_log_axis():
    assert count_bins(COUNTS["small"].astype(float)).unit
    assert [name for name, values in COUNTS.items() if wants_log(values)] == ["a long tail", "millions and zeros"]


@pytest.mark.parametrize(
    "axis",
    [Axis("", 0.0, 1.0), Axis("", -0.5, 13.5, integers=True), Axis("", 0.0, 3.2e6, integers=True), Axis("", 0.0, 0.003),
     Axis("", -0.5, 3e6, log=True, integers=True), Axis("", 0.0, 70.0, log=True), Axis("", 2.9e6, 3.1e6, integers=True),
     Axis("", -0.5, 1.5, integers=True), Axis("", -1.3, -0.2)],
)  # fmt: skip
def test_ticks_are_few_round_and_in_range(axis):
    ticks = axis.ticks
    assert 2 <= len(ticks) <= 9
    assert all(axis.low <= tick <= axis.high for tick in ticks)
    assert np.all(np.diff(ticks) > 0)
    assert len({axis.tick_label(tick) for tick in ticks}) == len(ticks)
    if axis.integers:
        assert all(tick == round(tick) for tick in ticks)


def test_places_are_even_or_logarithmic_and_stay_inside():
    assert Axis("", 10.0, 20.0).share(np.array([10.0, 15.0, 20.0, 99.0, -9.0])).tolist() == [0.0, 0.5, 1.0, 1.0, 0.0]
    assert Axis("", 0.0, 99.0, log=True).share(np.array([0.0, 9.0, 99.0])).tolist() == pytest.approx([0.0, 0.5, 1.0])


def test_labels_are_short():
    assert [short(value) for value in (0.1, 9999.0, 12_500.0, 2e9)] == ["0.1", "9999", "12.5k", "2G"]
    assert Axis("", 0, 1, percent=True).tick_label(0.3) == "30%"
