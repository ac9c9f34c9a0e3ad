"""The README cannot rot: its pictures are there, its numbers are those of committed files, its script runs.

`tests/docs/test_pages.py` runs its code, and checks its commands and links.
"""

import csv
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = ROOT / "docs" / "results" / "length-of-stay" / "table_paper.csv"


def cells(line: str) -> list[str]:
    return [cell.strip().strip("*") for cell in line.strip("|").split("|")]


def test_it_opens_with_a_picture():
    (picture, *_) = re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", README)
    assert README.index(picture) < README.index("## ")


def test_it_is_short():
    assert len(README.splitlines()) <= 150


def test_its_numbers_beside_the_papers_are_those_of_the_results():
    with RESULTS.open(encoding="utf-8") as file:
        known = {(row["row"], row["column"]): row for row in csv.DictReader(file)}
    table = re.search(r"^\| \| MAE, here .*?\n\|---.*?\n(.*?)\n\n", README, flags=re.MULTILINE | re.DOTALL)
    lines = table[1].splitlines()
    assert len(lines) >= 5
    for line in lines:
        method, *shown = cells(line)
        columns = (
            ("ensemble MAE", "value"),
            ("ensemble MAE", "paper"),
            ("ensemble CRPS", "value"),
            ("ensemble CRPS", "paper"),
        )
        for number, (column, which) in zip(shown, columns, strict=True):
            assert abs(float(number) - float(known[method, column][which])) <= 5.01e-4, (method, column)


def test_its_numbers_beside_todays_tools_are_those_of_the_tutorial():
    tutorial = (ROOT / "docs" / "first-afternoon.md").read_text(encoding="utf-8")
    table = re.search(r"^\| \| CRPS \| 90% .*?\n\|---.*?\n(.*?)\n\n", README, flags=re.MULTILINE | re.DOTALL)
    lines = table[1].splitlines()
    assert len(lines) == 4
    for line in lines:
        _, score, held, width = cells(line)
        assert re.search(rf"│ {score} │ +{held} │ +{width} │", tutorial), line


def test_the_script_of_the_laws_picture_prints_and_draws(tmp_path):
    script = [sys.executable, "-W", "error", str(ROOT / "examples" / "law.py")]
    pictures = [tmp_path / "new" / "law.png", tmp_path / "new" / "law.svg"]
    done = subprocess.run([*script, "--out", *map(str, pictures)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("10.000") >= 4
    assert done.stdout.splitlines()[-1] == f"Picture: {pictures[0]}, {pictures[1]}"
    assert pictures[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in pictures[1].read_text(encoding="utf-8")
