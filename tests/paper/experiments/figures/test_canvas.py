import sys
from xml.etree import ElementTree

import pytest

from ddpn.paper.experiments.figures.canvas import bands, legend_below, panels, save, style
from ddpn.runtime.errors import ConfigError

matplotlib = pytest.importorskip("matplotlib")


def drawn():
    with style():
        figure, axes = panels(1, 2, (3.0, 2.0))
        for ax in axes[0]:
            ax.plot([0, 1], [1, 0], label="falls")
            ax.fill_between([0, 1], [0, 0], [1, 1], label="band")
        legend_below(figure, axes[0], columns=2)
    return figure


def test_a_figure_is_written_twice_the_same(tmp_path):
    # A dot in a name does not begin an ending.
    first, second = (save(drawn(), tmp_path / folder / "beta_0.5") for folder in "ab")
    assert [path.name for path in first] == ["beta_0.5.svg", "beta_0.5.png"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert ElementTree.parse(first[0]).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert first[1].read_bytes().startswith(b"\x89PNG")


def test_each_label_is_in_the_legend_once():
    (legend,) = drawn().legends
    assert sorted(text.get_text() for text in legend.get_texts()) == ["band", "falls"]


def test_the_look_ends_with_its_figures():
    before = dict(matplotlib.rcParams)
    with style():
        assert matplotlib.rcParams["svg.hashsalt"] == "ddpn"
    assert dict(matplotlib.rcParams) == before


def test_bands_go_from_white_to_black_and_change_at_the_levels():
    options = bands((0.1, 1.0, 10.0))
    greys = [matplotlib.colormaps[options["cmap"]](options["norm"](value))[0] for value in (0.05, 0.5, 0.9, 5.0, 50.0)]
    assert greys[0] == 1.0
    assert greys[-1] == 0.0
    assert greys[1] == greys[2]
    assert greys == sorted(greys, reverse=True)
    assert len(set(greys)) == 4


def test_a_missing_matplotlib_is_reported_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"ddpn\[plot\] is not installed"):
        panels(1, 1, (1.0, 1.0))
