"""write_report: one whole file for every sort of model, table and count; bad inputs; nothing half-written."""

import os
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

from ddpn import DDPNRegressor, DoublePoisson, InputError, Poisson
from ddpn.analysis.explanations import Effects, Explanation
from ddpn.analysis.report import sections as module
from ddpn.analysis.report import write_report
from ddpn.analysis.report.page import page
from ddpn.analysis.report.sections import sections

VOID = {"meta", "link", "br", "hr", "img", "input"}
#: SVG elements that close themselves.
CLOSED = {"path", "rect", "use", "g"}
SECTIONS = ["verdict", "leaderboard", "data", "accuracy", "calibration", "uncertainty", "importance", "effects"]
SECTIONS += ["best-and-worst-rows", "training", "reproduction"]
#: Words of the earlier dialect that no page may have.
DIALECT = re.compile(r"\b(laws?|told|held|judged|strange|whole (number|count)s?|picture|unless told)\b", re.IGNORECASE)


class Reader(HTMLParser):
    """Checks that tags match and names are unique; keeps links and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.ids, self.tags, self.outside, self.refs, self.words = [], [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.refs += given.get("aria-labelledby", "").split()
        for name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
            if name in given and not given[name].startswith(("#", "data:")):
                self.outside.append(given[name])
        assert not any(name.startswith("on") for name in given)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in CLOSED
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def checked(path) -> tuple[str, Reader]:
    text = path.read_text(encoding="utf-8")
    found = Reader(text)
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    assert set(found.refs) <= set(found.ids)
    assert found.outside == []
    assert not {"script", "iframe", "img", "object", "embed"} & set(found.tags)
    assert not re.search(r"@import|url\((?!#)", text)
    assert not re.search(r"\bnan\b", " ".join(re.findall(r"<svg.*?</svg>", text, re.S)))
    assert not DIALECT.search(" ".join(found.words))
    assert len(text.encode()) < 3_000_000
    return text, found


def test_a_report_is_complete_and_needs_nothing_else(written):
    text, found = checked(written)
    assert [name for name in found.ids if name in SECTIONS] == SECTIONS
    # Twenty figures and the distributions of three best and three worst rows.
    assert found.tags.count("figure") == 20
    assert text.count('role="img"') == 26
    assert text.count("prefers-color-scheme: dark") == 1
    assert "@media print" in text
    assert 200_000 < len(text.encode()) < 900_000
    assert os.listdir(written.parent) == ["report.html"]


def test_hostile_text_stays_text(written):
    text, _ = checked(written)
    assert "<script" not in text
    assert (
        "How well the model predicts &lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;co&quot; &#x27;x&#x27;<" in text
    )


def test_warnings_and_a_leak_come_before_the_verdict_and_the_leaderboard_after_it(written, gathered):
    text, _ = checked(written)
    parts = ("<li>A leak is suspected.", "<li>Warning of", 'id="verdict"', "<td>mixture</td>")
    places = [text.index(words) for words in parts]
    assert places == sorted(places)
    assert "These scores cannot be trusted" in text
    scores = {row["name"]: row for row in gathered.board.entries}
    row = re.search(r"<tr><td>mixture</td>.*?</tr>", text).group()
    cells = re.findall(r"<td>(?:<strong>)?([^<]*)", row)
    assert cells[:2] == ["mixture", "–"]
    assert cells[3] == f"{scores['mixture']['crps']:.2f}"


def test_a_single_row_has_a_report_but_no_verdict(tmp_path, with_exposure):
    model, given = with_exposure
    text, _ = checked(write_report(tmp_path / "r.html", model=model, **{name: v[:1] for name, v in given.items()}))
    assert "Too few rows for a verdict: with 1 test row " in text
    assert "evaluated on 1 row on " in text
    assert 'id="leaderboard"' not in text
    assert 'id="scores"' in text


def test_a_gaussian_model_is_reported_as_rounded_counts(tmp_path, quick, data):
    frame, y = data[0][["x"]][:60], data[1][:60]
    model = quick(likelihood="gaussian", members=1).fit(frame, y)
    text, _ = checked(write_report(tmp_path / "r.html", model=model, X=frame, y=y))
    assert "likelihood gaussian" in text
    assert "A single network has no epistemic uncertainty" in text


def test_exposure_weights_a_better_baseline_and_progress(tmp_path, with_exposure):
    model, given = with_exposure
    steps: list[str] = []
    oracle = Poisson(torch.from_numpy(given["y"] + 0.01))
    options = {"baselines": {"oracle": oracle}, "weight": np.arange(160) % 4, "progress": steps.append}
    task = {"exposure": "days", "note": "Test rows only."}
    text, _ = checked(write_report(tmp_path / "r.html", model=model, **given, **options, task=task))
    assert "Of 160 rows, 120 are evaluated: the others have no weight." in text
    assert "<p>Test rows only.</p>" in text
    assert "days: +" in text
    assert "one common rate per unit of exposure" in text
    assert "Oracle is better on these rows" in text
    assert steps[:2] == ["Scoring 120 rows", "Predicting 120 rows"]
    assert steps[-2:] == ["Effects of columns: 2 of 2", "Drawing figures"]
    with pytest.raises(InputError, match="exposure"):
        write_report(tmp_path / "r.html", model=model, X=given["X"], y=given["y"])


@pytest.mark.parametrize(("mean", "rows"), [(0.05, 60), (3e6, 60), (4.0, 5)])
def test_counts_of_any_size_and_few_rows_can_be_drawn(tmp_path, fitted, made, mean, rows):
    rng = np.random.default_rng(0)
    mu = mean * np.exp(0.5 * rng.normal(size=rows))
    constant = DoublePoisson(torch.full((rows,), mean).double(), 0.01)
    evidence = made(Poisson(torch.from_numpy(mu)), rng.poisson(mu), baselines={"constant": constant})
    path = tmp_path / "r.html"
    parts = sections(fitted, evidence, Explanation(Effects([], 0)), "y", {})
    path.write_text(page("t", [], parts), encoding="utf-8")
    text, found = checked(path)
    assert (">2M<" in text) == (mean > 1e6)
    assert ("Too few rows" in text) == (rows < 50)
    assert found.tags.count("figure") == 9, "no importances"


def test_a_path_that_cannot_be_written_leaves_everything_as_it_was(tmp_path, monkeypatch, fitted, data):
    frame, y = data
    monkeypatch.setattr(module, "sections", lambda *found: {})
    monkeypatch.setattr(module, "explanation_of", lambda *found: None)
    with pytest.raises(InputError, match=r"path must name a file .* got the folder"):
        write_report(tmp_path, model=fitted, X=frame, y=y)
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InputError, match=r"Cannot write .*r\.html: .+\."):
        write_report(tmp_path / "file" / "r.html", model=fitted, X=frame[:1], y=y[:1])
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"baselines": {"glm": Poisson(torch.ones(3))}}, InputError, "baseline 'glm' .* one distribution per row"),
        ({"y": np.arange(9)}, InputError, "one count per row"),
        ({"X": pd.DataFrame({"x": np.zeros(300)})}, InputError, "columns of fit"),
        ({"weight": np.zeros(300)}, InputError, "sample_weight must be positive"),
        ({"model": DDPNRegressor()}, NotFittedError, "not fitted"),
    ],
)
def test_bad_input_is_refused(tmp_path, fitted, data, changed, error, words):
    path = tmp_path / "r.html"
    with pytest.raises(error, match=words):
        write_report(path, **{"model": fitted, "X": data[0], "y": data[1]} | changed)
    assert not path.exists()
