"""Test that the page of parameters is what docs/parameters.py writes from the code."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("numpydoc", reason="numpydoc, which reads docstrings, is not installed")
DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_of_parameters_is_that_of_the_code():
    spec = importlib.util.spec_from_file_location("parameters", DOCS / "parameters.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.PAGE.read_text(encoding="utf-8") == script.format_page(), "run python docs/parameters.py"
