"""Test that the examples of the how-to on forecasting run.

tests/docs leaves them out, as their libraries are not in `.venv`.
"""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "forecasting.md"
LIBRARIES = {
    "GluonTS": "gluonts",
    "darts": "darts",
    "PyTorch Forecasting": "pytorch_forecasting",
    "Pyro": "pyro",
}


def read_sections() -> dict[str, str]:
    """Read the code of sections that have any."""
    code_by_section = {}
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        if code := re.findall(r"^```{code-block} python\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL):
            code_by_section[section.splitlines()[0]] = "".join(code)
    return code_by_section


def test_every_library_has_an_example():
    assert read_sections().keys() == LIBRARIES.keys()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("title", LIBRARIES)
def test_the_example_runs(title, tmp_path, monkeypatch, capsys):
    pytest.importorskip(LIBRARIES[title], reason=f"{title} is not installed: make test-forecasting")
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {"__name__": "page"}
    exec(compile(read_sections()[title], PAGE.name, "exec"), space)
    if title == "GluonTS":
        assert (space["forecast"].quantile(0.9) % 1 == 0).all()
    elif title == "darts":
        assert "['chairs_mu', 'chairs_gamma']" in capsys.readouterr().out
        assert (space["paths"].all_values() % 1 == 0).all()
    elif title == "PyTorch Forecasting":
        assert (space["paths"] % 1 == 0).all()
    elif title == "Pyro":
        assert "tensor(True)" in capsys.readouterr().out
