"""Test whole reports of every sort of model, table and count, tables and facts against numpy, and bad inputs."""

import os
import platform
import re
from html import escape, unescape
from html.parser import HTMLParser
from importlib.metadata import version
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.exceptions import NotFittedError
from torch.distributions import Exponential

from ddpn import DDPNRegressor, InputError, Poisson
from ddpn.analysis.explanations import Curve, Effect, Importance, Importances
from ddpn.analysis.plots import panels
from ddpn.analysis.report.figures import draw_distribution, draw_effect, draw_importance, draw_scatter
from ddpn.analysis.report.sections import (
    collect_reproduction_facts,
    collect_rows,
    describe_likelihood,
    describe_members,
    summarize_counts,
    tabulate_interval_groups,
)
from ddpn.members.networks import Networks

VOID = {"meta", "link", "br", "hr", "img", "input"}
#: SVG elements that close themselves.
CLOSED = {"path", "rect", "use", "g"}
SECTIONS = ["verdict", "leaderboard", "accuracy", "calibration", "uncertainty", "importance", "effects"]
SECTIONS += ["best-and-worst-rows", "reproduction"]


class Reader(HTMLParser):
    """A parser that checks that tags match and names are unique, and keeps links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.ids, self.tags, self.outside, self.refs = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.refs += attributes.get("aria-labelledby", "").split()
        for name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
            if name in attributes and not attributes[name].startswith(("#", "data:")):
                self.outside.append(attributes[name])
        assert not any(name.startswith("on") for name in attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in CLOSED
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read_checked_report(path) -> tuple[str, Reader]:
    text = path.read_text(encoding="utf-8")
    reader = Reader(text)
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert set(reader.refs) <= set(reader.ids)
    assert reader.outside == []
    assert not {"script", "iframe", "img", "object", "embed"} & set(reader.tags)
    assert not re.search(r"@import|url\((?!#)", text)
    assert not re.search(r"\bnan\b", " ".join(re.findall(r"<svg.*?</svg>", text, re.S)))
    assert len(text.encode()) < 3_000_000
    return text, reader


def test_a_report_is_complete_and_needs_nothing_else(report_path):
    text, reader = read_checked_report(report_path)
    assert [name for name in reader.ids if name in SECTIONS] == SECTIONS
    # Scatter, PIT, three importances, two effects of each of four columns; three best and three worst rows.
    assert reader.tags.count("figure") == 13
    assert text.count('role="img"') == 19
    assert text.count("prefers-color-scheme: dark") == 1
    assert "@media print" in text
    assert 100_000 < len(text.encode()) < 900_000
    assert os.listdir(report_path.parent) == ["report.html"]
    assert "<script" not in text
    (heading,) = re.findall(r"<h1>(.*?)</h1>", text)
    assert not set("<>'\"") & set(heading)
    assert unescape(heading) == "How well the model predicts <script>alert(1)</script> & \"co\" 'x'"


def test_warnings_and_a_leak_come_before_the_verdict_and_the_leaderboard_after_it(report_path, evidence):
    text, _ = read_checked_report(report_path)
    parts = ("<li>A leak is suspected.", "<li>Warning of", 'id="verdict"', "<td>mixture</td>")
    places = [text.index(words) for words in parts]
    assert places == sorted(places)
    assert "These scores cannot be trusted" in text
    assert text.count('<div class="verdict bad">') == 1
    assert '<a href="#best-and-worst-rows">Best and worst rows</a>' in text
    scores = {row["name"]: row for row in evidence.board.entries}
    row = re.search(r"<tr><td>mixture</td>.*?</tr>", text).group()
    cells = re.findall(r"<td>(?:<strong>)?([^<]*)", row)
    assert cells[:2] == ["mixture", ""]
    assert cells[2] == f"{scores['mixture']['crps']:.4g}"


@pytest.fixture
def undrawn_figures(monkeypatch):
    """A report whose figures are their descriptions: drawing takes longer than all else."""
    monkeypatch.setattr(
        panels, "render_svg", lambda drawn, name, title, words: f"<svg><desc>{escape(words)}</desc></svg>"
    )
    monkeypatch.setattr(panels, "draw_panel", lambda *arguments, **options: MagicMock())


def test_a_single_row_of_a_gaussian_model_has_a_report_but_no_verdict(tmp_path, undrawn_figures, quick, data):
    frame, y = data[0][["x"]][:60], data[1][:60]
    model = quick(likelihood="gaussian", n_networks=1).fit(frame, y)
    text, _ = read_checked_report(model.report(frame[:1], y[:1], tmp_path / "r.html"))
    assert "likelihood gaussian" in text
    assert "A single model has no epistemic uncertainty" in text
    assert "Too few rows for a verdict: with 1 test row " in text
    assert "evaluated on 1 test row on " in text
    assert 'id="leaderboard"' not in text
    assert 'id="scores"' in text


def test_exposure_weights_and_a_better_baseline_are_reported_with_progress(tmp_path, undrawn_figures, with_exposure):
    model, data = with_exposure
    steps, wards = list[str](), np.array(["a", "b"])[np.arange(160) % 2]
    model.fit_intervals(**data, groups=wards)
    oracle = Poisson(torch.from_numpy(data["y"] + 0.01))
    options = {"baselines": {"oracle": oracle}, "sample_weight": np.arange(160) % 4, "progress": steps.append}
    options["interval_groups"] = wards
    task = {"exposure": "days", "note": "Test rows only."}
    text, _ = read_checked_report(model.report(**data, path=tmp_path / "r.html", **options, task=task))
    assert "Left out: 40 rows of weight 0." in text
    assert "on so many rows each: a: 80, b: 80." in text
    assert "<p>Test rows only.</p>" in text
    assert "days: +" in text
    assert "The oracle is better on these rows" in text
    assert steps[:2] == ["Predicting 120 rows", "Scoring 120 rows"]
    assert steps[-2:] == ["Effects of columns: 2 of 2", "Drawing figures"]
    with pytest.raises(InputError, match="exposure"):
        model.report(data["X"], data["y"], tmp_path / "r.html", interval_groups=wards)


def test_a_path_that_cannot_be_written_leaves_everything_as_it_was(tmp_path, undrawn_figures, small_model, data):
    frame, y = data
    with pytest.raises(InputError, match=r"path must name a file .* got the folder"):
        small_model.report(frame, y, tmp_path)
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InputError, match=r"Cannot write .*r\.html: .+\."):
        small_model.report(frame[:1], y[:1], tmp_path / "file" / "r.html")
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"baselines": {"glm": Poisson(torch.ones(3))}}, InputError, "Baseline 'glm' .* one distribution per row"),
        ({"baselines": {"glm": Exponential(1.0)}}, InputError, "dist"),
        ({"y": np.arange(9)}, InputError, "one count per row"),
        ({"X": pd.DataFrame({"x": np.zeros(300)})}, InputError, "columns of fit"),
        ({"sample_weight": np.zeros(300)}, InputError, "sample_weight must be positive"),
    ],
)
def test_bad_input_is_refused(tmp_path, small_model, data, changed, error, words):
    path = tmp_path / "r.html"
    with pytest.raises(error, match=words):
        small_model.report(path=path, **{"X": data[0], "y": data[1]} | changed)
    assert not path.exists()
    with pytest.raises(NotFittedError):
        DDPNRegressor().report(*data, path)


# Single sections ---


def test_the_facts_are_those_of_the_counts(evidence, data, make_evidence):
    y = data[1]
    facts = dict(summarize_counts(evidence, "visits"))
    assert (facts["Mean visits"], facts["Variance"]) == (f"{y.mean():.2f}", f"{y.var():.1f}")
    assert facts["Zeros"] == f"{100 * (y == 0).mean():.1f}%"
    assert not {"Exposure", "Weights"} & set(facts)
    weighted = make_evidence(
        evidence.dists[0], evidence.y, exposure=np.linspace(0.5, 2, 300), weight=np.linspace(1, 3, 300)
    )
    facts = dict(summarize_counts(weighted, "visits"))
    assert (facts["Exposure"], facts["Weights"]) == ("0.500 to 2", "1 to 3")


def test_best_and_worst_rows_are_those_of_the_crps_with_important_columns_first(undrawn_figures, evidence, data):
    important = Importances([Importance("noise", *np.ones((3, 1)), position=2)], 9, 4, 9, 9)
    best, worst = collect_rows(evidence._replace(ids=("case", list(range(300)))), important)
    order = np.argsort(evidence.scores.crps, kind="stable")
    rows = [*order[:3], *order[:-4:-1]]
    assert [card.title for card in (*best, *worst)] == [f"Row {row}, case {row}" for row in rows]
    facts = dict(best[0].facts)
    assert facts["Observed"] == str(data[1][rows[0]])
    p = np.exp(evidence.dists[0].log_prob(torch.from_numpy(evidence.y)).numpy()[rows[0]])
    assert facts["Probability of the observed count"] == f"{100 * p:.1f}%"
    assert [name for name, _ in best[0].values][:2] == ["noise", "x"]


def test_everything_of_the_task_is_shown_and_none_is_required(small_model, evidence):
    facts = dict(collect_reproduction_facts(small_model, evidence, {}))
    assert facts["Model"] == "2 networks"
    assert facts["Likelihood"] == small_model.likelihood
    assert facts["Training rows"] == "225 training rows, 25 validation rows"
    assert "n_networks = 2" in facts["Settings"]
    assert not re.search("validation|random_state|mix_with", facts["Settings"]), "shown elsewhere, or a default"
    assert facts["Seeds"].startswith("model 0;")
    assert facts["Data fingerprint"] == f"sha256 {evidence.fingerprint}"
    assert f"Python {platform.python_version()}" in facts["Versions of this report"]
    assert f"torch {version('torch')}" in facts["Versions of this report"]
    assert "Command" not in facts
    task = {"target": "y", "command": "ddpn fit", "row_counts": {"train": 9}, "split": None, "seed": 3}
    facts = dict(collect_reproduction_facts(small_model, evidence, task | {"own": [1j, "ä"]}))
    assert (facts["Command"], facts["Row counts"], facts["Seed"]) == ("ddpn fit", '{"train": 9}', "3")
    assert facts["Own"] == '["1j", "ä"]'
    assert not {"Target", "Split"} & set(facts)


def test_members_are_listed_with_their_weights():
    networks = Networks.__new__(Networks)
    networks.model = SimpleNamespace(n_networks=5)
    members = {"networks": networks, "glm": SimpleNamespace(label="GLM")}
    predictor = SimpleNamespace(active_members=members, weights={"networks": 0.75, "glm": 0.25})
    model = SimpleNamespace(predictor_=predictor, likelihood=("poisson", "negative_binomial"))
    assert describe_members(model) == "5 networks (75%) + GLM (25%)"
    assert describe_likelihood(model) == "poisson, negative_binomial"


# Figures: the numbers in them against scipy and numpy ---

RNG = np.random.default_rng(6)
MU = RNG.uniform(1.0, 9.0, 250)
Y = RNG.poisson(MU)


def make_poisson(mu):
    return Poisson(torch.as_tensor(np.asarray(mu, dtype=float)))


@pytest.fixture(scope="module")
def poisson_evidence(make_evidence):
    return make_evidence(make_poisson(MU), Y)


def list_descriptions(html):
    return [unescape(words) for words in re.findall(r"<desc[^>]*>(.*?)</desc>", html)]


def list_texts(html):
    return [unescape(words) for words in re.findall(r"<text[^>]*>(.*?)</text>", html)]


def test_intervals_calibrated_by_group_have_a_table_of_their_coverage(undrawn_figures, poisson_evidence):
    predictor = SimpleNamespace(calibration=SimpleNamespace(recalibration=None, groups=SimpleNamespace(rows={"a": 70})))
    labels = np.array(["a", "b"], dtype=object)[np.arange(250) % 2]
    table, sizes = tabulate_interval_groups(predictor, poisson_evidence._replace(grouped=("ward", labels)))
    inside = poisson_evidence.scores.coverage[::2].mean()
    low, high = (f"{100 * end:.1f}%" for end in stats.binomtest(int(125 * inside), 125).proportion_ci(method="wilson"))
    assert f"{100 * inside:.1f}% ({low} to {high})" in table.rows[0]
    assert sizes == "a: 70, b: 0"


def test_the_scatter_shows_some_rows_and_those_outside(undrawn_figures, poisson_evidence):
    words = draw_scatter(poisson_evidence, "visits").caption
    shown = np.argsort(poisson_evidence.mean)[np.linspace(0, 249, 160).round().astype(int)]
    outside = (poisson_evidence.scores.coverage[shown] == 0).sum()
    assert f"160 of 250 rows, evenly spread over the predictions. {outside} of 160 rows shown are outside" in words
    assert "logarithmic" not in words


def test_long_tails_are_drawn_on_log_axes(make_evidence):
    mu = np.geomspace(0.5, 2e6, 120)
    figure = draw_scatter(make_evidence(make_poisson(mu), RNG.poisson(mu)), "sales")
    assert "Both axes are logarithmic" in figure.caption
    assert {"0", "1M"} <= set(list_texts(figure.svg))


@pytest.mark.parametrize(("mu", "y"), [(1e-9, 0), (4.0, 30), (0.5, 1), (3e6, 3_001_000), (3e6, 0)])
def test_a_distribution_is_drawn_with_the_observed_count(make_evidence, mu, y):
    html = draw_distribution(make_evidence(make_poisson([mu, 1.0]), [y, 1]), 0, "best-0")
    assert list_descriptions(html)[0].endswith(f"; observed {y:,}.")
    *ticks, label = list_texts(html)
    assert label.startswith("count")
    assert 2 <= len(ticks) <= 7


def make_importance(name, column, crps, mean):
    repeats = np.array([0.5, 1.0, 1.5])
    return Importance(name, crps * repeats, mean * repeats, 2 * crps * repeats, column)


def test_columns_are_drawn_by_importance_and_the_rest_is_counted(undrawn_figures):
    columns = [make_importance(f"c{j}", j, 0.01 * j, 0.2 - 0.01 * j) for j in range(15)]
    importances = Importances(columns, 700, 15, 700, 200)
    starts = {"crps": "c14: +14.0%; c13: +13.0%", "mean": "c0: 20.0%; c1: 19.0%", "spread": "c14: 28.0%; c13: 26.0%"}
    for key, start in starts.items():
        figure = draw_importance(importances, key, "title")
        assert list_descriptions(figure.svg)[0].startswith(start)
        assert figure.caption == "The 12 largest of 15 columns are shown."


def make_effect(name, points, levels, kind="number", continuous=True, has_missing=False):
    log_levels = np.log(levels)
    curves = [Curve(q, log_levels, np.full(len(points), 0.1), 0.0, True) for q in ("mean", "variance / mean")]
    share = np.full(len(points), 1 / len(points))
    return Effect(name, kind, points, share, *curves, continuous=continuous, has_missing=has_missing)


AGE = make_effect("age", [*np.arange(20.0, 60.0, 5.0), "missing"], np.arange(1.0, 10.0), has_missing=True)
YEAR = make_effect("year", np.arange(1950.0, 2020.0, 5.0).tolist(), np.linspace(1, 2, 14))
WARD = make_effect("ward", [f"w{i}" for i in range(14)], np.linspace(2, 4, 14), "category", False)
FLAG = make_effect("flag", [False, True], [2.0, 3.0], "boolean", False)
SAME = make_effect("same", [3.0], [2.0], continuous=False)
AXIS = {"effect", "90% band", "typical row", "predicted mean"}
EFFECTS = [
    (AGE, "From 1.00 where age is 20 to 9.00 where it is missing.", {"missing", *AXIS}),
    (YEAR, "From 1.00 where year is 1950 to 2.00 where it is 2015.", {"1960", *AXIS}),
    (WARD, "The 12 most frequent of 14 levels are shown.", {f"w{i}" for i in range(12)}),
    (FLAG, "From 2.00 where flag is no to 3.00 where it is yes.", {"no", "yes"}),
    (SAME, "these rows have one value only, 3.", {"3"}),
]


@pytest.mark.parametrize(("one", "words", "labels"), EFFECTS)
def test_effects_are_lines_or_bars_with_their_ends_in_words(one, words, labels):
    figure = draw_effect(one, "mean", "effect-mean", (0.0, 10.0))
    assert figure.caption.endswith(words)
    assert labels <= set(list_texts(figure.svg))
    assert figure.title == f"{one.name}: mean"
