"""Test what commands refuse: one sentence with the options that were typed, a code, and nothing is left."""

import numpy as np
import polars as pl
import pytest
import torch
from filelock import FileLock

from ddpn.cli.wording import render_error
from ddpn.runtime.errors import Argument, InputError

OPTIONS = {"time": "--time", "upper": "--upper", "upper_column": "--upper-column", "overwrite": "--overwrite"}
SETTINGS = {
    "bad": "n_network = 3",
    "old": "members = 3",
    "linear": "hidden = []",
    "wrong": 'target = "visits"\nepochs = 0',
    "fixed": 'target = "visits"\nepochs = 4',
}
FIT = "fit visits.csv -o new --target visits"
BEDS = "fit beds.csv -o new --target patients"
TUNE = "tune visits.csv -o new --config fixed.toml"
PREDICT = "predict MODEL visits.csv -o o.csv"
#: Command, exit code, and words of the sentence.
CASES = [
    # Tables and columns.
    ("fit visits.docx -o new --target visits", 1, "Unsupported file type"),
    ("fit visits.csv -o new --target severity", 1, "must hold non-negative integers, got -"),
    ("fit visits.csv -o new --target ward", 1, "--target ward must hold numbers, got"),
    ("fit visits.csv -o new --target half", 1, "Use --fractional round"),
    (f"{FIT} --split-column part", 1, "train, validation or test in every row, got an empty cell at row 17."),
    (f"{FIT} --time ward", 1, "--time ward must hold numbers or dates"),
    (f"{FIT} --time war", 1, "No column named 'war' (--time). Did you mean 'ward'?"),
    ("fit visits.csv -o folder --target visits", 1, "folder already exists. Choose another name, or replace it with "),
    ("fit visits.csv -o folder --target visits --overwrite", 1, "not a saved model"),
    # Settings.
    (f"{FIT} --config bad.toml", 2, "Unknown key 'n_network' in bad.toml. Did you mean"),
    ("fit visits.csv -o new --config wrong.toml", 2, "Error: epochs must be"),
    (f"{FIT} --config old.toml", 2, "Unknown key 'members' in old.toml. It is now called 'n_networks'."),
    (f"{FIT} --members 5", 2, "--members is now called --networks."),
    (f"{FIT} --fractional floor", 2, "--fractional must be 'error' or 'round', got 'floor'"),
    (f"{FIT} --epochs five", 2, '--epochs must be "auto" or an integer'),
    (f"{FIT} --components 2", 2, "such as --likelihood double_poisson."),
    (f"{FIT} --budget 5s", 2, "--budget must be at least 10 seconds"),
    (f"{FIT} --mix-with tree", 2, "--mix-with must be one of "),
    (f"{FIT} --time a --split-column b", 2, "Give either --split-column or --time"),
    (f"{FIT} --only tree", 2, "No member named 'tree'. Did you mean 'trees'?"),
    (f"{FIT} --likelihood faithful_gaussian --only glm", 2, "member 'glm' cannot be fitted with this likelihood"),
    # What only torch knows, before the table is read.
    ("fit none.csv -o new --target y --beta 2 --likelihood double_poisson", 2, "beta must be"),
    ("fit none.csv -o new --target y --beta 0.5", 2, "--beta needs a single likelihood"),
    ("fit none.csv -o new --target y --beta 1 --likelihood poisson", 2, "--beta is not an option of the likelihood"),
    ("fit none.csv -o new --target y --likelihood faithful_gaussian --mix-with glm", 2, "has no exact GLM"),
    ("fit none.csv -o new --target y --config linear.toml --mix-with glm", 2, "without hidden layers"),
    ("fit none.csv -o new --target y --device abacus", 2, "--device must be auto, cpu, cuda"),
    # Bounds.
    (f"{BEDS} --upper 3", 1, "--target patients must be at most --upper 3, got"),
    (f"{BEDS} --lower 1", 1, "--target patients must be at least --lower 1"),
    ("fit beds.csv -o new --target beds --upper-column patients", 1, "at most the upper bound of its row"),
    (f"{BEDS} --upper-column bed", 1, "No column named 'bed' (--upper-column)"),
    (f"{BEDS} --censored ward", 1, "true or false in every row, got neither at row"),
    (f"{BEDS} --upper-column severity", 1, "--upper-column severity must "),
    (f"{BEDS} --likelihood gaussian --upper 5", 2, "a likelihood of counts"),
    (f"{BEDS} --lower 5 --upper 3", 2, "--upper must be an integer above --lower"),
    (f"{BEDS} --upper-column patients", 2, "'patients' has more than one role"),
    # Searches.
    (f"{TUNE} --budget 10", 2, "--budget must be a duration above 0"),
    (f"{TUNE} --trials 0", 2, "--trials must be an integer of at least 1"),
    (f"{TUNE} --search epochs", 2, "epochs has a value, but is also in --search"),
    # Predictions and scores.
    ("predict MODEL visits.csv -o quick.toml", 1, "Unsupported file type"),
    (f"{PREDICT} --quantiles a", 2, "--quantiles must be numbers"),
    (f"{PREDICT} --ood 0.001", 1, "alpha must be at least"),
    (f"{PREDICT} --member tree", 2, "No member named 'tree'. Did you mean 'trees'?"),
    ("evaluate MODEL beds.csv", 1, "No column named 'visits' (--target)"),
    # Analyses.
    ("diagnose visits.csv --target visits --mean-model trees", 2, "--mean-model must be"),
    ("diagnose visits.csv --target visits --max-rows 3", 2, "--max-rows must be"),
    ("diagnose visits.csv", 2, "target is missing"),
    ("explain MODEL visits.csv --rows 0", 1, "rows must be numbers from 1 to 260, got 0"),
    ("explain MODEL visits.csv --rows a", 2, "rows must be numbers such as 3, 1,5,7 or 1-10"),
    ("explain MODEL visits.csv --of variance", 2, "of must be 'mean' or 'spread'"),
    # Exports and servers.
    ("export MODEL -o m.onnx --coverage=0", 2, "--coverage must lie between 0 and 1"),
    ("export MODEL -o m.onnx --pmf-up-to=-1", 2, "--pmf-up-to must be a count from 0 to 10000"),
    ("export MODEL -o visits.csv", 1, "already exists"),
    ("serve nowhere.model", 1, "Folder not found: nowhere.model"),
    ("serve nowhere.model --port 70000", 2, "--port must be a number from 0 to 65535, got 70000"),
    ("serve nowhere.model --max-rows 0", 2, "--max-rows must be at least 1, got 0"),
    ("serve nowhere.model --token-file none", 2, "The token file none cannot be read"),
    ("serve nowhere.model --log-level loud", 2, "--log-level must be"),
    # Experiments.
    ("reproduce", 2, "NAME must be one or more of"),
    ("reproduce wave --only dpn", 2, "method in --only must be one of"),
    ("reproduce wave --networks 0", 2, "--networks must be an integer of at least 1, got 0."),
    ("reproduce wave --device abacus", 2, "--device must be"),
]


@pytest.fixture
def folder(files, table):
    """The tables and settings of all cases."""
    rng, rows = np.random.default_rng(4), table.height
    part = ["train"] * 16 + [None] + ["test"] * (rows - 17)
    table.with_columns(half=pl.col("visits") + 0.5, part=pl.Series(part)).write_csv(files / "visits.csv")
    beds, severity = rng.integers(2, 9, rows), rng.normal(size=rows)
    columns = {"severity": severity, "ward": rng.choice(["A", "B"], rows), "beds": beds}
    pl.DataFrame(columns | {"patients": rng.binomial(beds, 0.5)}).write_csv(files / "beds.csv")
    for name, text in SETTINGS.items():
        (files / f"{name}.toml").write_text(text)
    (files / "folder").mkdir()
    return files


@pytest.mark.parametrize(("command", "code", "words"), CASES)
def test_a_refusal_is_one_sentence_and_leaves_nothing(run_ddpn, folder, model_path, command, code, words):
    before = sorted(path.name for path in folder.iterdir())
    result = run_ddpn(*(str(model_path) if word == "MODEL" else word for word in command.split()))
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit), "a traceback"
    (error,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert words in error
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(run_ddpn, folder):
    result = run_ddpn(*FIT.split(), "--device", "cuda")
    assert (result.exit_code, "finds no CUDA GPU" in result.stderr) == (2, True)


def test_two_fits_do_not_share_a_folder(run_ddpn, folder):
    with FileLock(folder / ".new.lock"):  # as another process would
        result = run_ddpn(*FIT.split())
    assert (result.exit_code, "Training" in result.stderr) == (1, False)
    assert "Another process is writing to" in result.stderr


@pytest.mark.parametrize(
    ("error", "typed", "expected"),
    [
        (InputError(argument="time", must="be a column"), set(), "time must be a column."),
        (InputError(argument=Argument("time", "day"), must="hold dates"), set(), "time 'day' must hold dates."),
        (InputError(argument="y", must="be at most `upper=3`"), set(), "y must be at most --upper 3."),
        (InputError("Drop `upper_column` in time."), {"time"}, "Drop --upper-column in time."),
        (InputError("Replace it with `overwrite=True`."), set(), "Replace it with --overwrite."),
        (InputError("`ddpn fit` knows no `members`."), set(), "`ddpn fit` knows no `members`."),
    ],
)
def test_arguments_become_options(error, typed, expected):
    assert render_error(error, OPTIONS, typed) == expected
