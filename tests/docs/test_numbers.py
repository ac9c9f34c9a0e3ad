"""Numbers that README and tutorial show are those of the files that they come from."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOUND = json.loads((ROOT / "docs" / "results" / "first_afternoon.json").read_text(encoding="utf-8"))


def cells(line: str, bar: str) -> list[str]:
    return [cell.strip().strip("*") for cell in line.strip().strip(bar).split(bar)]


def rows_of(page: str, bar: str, after: str) -> list[list[str]]:
    """The cells of the first table after some words that has a row per model."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = text[text.index(after) :].splitlines()
    return [found for line in lines if line.startswith(bar) and len(found := cells(line, bar)) > 3][: len(LABELS) + 3]


LABELS = [entry["label"] for entry in FOUND["entries"]]
SHOWN = {
    "README.md": ("|", "Compared with other models", ("crps", "coverage", "width")),
    "docs/first-afternoon.md": ("│", "Scores on", ("weight", "crps", "nll", "mae", "coverage", "width")),
}


@pytest.mark.parametrize("page", SHOWN)
def test_the_leaderboard_of_the_tutorial(page):
    bar, after, names = SHOWN[page]
    rows = [row for row in rows_of(page, bar, after) if row[0] in LABELS]
    assert [row[0] for row in rows] == LABELS
    for row, entry in zip(rows, FOUND["entries"], strict=True):
        for name, cell in zip(names, row[1:], strict=True):
            value = entry[name]
            if name == "weight":
                assert cell == ("" if value is None else f"{value:.0%}" if value else "-"), (entry["label"], name)
            else:
                assert cell == (f"{value:.1%}" if name == "coverage" else f"{value:.4g}"), (entry["label"], name)


def test_the_command_and_the_verdict_of_the_tutorial():
    text = " ".join((ROOT / "docs" / "first-afternoon.md").read_text(encoding="utf-8").split())
    assert FOUND["command"] in text
    for sentence in FOUND["verdict"]["sentences"]:
        assert sentence in text


def test_the_version_is_that_of_the_changelog():
    version = next(
        line.split('"')[1] for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version")
    )
    released = [line for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines() if line[:3] == "## "]
    released = [line for line in released if line != "## Unreleased"]
    assert released[0].startswith(f"## [{version}]")
