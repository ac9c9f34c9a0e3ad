"""Test that plots show the numbers that metrics compute, and that their labels do not overlap."""

import itertools
import re
import sys
from io import BytesIO
from unittest.mock import patch
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath
from PIL import Image
from scipy import stats

from ddpn import CountGLM, Mixture, Poisson, explain, metrics
from ddpn.analysis.explanations import Curve, Inputs, effects
from ddpn.analysis.plots.explanations import choose_axis_limits
from ddpn.analysis.plots.panels import NAMED, draw_bars, draw_panel, render_svg, shorten_label
from ddpn.analysis.plots.predictions import draw_scatter, plot_pit
from ddpn.prediction.figure import bin_probabilities, draw_masses
from ddpn.prediction.prediction import Prediction
from ddpn.runtime.errors import InputError
from ddpn.workflow.examining import write_explanation

RNG = np.random.default_rng(3)
MU = RNG.uniform(1.0, 9.0, 1000)
Y = RNG.poisson(MU)
DIST = Poisson(torch.from_numpy(MU))
PREDICTION = Prediction(Mixture(Poisson(torch.from_numpy(MU[:9, None]))))


def labels_overlap(figure) -> bool:
    """Return True if two tick labels of one axis cover each other."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    axes = [axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)]
    boxes = [[t.get_window_extent() for t in axis.get_ticklabels() if t.get_text()] for axis in axes]
    return any(a.overlaps(b) for axis_boxes in boxes for a, b in itertools.pairwise(axis_boxes))


def test_the_pit_histogram_has_the_heights_of_the_metric():
    weight = RNG.uniform(0.5, 1.5, 1000)
    figure = plot_pit(DIST, Y, bins=8, weight=weight)
    heights = [bar.get_height() for bar in figure.axes[0].patches if bar.get_width() == pytest.approx(1 / 8)]
    np.testing.assert_allclose(heights, metrics.pit_histogram(DIST, Y, 8, weight))
    assert not labels_overlap(figure)


def test_predictions_are_drawn_with_their_masses():
    model = CountGLM(likelihood="poisson").fit(MU[:, None], Y)
    distribution = model.predict_distribution(MU[:3, None])
    figure = distribution.plot()
    assert [len(figure.axes), labels_overlap(figure)] == [3, False]
    heights = np.array([bar.get_height() for bar in figure.axes[1].patches])
    np.testing.assert_allclose(heights, distribution.pmf(np.arange(len(heights)))[1], rtol=1e-9)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def plot_effects(figure=None):
    model = CountGLM(likelihood="poisson").fit(MU[:, None], Y)
    return effects(Inputs(model, MU[:200, None])).plot(figure=figure)


@pytest.mark.parametrize(
    "plot", [lambda: PREDICTION.plot([0, 1]), lambda: plot_pit(DIST, Y), plot_effects], ids=["rows", "pit", "effects"]
)
def test_plots_without_axes_are_new_figures_of_pyplot(plot):
    before = pyplot.figure()
    figure = plot()
    assert pyplot.gcf() is figure
    assert pyplot.get_fignums() == [before.number, figure.number]
    assert not before.axes


def test_plots_are_drawn_into_given_axes_and_figures():
    figure, axes = pyplot.subplots(1, 3)
    assert PREDICTION.plot(ax=axes[:2]) is PREDICTION.plot([1], ax=axes[2]) is figure
    masses = [[bar.get_height() for bar in ax.patches[:8]] for ax in axes]
    np.testing.assert_allclose(masses[:2], PREDICTION.pmf(np.arange(8))[:2], rtol=1e-9)
    assert masses[2] == pytest.approx(masses[1])
    with pytest.raises(InputError, match="one Axes for each of the 3 rows, got 2"):
        PREDICTION.plot([0, 1, 2], ax=axes[:2])
    assert plot_pit(DIST, Y, ax=figure.add_subplot()) is figure
    assert pyplot.get_fignums() == [figure.number]
    other = Figure()
    assert plot_effects(other) is other
    assert len(other.axes) == 2
    assert pyplot.get_fignums() == [figure.number]


def test_figures_of_a_report_draw_themselves_in_a_notebook():
    """They do without pyplot, which chooses a backend, and whose import teaches IPython how to show figures."""
    with patch.dict(sys.modules, {"matplotlib.pyplot": None}):
        figure = draw_panel(lambda ax: ax.plot([0, 1]))
    image = Image.open(BytesIO(figure._repr_png_()))
    assert image.format == "PNG"
    assert len(image.convert("L").getcolors()) > 2


def test_the_command_line_draws_without_pyplot(tmp_path):
    model = CountGLM(likelihood="poisson").fit(MU[:, None], Y)
    with patch.dict(sys.modules, {"matplotlib.pyplot": None}):
        write_explanation(explain(model, MU[:50, None]), str(tmp_path / "effects.png"))
    assert (tmp_path / "effects.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.last
def test_a_notebook_shows_each_plot_once():
    nbformat, client = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    cells = [
        "import torch\nfrom ddpn import Mixture, Poisson\nfrom ddpn.prediction.prediction import Prediction\n"
        "prediction = Prediction(Mixture(Poisson(torch.ones(2, 1))))\nprediction.plot()",
        "figure = prediction.plot()",
        "figure",
        "import matplotlib.pyplot as plt\nprediction.plot()\nplt.show()",
        "plt.show()",
    ]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    done = client.NotebookClient(notebook).execute()
    images = [[output for output in cell["outputs"] if "image/png" in output.get("data", {})] for cell in done["cells"]]
    assert list(map(len, images)) == [1, 1, 1, 1, 0]


# SVG in a page ---

NAME = 'rent in $ & $, "größe" 家賃 <b>'


def test_an_image_is_the_same_each_time_and_shares_no_name_with_another():
    one, again, other = (render_svg(plot_pit(DIST, Y), name, "PIT <1>", "a & b") for name in ("pit", "pit", "pit-2"))
    assert one == again
    tree = ElementTree.fromstring(one)
    assert (tree.get("role"), tree.get("aria-labelledby")) == ("img", "pit-t pit-d")
    assert [tree.find(tag).text for tag in ("title", "desc")] == ["PIT <1>", "a & b"]
    ids, others = (re.findall(r'\bid="([^"]*)"', svg) for svg in (one, other))
    assert len(ids) == len(set(ids))
    assert not set(ids) & set(others)
    assert set(re.findall(r'(?:url\(|href=")#([^")]*)', one)) <= set(ids)
    assert "http" not in one
    assert not re.search(": #(1d5c9e|566070)", one), "colours are those of the page"


def test_any_name_stays_text():
    svg = render_svg(
        draw_panel(lambda ax: draw_bars(ax, [NAME, "b"], np.ones(2), np.ones((2, 2)), texts=(NAME, "b"))),
        "one",
        NAME,
        NAME,
    )
    tree = ElementTree.fromstring(svg)
    words = [text.text for text in tree.iter("text")]
    assert words[-2:] == [NAME, "b"]
    (short,) = (word for word in words if "…" in word)
    beginning, end = short.split("…")
    assert NAME.startswith(beginning)
    assert NAME.endswith(end)


@pytest.mark.parametrize(
    "name", ["Aufnahme-Datum weekday", "W" * 30, "i" * 80, "日本語の列の名前がとても長い場合", "Ä. " * 20]
)
def test_labels_fit_the_margin_and_keep_what_tells_parts_of_a_date_apart(name):
    label = shorten_label(name)
    # Matplotlib has no glyphs for Japanese; a character is as wide as the font is high.
    glyphs = label.replace("…", "m") if name.isascii() or "Ä" in name else "W" * len(label)
    width = TextToPath().get_text_width_height_descent(glyphs, FontProperties(size=9), ismath=False)[0]
    assert 60 < width < 72 * NAMED[0] - 6
    assert label.endswith(name[-3:])


@pytest.mark.parametrize(("low", "high"), [(0, 2), (0, 9), (150, 300), (0, 3_000_000)])
def test_bins_hold_the_probabilities_of_their_counts_and_ticks_are_few_integers(low, high):
    mean = max(1.0, (low + high) / 2)
    edges, shares = bin_probabilities(Poisson(torch.tensor([mean]).double()), float(low), float(high), 48)
    expected = np.diff(stats.poisson.cdf(edges - 1, mean))
    np.testing.assert_allclose(shares[:, 0], expected, atol=1e-9)
    assert edges[0] == low
    assert high <= edges[-1] < high + (edges[1] - edges[0])
    figure = draw_panel(lambda ax: draw_masses(ax, edges, shares[:, 0], (low, mean), y=mean))
    assert not labels_overlap(figure)
    (ax,) = figure.axes
    shown = [tick for tick in ax.get_xticks() if ax.get_xlim()[0] <= tick <= ax.get_xlim()[1]]
    assert 2 <= len(shown) <= 7
    assert all(tick == round(tick) for tick in shown)
    dark = [bar.get_facecolor() == ax.patches[0].get_facecolor() for bar in ax.patches]
    assert dark == (edges[:-1] <= mean).tolist()


@pytest.mark.parametrize(("low", "top"), [(26.0, 47.0), (20.0, 60.0), (20.0, 3000.0), (20.0, 2e7)])
def test_log_axes_have_ticks_however_long_they_are(low, top):
    mean, ends = np.linspace(low, top, 30), np.array([np.zeros(30), np.full(30, 2e7)])
    inside, tenths = np.ones(30, dtype=bool), (mean[:3], mean[:3], np.zeros(3))
    (ax,) = draw_panel(lambda ax: draw_scatter(ax, "mean", mean, ends, mean.round(), inside, tenths, log=True)).axes
    for ticks, (low, high) in ((ax.get_xticks(), ax.get_xlim()), (ax.get_yticks(), ax.get_ylim())):
        assert 2 <= sum(low <= tick <= high for tick in ticks) <= 8


def test_curves_share_a_scale_which_has_the_poisson_where_that_is_near():
    def levels(quantity, *values):
        return Curve(quantity, np.log(values), np.full(len(values), 0.1), 0.0, True)

    low, high = choose_axis_limits([levels("mean", 1.0, 9.0), levels("mean", 2.0, 4.0)])
    assert low == 0.0
    assert high >= 9.0
    assert choose_axis_limits([levels("variance / mean", 1.5, 2.5)])[0] <= 1.0
    assert choose_axis_limits([levels("variance / mean", 50.0, 60.0)])[0] > 1.0
