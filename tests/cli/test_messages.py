"""Messages name options as the user typed them."""

import json

import polars as pl
import pytest

from ddpn.cli.console import in_options
from ddpn.networks.heads.likelihoods import DESCRIPTIONS, SHIPPED
from ddpn.runtime.errors import Argument, InputError

OPTIONS = {"time": "--time", "upper": "--upper", "upper_column": "--upper-column", "overwrite": "--overwrite"}


@pytest.mark.parametrize(
    ("error", "given", "expected"),
    [
        (InputError(argument="time", must="be a column"), {"time"}, "--time must be a column."),
        (InputError(argument="time", must="be a column"), set(), "time must be a column."),
        (InputError(argument=Argument("time", "a b"), must="hold dates"), {"time"}, "--time 'a b' must hold dates."),
        (InputError(argument=Argument("time", "day"), must="hold dates"), set(), "time 'day' must hold dates."),
        (InputError(argument="y", must="be at most `upper=3`"), set(), "y must be at most --upper 3."),
        (InputError("Drop `upper_column` in time."), {"time"}, "Drop --upper-column in time."),
        (InputError("Replace it with `overwrite=True`."), set(), "Replace it with --overwrite."),
        (InputError("`ddpn fit` knows no `members`."), set(), "`ddpn fit` knows no `members`."),
    ],
)
def test_arguments_become_options(error, given, expected):
    assert in_options(error, OPTIONS, given) == expected


def test_without_a_command_nothing_changes():
    assert in_options(InputError("Drop `time`."), {}, set()) == "Drop `time`."


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--target", "half"], 1, "--target half must hold non-negative integers"),
        (["--target", "half"], 1, "Use --fractional round"),
        (["--target", "visits", "--fractional", "floor"], 2, "--fractional must be 'error' or 'round', got 'floor'"),
        (["--target", "visits", "--mix-with", "tree"], 2, "--mix-with must be one of "),
        (["--target", "visits", "--epochs", "five"], 2, '--epochs must be "auto" or an integer of at least 1'),
        (["--target", "visits", "--members", "five"], 2, "--members must be an integer, got 'five'."),
        (["--target", "visits", "--beta=x"], 2, "--beta must be a number, got 'x'."),
        (["--target", "visits", "--components", "2"], 2, "such as --likelihood double_poisson."),
        (
            ["--target", "visits", "--beta", "1", "--likelihood", "poisson"],
            2,
            "--beta is not an option of the likelihood",
        ),
        (["--target", "visits", "--budget", "5s"], 2, "--budget must be at least 10 seconds"),
        (["--target", "visits", "--device", "gpu"], 2, "--device must be auto, cpu, cuda"),
        (
            ["--target", "visits", "--split-column", "part"],
            1,
            "--split-column part must hold train, validation or test",
        ),
        (["--target", "visits", "--split-column", "part"], 1, "got an empty cell at row 17."),
        (["--target", "visits", "--time", "ward"], 1, "--time ward must hold numbers or dates"),
        (["--target", "visits", "--time", "ward"], 1, "got text such as"),
        (["--target", "visits", "--time", "war"], 1, "No column named 'war' (--time). Did you mean 'ward'?"),
        (["--target", "visits", "--time", "a", "--split-column", "b"], 2, "Give either --split-column or --time"),
        (["--target", "visits", "--upper", "9", "--upper-column", "a"], 2, "Give either --upper or --upper-column"),
        (["--target", "visits", "--upper", "1"], 1, "must be at most --upper 1, got"),
    ],
)
def test_errors_of_fit(ddpn, files, table, options, code, words):
    part = ["train"] * 16 + [None] + ["test"] * (table.height - 17)
    table.with_columns(half=pl.col("visits") + 0.5, part=pl.Series(part)).write_csv("more.csv")
    found = ddpn("fit", "more.csv", "-o", "model", *options)
    assert found.exit_code == code, found.output
    assert words in found.stderr
    assert found.stderr.count("\n") == 1, "one sentence"


def test_settings_of_a_file_keep_their_names(ddpn, files):
    (files / "wrong.toml").write_text('target = "visits"\nepochs = 0\n')
    assert "Error: epochs must be" in ddpn("fit", "visits.csv", "-o", "m", "--config", "wrong.toml").stderr


def test_likelihoods_are_listed(ddpn):
    assert set(DESCRIPTIONS) == set(SHIPPED)
    shown = ddpn("likelihoods").stdout
    assert all(name in shown for name in SHIPPED)
    assert "mixed (default)" in shown
    assert json.loads(ddpn("likelihoods", "--json").stdout) == DESCRIPTIONS
