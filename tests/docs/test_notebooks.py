"""The notebooks are those of the pages, and their output is what the pages show (which test_pages runs)."""

import importlib.util
import json
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
spec = importlib.util.spec_from_file_location("notebooks", DOCS / "notebooks.py")
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


def without_output(notebook):
    cells = [
        cell | ({"outputs": [], "execution_count": None} if cell["cell_type"] == "code" else {}) for cell in notebook
    ]
    return [{key: cell[key] for key in sorted(cell)} for cell in cells]


@pytest.mark.parametrize("page", script.PAGES, ids=lambda page: page.stem)
def test_a_notebook_is_that_of_its_page(page):
    notebook = json.loads((script.FOLDER / f"{page.stem}.ipynb").read_text("utf-8"))
    remedy = f"run python docs/notebooks.py {page.stem}"
    assert without_output(notebook["cells"]) == without_output(script.make_notebook(page)["cells"]), remedy
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    printed = "".join("".join(output["text"]) for output in outputs if output.get("name") == "stdout")
    assert script.list_words(printed.splitlines()) == script.list_words(script.list_output(page)), remedy
    assert not [output for output in outputs if output["output_type"] == "error"]


def test_every_page_with_a_notebook_links_to_it():
    for page in script.PAGES:
        assert f"notebooks/{page.stem}.ipynb)" in page.read_text("utf-8"), page.name
    assert {path.stem for path in script.FOLDER.glob("*.ipynb")} == {page.stem for page in script.PAGES}
