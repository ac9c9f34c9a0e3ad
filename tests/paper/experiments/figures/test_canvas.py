import sys
from xml.etree import ElementTree

import pytest

from ddpn.paper.experiments.figures.canvas import legend_below, panels, save, style
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


def test_a_missing_matplotlib_is_reported_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"ddpn\[plot\] is not installed"):
        panels(1, 1, (1.0, 1.0))
