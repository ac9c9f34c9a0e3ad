"""write_report: one whole file for every sort of model, table and count; refusals; nothing half-written."""

import os
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.exceptions import NotFittedError

from ddpn import CountRegressor, DoublePoisson, InputError, Poisson
from ddpn.report import write_report

VOID = {"meta", "link", "br", "hr", "img", "input"}
#: Those of SVG that close themselves.
CLOSED = {"path", "rect"}
SECTIONS = ["verdict", "data", "accuracy", "calibration", "uncertainty", "drivers", "rows", "training", "reproduce"]


class Reader(HTMLParser):
    """Complains about tags that do not match and names that stand twice; keeps links and words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.ids, self.tags, self.outside, self.refs = [], [], [], [], []
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


def checked(path) -> tuple[str, Reader]:
    text = path.read_text(encoding="utf-8")
    found = Reader(text)
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    assert set(found.refs) <= set(found.ids)
    assert found.outside == []
    assert not {"script", "iframe", "img", "object", "embed"} & set(found.tags)
    assert not re.search(r"@import|url\(", text)
    assert not re.search(r"\bnan\b", " ".join(re.findall(r"<svg.*?</svg>", text, re.S)))
    assert len(text.encode()) < 3_000_000
    return text, found


def test_a_report_is_whole_and_needs_nothing_else(written):
    text, found = checked(written)
    assert [name for name in found.ids if name in SECTIONS] == SECTIONS
    # Eleven figures and the laws of three best and three worst rows.
    assert found.tags.count("figure") == 11
    assert text.count('role="img"') == 17
    assert text.count("prefers-color-scheme: dark") == 1
    assert "@media print" in text
    assert os.listdir(written.parent) == ["report.html"]


def test_hostile_words_stay_words(written):
    text, _ = checked(written)
    assert "<script" not in text
    assert (
        "How well the model predicts &lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;co&quot; &#x27;x&#x27;<" in text
    )


def test_the_same_rows_give_the_same_file_whatever_holds_them(tmp_path, fitted, data):
    frame, y = data
    plain = frame.iloc[:60]
    texts = [
        write_report(tmp_path / f"{i}.html", model=fitted, X=X, y=target).read_text(encoding="utf-8")
        for i, (X, target) in enumerate([(plain, y[:60]), (pl.from_pandas(plain), pl.Series(y[:60]))])
    ]
    assert texts[0] == texts[1]


def test_a_model_worse_than_a_baseline_is_told_to_be(tmp_path, quick, data, baselines):
    frame, y = data
    model = quick(epochs=1, lr=1e-6).fit(frame[["noise"]], y)
    path = write_report(tmp_path / "r.html", model=model, X=frame[["noise"]], y=y, baselines=baselines)
    assert "Not worth it here: truth predicts better" in path.read_text(encoding="utf-8")


def test_five_rows_are_enough_for_a_report_but_not_for_a_verdict(tmp_path, fitted, data):
    frame, y = data
    text, _ = checked(write_report(tmp_path / "r.html", model=fitted, X=frame[:5], y=y[:5]))
    assert "Too few rows to judge: with 5 rows" in text


def test_one_row_can_be_reported(tmp_path, fitted, data):
    text, _ = checked(write_report(tmp_path / "r.html", model=fitted, X=data[0][:1], y=data[1][:1]))
    assert "judged on 1 row<" in text


def test_a_gaussian_model_is_reported_as_the_counts_it_rounds_to(tmp_path, quick, data):
    frame, y = data
    model = quick(likelihood="gaussian", members=1).fit(frame, y)
    text, _ = checked(write_report(tmp_path / "r.html", model=model, X=frame, y=y))
    assert "gaussian likelihood" in text
    assert "A single network cannot disagree with itself" in text


def test_exposure_and_weights(tmp_path, quick):
    rng = np.random.default_rng(0)
    X, exposure = rng.normal(size=(200, 1)), rng.uniform(0.1, 20.0, 200)
    y = rng.poisson(exposure)
    model = quick().fit(X, y, exposure=exposure)
    task = {"exposure": "days", "note": "Test rows only."}
    options = {"exposure": exposure, "weight": np.arange(200) % 4, "task": task}
    text, _ = checked(write_report(tmp_path / "r.html", model=model, X=X, y=y, **options))
    assert "Of 200 rows, 150 are judged: the others have no weight." in text
    assert "<p>Test rows only.</p>" in text
    assert "days: +" in text
    assert "one common rate per unit of exposure" in text
    with pytest.raises(InputError, match="exposure must be given as in fit"):
        write_report(tmp_path / "r.html", model=model, X=X, y=y)


@pytest.mark.parametrize("mean", [0.05, 3e6])
def test_counts_from_0_and_1_to_millions(tmp_path, quick, mean):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=150)})
    y = rng.poisson(mean * np.exp(0.5 * X["x"]))
    model = quick(epochs=5).fit(X, y)
    constant = DoublePoisson(torch.tensor(float(y.mean())).double(), 0.01)
    text, _ = checked(write_report(tmp_path / "r.html", model=model, X=X, y=y, baselines={"constant": constant}))
    assert (">2M<" in text) == (mean > 1)


def test_progress_is_told(tmp_path, fitted, data):
    told: list[str] = []
    write_report(tmp_path / "r.html", model=fitted, X=data[0][:60], y=data[1][:60], progress=told.append)
    assert told[0] == "Predicting 60 rows"
    assert told[-2:] == ["Shuffling columns: 4 of 4", "Drawing figures"]


def test_a_place_that_cannot_be_written_is_told_and_left_as_it_was(tmp_path, fitted, data):
    frame, y = data
    with pytest.raises(InputError, match=r"path must name a file, got .*, which is a folder"):
        write_report(tmp_path, model=fitted, X=frame, y=y)
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InputError, match=r"path must be writable, got .*r\.html \(.+\)\. Name another place"):
        write_report(tmp_path / "file" / "r.html", model=fitted, X=frame[:20], y=y[:20])
    assert os.listdir(tmp_path) == ["file"]


def test_bad_input_is_told_in_a_sentence(tmp_path, fitted, data):
    frame, y = data
    path = tmp_path / "r.html"
    with pytest.raises(InputError, match=r"baseline 'glm' must hold one law a row of X"):
        write_report(path, model=fitted, X=frame, y=y, baselines={"glm": Poisson(torch.ones(3))})
    with pytest.raises(InputError, match="y must have one count a row of X"):
        write_report(path, model=fitted, X=frame, y=y[:9])
    with pytest.raises(InputError, match="X must have the columns of fit"):
        write_report(path, model=fitted, X=frame[["x"]], y=y)
    with pytest.raises(NotFittedError):
        write_report(path, model=CountRegressor(), X=frame, y=y)
    assert not path.exists()
