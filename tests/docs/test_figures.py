"""Test that the figures of the documentation can be drawn again, and that every figure of a page is one of them."""

import importlib.util
import re
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib.image") and pytest.importorskip("matplotlib")

DOCS = Path(__file__).resolve().parents[2] / "docs"


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def figures():
    return load_script("figures")


def test_the_drawing_of_the_packages_shows_the_imports_of_the_code():
    pytest.importorskip("grimp", reason="import-linter, which brings grimp, is not installed")
    rooms = load_script("rooms")
    assert rooms.PICTURE.read_text(encoding="utf-8") == rooms.draw_picture(), "run python docs/rooms.py"


@pytest.mark.parametrize("name", ["dispersion", "attenuation", "scoring"])
def test_figures_without_a_training_are_drawn(figures, name, tmp_path):
    path = tmp_path / f"{name}.png"
    with figures.style():
        figures.FIGURES[name](path)
    narrow = path.with_name(f"{name}-narrow.png")
    wide, tall = (matplotlib.image.imread(image).shape for image in (path, narrow))
    assert wide[1] > wide[0]
    assert tall[0] > tall[1]


def test_every_figure_has_a_function_and_a_page(figures):
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    drawn = {path.stem for path in (DOCS / "pictures").glob("*.png")}
    narrow = {name.removesuffix("-narrow") for name in drawn if name.endswith("-narrow")}
    assert narrow == set(figures.FIGURES), "phones get panels one above the other"
    drawn -= {f"{name}-narrow" for name in narrow}
    assert drawn == set(figures.FIGURES) == set(re.findall(r"\(pictures/(\w+)\.png\)", text))
