"""Test the recipe for MLflow; tests/docs/test_pages.py leaves it out, as MLflow is not in `.venv`."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "mlflow.md"


@pytest.mark.filterwarnings("ignore")
def test_the_recipe_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed: pip install mlflow")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    code = "".join(re.findall(r"^```{code-block} python\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL))
    shown = re.findall(r"^print\(.*\)  # (.+)$", code, flags=re.MULTILINE)
    space: dict[str, object] = {"__name__": "page"}
    exec(compile(code, PAGE.name, "exec"), space)
    assert capsys.readouterr().out.splitlines()[-len(shown) :] == shown
    wide, narrow = (space["loaded"].predict(space["rows"], params={"coverage": at}) for at in (0.9, 0.5))
    assert (narrow["upper"] - narrow["lower"]).sum() < (wide["upper"] - wide["lower"]).sum()
    with pytest.raises(mlflow.exceptions.MlflowException, match="ward"):
        space["loaded"].predict(space["rows"].drop(columns="ward"))
