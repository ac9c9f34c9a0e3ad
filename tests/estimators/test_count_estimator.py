"""Explanations, leaderboard, verdict and report as methods of estimators."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import ddpn
from ddpn import CountGLM, CountRegressor, DDPNRegressor


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.integers(20, 60, 300), "ward": rng.choice(["a", "b"], 300)})
    days = rng.uniform(1, 9, 300)
    y = rng.poisson(days * np.exp(0.02 * X["age"] + 0.5 * (X["ward"] == "b")))
    return CountGLM(likelihood="negative_binomial").fit(X, y, exposure=days), X, y, days


def test_methods_are_the_functions(fitted):
    model, X, y, days = fitted
    found = model.effects(X, days, columns=["age", "exposure"], bins=5)
    assert [one.name for one in found] == ["age", "exposure"]
    age = found["age"]
    slope = np.diff(age.mean.effect) / np.diff(age.points)
    np.testing.assert_allclose(slope, slope[0], rtol=1e-6)
    assert slope[0] == pytest.approx(0.02, abs=0.01)
    assert {one.name for one in model.importance(X, y, exposure=days, repeats=1).each} == {"age", "ward", "exposure"}
    rows = model.contributions(X[:4], days[:4], background=X, background_exposure=days)
    np.testing.assert_allclose(np.exp(rows.base + rows.values.sum(1)), model.predict(X[:4], days[:4]))
    whole = ddpn.explain(model, X, exposure=days)
    assert whole.importance is None
    assert len(whole.effects) == 3


def test_an_unfitted_model_is_refused():
    for call in ("effects", "contributions"):
        with pytest.raises(NotFittedError):
            getattr(DDPNRegressor(), call)(np.zeros((3, 1)))
    with pytest.raises(NotFittedError):
        DDPNRegressor().importance(np.zeros((3, 1)), np.zeros(3))


# Leaderboard, verdict and report ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def over_dispersed():
    """A model of gamma-mixed Poisson counts by a GLM and a constant, and fresh rows with their counts."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, (1500, 1))
    y = rng.poisson(rng.gamma(2.0, np.exp(1.0 + X[:, 0]) / 2.0))
    model = CountRegressor(members=["glm", "constant"], random_state=0).fit(X[:500], y[:500])
    return model, X[500:], y[500:]


def test_the_leaderboard_has_the_scores_of_the_estimator(over_dispersed):
    model, X, y = over_dispersed
    found = model.leaderboard(X, y)
    scores = {entry["name"]: entry for entry in found.entries}
    assert scores["mixture"]["crps"] == pytest.approx(model.crps(X, y))
    assert scores["mixture"]["nll"] == pytest.approx(model.nll(X, y))
    low, high = model.predict_interval(X, 0.9).T
    assert scores["mixture"]["coverage"] == pytest.approx(((low <= y) & (y <= high)).mean())
    assert [entry["crps"] for entry in found.entries] == sorted(entry["crps"] for entry in found.entries)
    assert found.entries[-1]["name"] == "constant"
    assert found.to_dict()["rows"] == 1000


def test_the_verdict_prefers_what_is_better(over_dispersed):
    model, X, y = over_dispersed
    assert model.verdict(X, y).prefer in (None, "glm"), "never the constant, which is clearly worse"
    noise = model.verdict(X, np.random.default_rng(0).permutation(y))
    assert (noise.level, noise.prefer) == ("worse", "constant"), "X says nothing about these counts"
    few = model.verdict(X, y, groups=np.arange(1000) // 250)
    assert "Too few rows" in few.headline, "four groups count as four rows"


def test_weights_count_rows(over_dispersed):
    model, X, y = over_dispersed
    weight = np.arange(1000) % 3
    often = np.repeat(np.arange(1000), weight)
    weighted, repeated = model.leaderboard(X, y, sample_weight=weight), model.leaderboard(X[often], y[often])
    assert [e["crps"] for e in weighted.entries] == pytest.approx([e["crps"] for e in repeated.entries])


def test_the_leaderboard_is_shown_as_a_table(over_dispersed):
    model, X, y = over_dispersed
    found = model.leaderboard(X, y)
    assert "mixture" in str(found)
    assert str(found).endswith(str(found.verdict))
    html = found._repr_html_()
    assert html.count("<tr>") == 4
    assert f"{found.entries[0]['crps']:.4g}</strong>" in html


def test_the_report_is_a_page_on_these_rows(over_dispersed, tmp_path):
    model, X, y = over_dispersed
    path = model.report(tmp_path / "report.html", X[:300], y[:300], task={"target": "visits"})
    text = path.read_text(encoding="utf-8")
    assert "How well the model predicts visits" in text
    assert "evaluated on 300 rows" in text
    assert "500 rows, 5-fold cross-fitted" in text
