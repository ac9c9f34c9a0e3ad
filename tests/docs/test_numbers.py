"""Test that numbers in README, the tutorial and the page on the paper are those of the files that they come from."""

import json
import re
from pathlib import Path

import pytest

from ddpn.paper.experiments.catalogue import read_experiment, read_reference

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = json.loads((ROOT / "docs" / "results" / "first_afternoon.json").read_text(encoding="utf-8"))


def split_cells(line: str, bar: str) -> list[str]:
    return [cell.strip().strip("*") for cell in line.strip().strip(bar).split(bar)]


def read_leaderboard(page: str, bar: str, after: str) -> list[list[str]]:
    """Read the first table after some words that has a row per model."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = text[text.index(after) :].splitlines()
    return [row for line in lines if line.startswith(bar) and len(row := split_cells(line, bar)) > 3][: len(LABELS) + 3]


LABELS = [entry["label"] for entry in TUTORIAL["entries"]]
SHOWN = {
    "README.md": ("|", "Compared with other models", ("crps", "coverage", "expected", "width")),
    "docs/first-afternoon.md": ("│", "Scores on", ("weight", "crps", "nll", "mae", "coverage", "expected", "width")),
}


@pytest.mark.parametrize("page", SHOWN)
def test_the_leaderboard_of_the_tutorial_is_that_of_its_results(page):
    bar, after, names = SHOWN[page]
    rows = [row for row in read_leaderboard(page, bar, after) if row[0] in LABELS]
    assert [row[0] for row in rows] == LABELS
    for row, entry in zip(rows, TUTORIAL["entries"], strict=True):
        for name, cell in zip(names, row[1:], strict=True):
            value = entry[name]
            if name == "weight":
                assert cell == ("" if value is None else f"{value:.0%}" if value else "-"), (entry["label"], name)
            else:
                is_share = name in ("coverage", "expected")
                assert cell == (f"{value:.1%}" if is_share else f"{value:.4g}"), (entry["label"], name)


def test_the_tutorial_has_the_command_and_the_verdict_of_its_results():
    text = " ".join((ROOT / "docs" / "first-afternoon.md").read_text(encoding="utf-8").split())
    assert TUTORIAL["command"] in text
    for sentence in TUTORIAL["verdict"]["sentences"]:
        assert sentence in text


def test_the_version_is_that_of_the_changelog():
    version = next(
        line.split('"')[1] for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version")
    )
    released = [line for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines() if line[:3] == "## "]
    released = [line for line in released if line != "## Unreleased"]
    assert released[0].startswith(f"## [{version}]")


# The paper -----------------------------------------------------------------------------------------------------------


def parse_table(text: str) -> dict[str, dict[str, str]]:
    """Parse the first table in Markdown: the cells of rows by column, without bold and underlined text."""
    lines = [line for line in re.sub(r"\*\*|</?u>", "", text).splitlines() if line.startswith("|")]
    columns, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {name: dict(zip(columns[1:], row_cells, strict=True)) for name, *row_cells in rows}


def read_result(page: str, table: str, row: str, columns: list[str]) -> str:
    """Read our numbers in a table of results, separated by slashes."""
    cells = parse_table((ROOT / "docs" / "results" / page / f"{table}.md").read_text(encoding="utf-8"))[row]
    return " / ".join(re.split(r" [(·]", cells[column])[0] for column in columns)


#: The row, the columns and the file of results, and the file and metrics of the paper's numbers, by its tables.
COLUMNS = {
    "2": ("DDPN", ["ensemble MAE", "ensemble CRPS"], "table_paper", "accuracy_calibration", ["mae", "crps"]),
    "3": ("DDPN", ["AUROC", "FPR80"], "table_ood", "ood_detection", ["auroc", "fpr80"]),
    "4": ("DDPN", ["ensemble MP"], "table_paper", "median_precision", ["median_precision"]),
    "5": ("DP GLM", ["ensemble MAE", "ensemble CRPS"], "table_paper", "glm_length_of_stay", ["mae", "crps"]),
}
DATA = {
    "Length of Stay": "length_of_stay",
    "COCO-People": "coco_people",
    "Inventory": "inventory",
    "Reviews": "reviews",
}


def list_paper_lines() -> list[tuple[str, list[str]]]:
    """List the lines of the tables with results on the page, with the paper's table that they belong to."""
    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    part = text[text.index("### Tables") : text.index("### Figures")]
    lines, item = [], ""
    for line in part.splitlines():
        if line.startswith(("| Table", "| stand-in")):
            row = split_cells(line, "|")
            item = row[0] if row[0] != "stand-in" else item
            lines.append((item, row))
    return lines


def test_the_page_on_the_paper_has_our_results_and_the_papers():
    checked = 0
    for item, (_, _, _, ours, paper, _) in list_paper_lines():
        if item.startswith("Table 1"):
            continue
        row, columns, table, file, metrics = COLUMNS[item.removeprefix("Table ")[0]]
        if link := re.fullmatch(r"\[([\d./ ]+)\]\(results/(.+)\.md\)", ours):
            assert link[1] == read_result(link[2], table, row, columns), (item, link[2])
            checked += 1
        if paper:
            names = [name for name in DATA if name in item]
            method = "double_poisson_glm" if row.endswith("GLM") else "ddpn"
            numbers = read_reference(file, DATA[names[0]] if names else None)
            paper_numbers = [
                numbers.get(("ensemble", method, metric), numbers.get(("", method, metric))) for metric in metrics
            ]
            assert paper == " / ".join(f"{number:.3f}" for number in paper_numbers), item
            checked += 1
    assert checked >= 20


def test_every_numbered_item_of_the_paper_has_a_line():
    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    text = text[text.index("## Every item") :]
    lines = re.findall(r"^\| (Eq\.|Definitions?|Propositions?|Tables?|Figures?) (.*?)[:,|]", text, flags=re.MULTILINE)
    numbers_by_kind: dict[str, set[int]] = {}
    for kind, numbers in lines:
        ends = [int(number) for number in re.findall(r"\b\d+\b(?!\.)", numbers)]
        numbers_by_kind.setdefault(kind[0], set()).update(range(ends[0], ends[-1] + 1) if ends else [])
    assert numbers_by_kind["T"] == set(range(1, 6))
    assert numbers_by_kind["F"] == set(range(1, 33))
    assert numbers_by_kind["E"] >= set(range(1, 7))
    for item in ("2.1", "2.2", "2.3", "3.1", "3.2", "3.3", "3.4", "A.1", "A.2"):
        assert re.search(rf"^\|.*{re.escape(item)}\b", text, flags=re.MULTILINE), item


def test_table_3_is_that_of_the_paper_and_of_the_recorded_evaluation():
    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    rows = parse_table(text[text.index("| | AUPR, paper") : text.index("stays first")])
    labels = {method.label: method.name for method in read_experiment("reviews").methods}
    printed, correct = (read_reference(name) for name in ("ood_detection", "ood_detection_replayed"))
    assert set(rows) == set(labels)
    for label, row in rows.items():
        key = ("", labels[label], "aupr")
        assert list(row.values()) == [f"{printed[key]:.3f}", f"{correct[key]:.3f}"]


def test_the_readme_compares_with_the_paper_by_committed_results():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = parse_table(text[text.index("| | MAE, here") : text.index("Compared with other models")])
    table = parse_table((ROOT / "docs/results/length-of-stay/table_paper.md").read_text(encoding="utf-8"))
    for label, shown in rows.items():
        cells = [table[label][f"ensemble {metric}"].split(" · paper ") for metric in ("MAE", "CRPS")]
        assert list(shown.values()) == [number for pair in cells for number in pair]


def list_simulated_crps(name: str, *rows: str) -> list[str]:
    return [read_result(name, "table_simulation", row, ["ensemble CRPS"]) for row in rows]


def test_the_scores_of_figures_1_and_3_are_those_of_the_results():
    paper, results = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("paper.md", "results.md"))
    for name, truth in (
        ("wave", "DDPN"),
        ("misspecified-poisson", "Poisson"),
        ("misspecified-negative-binomial", "NB"),
    ):
        matched, ddpn, gaussian, poisson = list_simulated_crps(
            name, truth, "DDPN", "Gaussian, rounded to counts", "Poisson"
        )
        shown = (
            f"CRPS of DDPN {ddpn}, Poisson {poisson}," if name == "wave" else f"CRPS {ddpn}, well-specified {matched} |"
        )
        assert f"(results/{name}.md): {shown}" in paper
        (line,) = (line for line in results.splitlines() if line.startswith("|") and f"(results/{name}.md)" in line)
        assert split_cells(line, "|")[2:] == [ddpn, gaussian, poisson]
