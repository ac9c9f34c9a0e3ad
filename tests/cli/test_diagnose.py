"""The command diagnose: what it prints, writes and refuses."""

import json

import pytest


def test_tables_sentences_and_a_page(ddpn, files):
    done = ddpn("diagnose", "visits.csv", "--target", "visits", "--mean-model", "glm", "-o", "found.html")
    assert done.exit_code == 0, done.output
    assert "consistent with a Poisson" in done.stdout
    assert "variance / mean" in done.stdout
    assert "Recommendation: --likelihood poisson" in done.stdout
    assert "Fitting a Poisson GLM" in done.stderr
    page = (files / "found.html").read_text()
    assert page.count("<svg viewBox") == 4
    assert "PIT under a Poisson" in page
    again = ddpn("diagnose", "visits.csv", "--target", "visits", "--mean-model", "glm", "-o", "found.html")
    assert again.exit_code == 1
    assert "--overwrite" in again.stderr


def test_json(ddpn, files):
    done = ddpn("diagnose", "visits.csv", "--target", "visits", "--drop", "ward", "--mean-model", "constant", "--json")
    found = json.loads(done.stdout)
    assert found["dispersion"]["direction"] == "over"
    assert found["summary"]["rows"] == 260
    assert [each["check"] for each in found["findings"]] == ["dispersion", "zeros", "ceiling", "heaping", "tail"]


def test_a_table_that_says_nothing(ddpn, files, table):
    table.head(10).write_csv("few.csv")
    done = ddpn("diagnose", "few.csv", "--target", "visits", "-o", "few.html")
    assert done.exit_code == 0, done.output
    assert "too few rows" in done.stdout
    assert "too few rows" in (files / "few.html").read_text()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--target", "visit"], 1, "Did you mean 'visits'?"),
        (["--target", "visits", "--mean-model", "trees"], 2, "--mean-model must be"),
        (["--target", "visits", "--max-rows", "3"], 2, "--max-rows must be"),
        ([], 2, "target is missing"),
    ],
)
def test_errors(ddpn, files, options, code, words):
    done = ddpn("diagnose", "visits.csv", *options)
    assert done.exit_code == code
    assert words in done.stderr
