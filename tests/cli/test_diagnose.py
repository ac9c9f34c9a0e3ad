"""The command diagnose: what it prints, writes and refuses."""

import json

import polars as pl
import pytest


def test_tables_and_sentences(ddpn, files):
    done = ddpn("diagnose", "visits.csv", "--target", "visits", "--mean-model", "glm")
    assert done.exit_code == 0, done.output
    assert "consistent with a Poisson" in done.stdout
    assert "variance / mean" in done.stdout
    assert "Recommendation: --likelihood poisson" in done.stdout
    assert "Fitting a Poisson GLM" in done.stderr


def test_json(ddpn, files):
    done = ddpn("diagnose", "visits.csv", "--target", "visits", "--drop", "ward", "--mean-model", "constant", "--json")
    found = json.loads(done.stdout)
    assert found["dispersion"]["direction"] == "over"
    assert found["summary"]["rows"] == 260
    assert [each["check"] for each in found["findings"]] == ["dispersion", "zeros", "ceiling", "heaping", "tail"]


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (["--upper", "60"], "--likelihood double_binomial --upper 60"),
        (["--upper-column", "beds"], "--likelihood double_binomial --upper-column beds"),
        (["--censored-above", "6"], "--likelihood mixed --censored-above 6"),
        (["--censored", "over"], "--likelihood mixed --censored over"),
    ],
)
def test_known_bounds_and_limits_are_left_to_the_fit(ddpn, files, table, options, arguments):
    columns = {"beds": 60 + pl.int_range(pl.len()) % 7, "over": pl.col("visits") >= 9}
    with_bounds = table.with_columns(**{name: columns[name] for name in columns if name in options})
    with_bounds.with_columns(visits=pl.col("visits").clip(0, 9 if "over" in options else 99)).write_csv("beds.csv")
    done = ddpn("diagnose", "beds.csv", "--target", "visits", "--mean-model", "glm", *options)
    assert done.exit_code == 0, done.output
    assert f"Recommendation: {arguments}" in done.stdout
    assert "known bounds or limits are not tested" in done.stdout


def test_a_table_that_says_nothing(ddpn, files, table):
    table.head(10).write_csv("few.csv")
    done = ddpn("diagnose", "few.csv", "--target", "visits")
    assert done.exit_code == 0, done.output
    assert "too few rows" in done.stdout


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
