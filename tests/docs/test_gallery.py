"""The gallery shows every figure that a page shows."""

import importlib.util
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
spec = importlib.util.spec_from_file_location("gallery", DOCS / "gallery.py")
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


def test_the_gallery_is_that_of_the_pages():
    assert script.PAGE.read_text("utf-8") == script.format_page(), "run python docs/gallery.py"


def test_every_figure_of_a_page_is_in_the_gallery():
    pages = [path for path in DOCS.rglob("*.md") if path != script.PAGE and "_build" not in path.parts]
    figures = {path for page in pages for _, path in script.list_figures(page)}
    assert len(figures) > 20
    assert figures == {path for _, path in script.list_figures(script.PAGE)}


def test_thumbnails_have_descriptions():
    assert not re.findall(r"!\[\s*\]", script.PAGE.read_text("utf-8"))
