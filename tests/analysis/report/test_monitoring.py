"""The page on a comparison of new rows with the training: every check in a table and a figure, and the counts."""

import re

from ddpn.analysis.monitoring import Check, Monitoring, decided
from ddpn.analysis.report.monitoring import write_monitoring

CHECKS = [
    Check("values", "temp", 0.37, 1e-9, "median 4", "median 9"),
    Check("missing", "<wind>", 0.02, 0.4, "1.0% missing", "3.0% missing"),
    Check("missing", "hour", 0.0, 1.0, "0.0% missing", "0.0% missing"),
]
SCORES = {"crps": 2.0, "mae": 3.0, "nll": 2.5, "coverage": 0.88, "mean_count": 7.0, "mean_prediction": 6.5}


def page_of(tmp_path, **more) -> str:
    found = Monitoring(400, 900, 50, 0.01, 0.1, decided(CHECKS, 0.01, 0.1), ("Values of 'x': none.",), **more)
    write_monitoring(tmp_path / "m.html", found, {"model": "bikes.model", "data": "new.csv", "fitted": "2026-01-02T03"})
    return (tmp_path / "m.html").read_text(encoding="utf-8")


def test_every_check_is_shown_with_its_decision(tmp_path):
    text = page_of(tmp_path)
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(<td>.*?)</tr>", text)]
    assert rows == [
        ["values of temp", "median 4", "median 9", "0.370", "&lt;0.001", "drift"],
        ["missing values of &lt;wind&gt;", "1.0% missing", "3.0% missing", "0.020", "0.8", ""],
    ], "not those of a column that is never missing"
    assert "temp: 37% !; &lt;wind&gt;, missing: 2%" in text
    assert "New rows differ from the training" in text
    assert "bikes.model" in text
    assert "fitted 2026-01-02<" in text
    assert 'id="counts"' not in text


def test_counts_have_scores_and_a_pit_histogram(tmp_path):
    text = page_of(tmp_path, scores={**SCORES, "pit": [1.0] * 10, "test": {"crps": 1.5}})
    assert "<td>CRPS</td><td>1.50</td><td>2</td>" in text
    assert "<td>MAE</td><td>-</td><td>3</td>" in text
    assert "50 rows with counts" in text
    assert 'id="fig-pit"' in text
