"""Test the README: its numbers beside the paper's against committed files, and the script of its image.

`tests/docs/test_pages.py` runs its code and checks its commands and links, `tests/docs/test_numbers.py` other numbers.
"""

import re
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = ROOT / "docs" / "results" / "length-of-stay" / "table_paper.md"


def split_cells(line: str) -> list[str]:
    return [cell.strip().strip("*") for cell in line.strip("|").split("|")]


def test_numbers_of_the_readme_beside_the_paper_are_those_of_the_results():
    results = [split_cells(line) for line in RESULTS.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    columns = [results[0].index(f"ensemble {score}") for score in ("MAE", "CRPS")]
    numbers_by_method = {row[0]: re.findall(r"\d\.\d+", " ".join(row[column] for column in columns)) for row in results}
    table = re.search(r"^\| \| MAE, here .*?\n\|---.*?\n(.*?)\n\n", README, flags=re.MULTILINE | re.DOTALL)
    lines = table[1].splitlines()
    assert len(lines) >= 5
    for method, *shown in map(split_cells, lines):
        assert shown == numbers_by_method[method]


def test_the_script_of_the_distributions_prints_and_draws(tmp_path, monkeypatch, capsys):
    images = [tmp_path / "new" / "distributions.png", tmp_path / "new" / "distributions.svg"]
    script = str(ROOT / "examples" / "distributions.py")
    monkeypatch.setattr(sys, "argv", [script, "--out", *map(str, images)])
    runpy.run_path(script, run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.count("10.000") >= 4
    assert printed.splitlines()[-1] == f"Image: {images[0]}, {images[1]}"
    assert images[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in images[1].read_text(encoding="utf-8")
