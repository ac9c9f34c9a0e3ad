"""Test that the numbers on pages about the comparison on real tables are those of its fits."""

import csv
import re
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]


def split_cells(line: str) -> list[str]:
    return [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]


def read_section(page: str, after: str) -> list[list[str]]:
    """Return the rows of the first table of a page after some words, headings first."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = text[text.index(after) :].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    table = takewhile(lambda line: line.startswith("|"), lines[first:])
    return [split_cells(line) for line in table if not line.startswith("|---")]


def test_the_readme_compares_with_other_models_by_committed_results():
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    columns, *rows = read_section("docs/results/tables.md", "**ddpn: default")
    summary = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    ours, *peers = summary.values()
    assert f"best mean rank ({float(ours['rank']):.1f}; AutoGluon follows with" in text
    second = min((peer for peer in peers if "ddpn" not in peer["model"]), key=lambda peer: float(peer["rank"]))
    assert f"AutoGluon follows with {float(second['rank']):.1f})" in text
    assert second["model"].startswith("AutoGluon")
    gain = f"{1 - float(ours['CRPS ratio']):.1%}"
    assert f"Its CRPS is {gain} below that of LightGBM" in text
    assert f"on average by {gain} in CRPS" in (ROOT / "docs/faq.md").read_text(encoding="utf-8")
    assert f"{float(ours['behind best peer']) - 1:.1%} above that of the best other model" in text
    plain = summary["scikit-learn boosting, Poisson"]
    assert round(float(ours["CPU"]) / float(plain["CPU"]), -1) == 50
    assert "such as scikit-learn's boosting there, is about 50 times cheaper than ours" in text


#: The tools of the comparison, by the model that stands for them in the results.
TOOLS = {
    "ddpn": "ddpn: default of `ddpn fit`",
    "LightGBM": "LightGBM Poisson, 5 seeds, as Negative Binomial",
    "XGBoostLSS": "XGBoostLSS, Negative Binomial",
    "NGBoost": "NGBoost, Poisson",
    "AutoGluon": "AutoGluon, quantiles, 60 s",
    "statsmodels": "GLM, Negative Binomial",
    "scikit-learn": "scikit-learn boosting, Poisson",
}


def test_cpu_times_of_other_tools_are_those_of_the_results():
    columns, *rows = read_section("docs/results/tables.md", "**ddpn: default")
    measured = {row[0]: dict(zip(columns, row, strict=True))["CPU"] for row in rows}
    _, *tools = read_section("docs/comparison.md", "# Compared")
    shown = {row[0].replace("*", "").split(" ")[0].strip(","): row[1] for row in tools}
    assert {name: shown.pop(name) for name in TOOLS} == {name: measured[model] for name, model in TOOLS.items()}
    assert set(shown.values()) == {""}


def test_the_readme_names_the_winner_of_every_table():
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    page = (ROOT / "docs/results/tables.md").read_text(encoding="utf-8")
    table = page[page.index("## CRPS by table") : page.index("## Intervals, likelihood and cost")]
    columns, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "|" in line
    )
    wins = dict.fromkeys(("ddpn", "RealMLP", "LightGBM", "AutoGluon", "XGBoostLSS"), 0)
    for row in rows:
        # The page prints the lowest CRPS in bold; rounded scores may tie.
        (winner,) = (model for model, cell in zip(columns, row, strict=True) if cell.startswith("**"))
        wins[next(name for name in wins if winner.startswith(name))] += 1
    assert sum(wins.values()) == len(rows) == 16
    assert f"lowest CRPS on {wins['ddpn']} tables, RealMLP on {wins['RealMLP']}, LightGBM on {wins['LightGBM']}" in text
    assert f"AutoGluon on {wins['AutoGluon']} and XGBoostLSS on {wins['XGBoostLSS']}." in text


NUMBER = re.compile(r"-?[\d.]+(e[+-]\d+)?")
APART = ("length_of_stay", "bikes")
SPLITS = 3


def import_benchmark(name):
    return import_module(f"benchmarks.tables.{name}")


def read_fits() -> dict[str, dict[str, dict[int, dict[str, Any]]]]:
    """Read the scores of every fit of the 16 tables, by table, model and split."""
    results: dict[str, dict[str, dict[int, dict[str, Any]]]] = {}
    with (ROOT / "docs/results/tables.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            fit = {name: float(cell) if NUMBER.fullmatch(cell) else cell or None for name, cell in line.items()}
            results.setdefault(line["table"], {}).setdefault(line["model"], {})[int(line["split"])] = fit
    return {table: models for table, models in results.items() if table not in APART}


def read_first_splits() -> dict[str, dict[str, dict[int, dict[str, Any]]]]:
    """Read the scores of the splits that the summary is about."""
    return import_benchmark("more_splits").select_splits(read_fits(), lambda split: split < SPLITS)


def test_the_page_on_tables_has_the_scores_of_every_fit():
    page, more_splits = import_benchmark("page"), import_benchmark("more_splits")
    text = (ROOT / "docs/results/tables.md").read_text(encoding="utf-8")
    first = read_first_splits()
    rows = import_benchmark("summary").summarize_models(first)
    more = more_splits.compute_ratios(read_fits(), "ddpn", SPLITS)
    assert page.format_summary(rows) in text
    assert page.describe_verdict(rows, "ddpn", more)[0] in text
    assert page.format_costs(first) in text
    assert more_splits.format_ratios(more) in text
    _, *scores = read_section("docs/results/tables.md", "## CRPS by table")
    names = (re.fullmatch(r"(\w+) \(([\d,]+)\)", row[0]) for row in scores)
    facts = {name[1]: {"rows": int(name[2].replace(",", ""))} for name in names}
    assert set(facts) == set(first)
    assert page.format_scores(first, "crps", facts) in text


def test_the_time_of_a_fit_is_that_of_the_comparison():
    readme, page = (
        " ".join((ROOT / name).read_text(encoding="utf-8").split())
        for name in ("README.md", "docs/results/soundness.md")
    )
    summary = import_benchmark("summary")
    cpu = summary.average_scores(read_first_splits(), "fit_cpu_seconds")
    ratios = [seconds["ddpn"] / seconds["lightgbm_nb"] for seconds in cpu.values()]
    total = sum(seconds["ddpn"] for seconds in cpu.values()) / sum(seconds["lightgbm_nb"] for seconds in cpu.values())
    mean, low, high = f"{summary.geometric_mean(ratios):.1f}", f"{min(ratios):.1f}", f"{max(ratios):.0f}"
    assert f"[{mean} times the CPU time]" in readme
    assert f"{low} to {high} times, depending on the table" in readme
    assert f"A fit takes {mean} times the CPU time of LightGBM" in page
    assert f"from {low} times on lending to {high} times on arabidopsis" in page
    assert f"Over all fits together, it takes {total:.1f} times" in page


def test_the_page_on_soundness_compares_with_the_current_page_on_tables():
    geometric_mean = import_benchmark("summary").geometric_mean
    _, *rows = read_section("docs/results/soundness.md", "## From version 0.3")
    _, *scores = read_section("docs/results/tables.md", "## CRPS by table")
    assert [(row[0], row[2]) for row in rows] == [(row[0], row[1]) for row in scores]
    before, now = (np.array([float(row[column]) for row in rows]) for column in (1, 2))
    assert [f"{change:+.1%}".replace("+0.0%", "0.0%").replace("-0.0%", "0.0%") for change in now / before - 1] == [
        row[3] for row in rows
    ]
    text = " ".join((ROOT / "docs/results/soundness.md").read_text(encoding="utf-8").split())
    others = [i for i, row in enumerate(rows) if not row[0].startswith("recreation")]
    worse, better = geometric_mean(now / before) - 1, 1 - geometric_mean((now / before)[others])
    assert f"version 0.4 is {worse:.1%} worse, and {better:.1%} better without recreation" in text
    more = {(row[0], row[1].split(" ")[0]): row for row in read_section("docs/results/tables.md", "## More splits")[1:]}
    (_, _, _, loss, loss_error, *_), (_, _, _, ratio, ratio_error, *_) = (
        more[table, "LightGBM"] for table in ("recreation", "arabidopsis")
    )
    assert f"on 20 splits, the CRPS is {loss} times that of LightGBM (standard error {loss_error})" in text
    assert f"on ten splits, the ratio is {ratio} ({ratio_error})" in text
    _, _, _, worst, error, *_ = max(
        (row for (table, _), row in more.items() if table == "recreation"), key=lambda row: float(row[3])
    )
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    shown = f"{float(worst) - 1:.1%} above on 20 splits instead of three, with a standard error of {float(error):.1%}"
    assert shown in readme


def test_the_page_on_soundness_has_the_ratios_of_mixtures_of_the_note():
    *_, means = read_section("benchmarks/notes/glm_priors.md", "## The whole mixture")
    cells = [re.fullmatch(r"([\d.]+) \(standard error ([\d.]+)\)", cell) for cell in means[1:]]
    ratios, errors = ([cell[part] for cell in cells] for part in (1, 2))
    text = " ".join((ROOT / "docs/results/soundness.md").read_text(encoding="utf-8").split())
    assert f"its CRPS is {', '.join(ratios[:3])} and {ratios[3]} times" in text
    assert f"standard errors {', '.join(errors[:3])} and {errors[3]}, over" in text
